"""The mechanisms of differential privacy that the defenses here are made of, and what each of them costs.

Scores come as *utilities* in [0, 1], of which one document moves one, by at most 1. Whoever calls these functions has
to see to that. Random numbers are floats of 53 bits: an event rarer than 2⁻⁵⁰ is not covered by any guarantee.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random


def laplace(scale: float, chance: Random) -> float:
    """A Laplace variable: the difference of two exponential ones of the same rate."""
    return scale * (chance.expovariate(1.0) - chance.expovariate(1.0))


def weighted(weights: Sequence[float], chance: Random) -> int:
    """An index, with a probability in proportion to its weight."""
    ends = list(accumulate(weights))
    return min(bisect(ends, chance.random() * ends[-1]), len(ends) - 1)


def peel(utilities: Sequence[float], rate: float, k: int, chance: Random) -> list[int]:
    """The exponential mechanism ``k`` times without putting back: indexes, first chosen first.

    Each round chooses among what is left with p ∝ exp(rate · utility). :func:`peeling_cost` is the ε of all rounds
    together; a rate of 0 chooses by chance alone and costs nothing.

    :param rate: at most 700, as exp(-rate) is a float then.
    """
    left, weights = list(range(len(utilities))), [math.exp(rate * (u - 1)) for u in utilities]
    chosen = []
    for _ in range(min(k, len(left))):
        place = weighted(weights, chance)
        chosen.append(left.pop(place))
        del weights[place]
    return chosen


def noisy_max(utilities: Sequence[float], rate: float, k: int, chance: Random) -> list[int]:
    """Report-noisy-max ``k`` times without putting back, with fresh Laplace noise of scale 1 ÷ rate in each round.

    One round is ``rate``-DP where one utility moves (Dwork & Roth 2014, section 3.3); ``k`` rounds are k · rate.
    """
    left = list(range(len(utilities)))
    chosen = []
    for _ in range(min(k, len(left))):
        noisy = [utilities[i] + laplace(1 / rate, chance) for i in left]
        chosen.append(left.pop(noisy.index(max(noisy))))
    return chosen


def peeling_cost(rate: float, n: int, k: int) -> float:
    """The smallest ε for which :func:`peel` of ``k`` from ``n`` is ε-DP, where one utility moves within [0, 1].

    Say that candidate j rises from 0 to 1, and that the others left in a round weigh W together (1 to e^rate each).
    An outcome in which j is chosen first becomes likelier by at most e^rate (1 + W) ÷ (e^rate + W), most where all
    others stand at 1; chosen later, by less. An outcome without j becomes rarer by (e^rate + W) ÷ (1 + W) in every
    round, most where all others stand at 0. The cost is the larger of the two. It is well below the k · rate of basic
    composition, because one document can spoil k rounds only by weighing much in each, which many others prevent.
    """
    first = rate + math.log(n - 1 + math.exp(-rate)) - math.log(n) if n > 1 else 0.0
    others = (n - 1 - i for i in range(min(k, n - 1)))  # where all are chosen, the last round has no choice
    return max(first, math.fsum(rate + math.log1p(m * math.exp(-rate)) - math.log1p(m) for m in others))


@lru_cache(4096)
def peeling_rate(epsilon: float, n: int, k: int) -> float:
    """The largest rate at which :func:`peel` costs no more than ``epsilon``; ``epsilon`` where there is no choice."""
    if n < 2:
        return epsilon
    low, high = 0.0, epsilon + 1.0  # the cost is at least rate - ln 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if peeling_cost(middle, n, k) <= epsilon else (low, middle)
    return low


def randomised_response(index: int, size: int, epsilon: float, chance: Random) -> int:
    """``index`` with probability e^ε ÷ (e^ε + size - 1), else one of the others (Kairouz et al. 1602.07387)."""
    kept = 1 / (1 + (size - 1) * math.exp(-epsilon))
    if size < 2 or chance.random() < kept:
        return index
    other = chance.randrange(size - 1)
    return other + (other >= index)


def piecewise(value: float, epsilon: float, chance: Random) -> float:
    """A value of [-C, C] that is ``value`` of [-1, 1] on average (Wang et al. 1907.00782, algorithm 2).

    C = (e^(ε/2) + 1) ÷ (e^(ε/2) - 1); the density is e^ε times as high on a piece of length C - 1 near ``value``.
    """
    if epsilon > 1400:  # e^(ε/2) is no float any more, nor is the noise
        return value
    half = math.exp(epsilon / 2)
    c = (half + 1) / math.expm1(epsilon / 2)
    low = (c + 1) / 2 * value - (c - 1) / 2
    high = low + c - 1
    if chance.random() < half / (half + 1):
        return chance.uniform(low, high)
    beyond = chance.random() * (c + 1)  # the two outer pieces, end to end
    return -c + beyond if beyond < low + c else high + beyond - (low + c)
