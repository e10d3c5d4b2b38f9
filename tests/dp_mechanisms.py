"""Exact probabilities of what the defenses draw, by enumeration: the references of the tests of their guarantees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def peeled(utilities: Sequence[float], rate: float, k: int) -> dict[tuple[int, ...], float]:
    """Each ordered choice of ``k`` by the exponential mechanism without putting back, and its probability."""
    found = {}
    for order in itertools.permutations(range(len(utilities)), k):
        left, p = list(range(len(utilities))), 1.0
        for chosen in order:
            p *= math.exp(rate * utilities[chosen]) / sum(math.exp(rate * utilities[i]) for i in left)
            left.remove(chosen)
        found[order] = p
    return found


def loss(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    """The largest privacy loss between two distributions."""
    return max(abs(math.log(one[o] / other[o])) for o in one)


def randomised_delta(total: float, epsilon: float, times: int) -> float:
    """δ(``total``) of ``times`` randomised responses: the hockey-stick divergence, over all 2^times answers."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    delta = 0.0
    for lies in itertools.product((0, 1), repeat=times):
        one = math.prod(1 - p if lie else p for lie in lies)
        other = math.prod(p if lie else 1 - p for lie in lies)
        delta += max(0.0, one - math.exp(total) * other)
    return delta
