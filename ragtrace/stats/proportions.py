"""Shares and counts: exact intervals, tests of two shares, seeds as clusters, many tests at once."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ragtrace.errors import UsageError
from ragtrace.stats.results import Estimate, Interval, level

if TYPE_CHECKING:
    from collections.abc import Iterable

Side = Literal["two-sided", "lower", "upper"]
_ALTERNATIVE: dict[Side, Literal["two-sided", "less", "greater"]] = {
    "two-sided": "two-sided",
    "upper": "less",
    "lower": "greater",
}


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95, side: Side = "two-sided") -> Interval:
    """Exact binomial interval; ``side="upper"`` puts all of the error above: [0, bound].

    ``clopper_pearson(0, n, side="upper").high`` is what a count of zero still allows (0 of 150: 1.98 %).

    :raises UsageError: no trials, or more successes than trials.
    """
    _count(successes, trials)
    test = stats.binomtest(successes, trials, alternative=_ALTERNATIVE[side])
    interval = test.proportion_ci(confidence_level=level(confidence), method="exact")
    return Interval(float(interval.low), float(interval.high), "clopper-pearson")


def mean_share(
    first: tuple[int, int], second: tuple[int, int], weight: float = 0.5, confidence: float = 0.95
) -> Estimate:
    """``weight`` · k₁/n₁ + (1 - ``weight``) · k₂/n₂ of two independent counts (k, n), as balanced accuracy is.

    Interval: Wilson's of each share combined by their distances from it (MOVER; Newcombe 1998, method 10).

    :param weight: in [0, 1].
    """
    share, down, up = 0.0, 0.0, 0.0
    for (successes, trials), w in ((first, weight), (second, 1 - weight)):
        _count(successes, trials)
        p = successes / trials
        wilson = stats.binomtest(successes, trials).proportion_ci(level(confidence), method="wilson")
        share += w * p
        down += (w * (p - wilson.low)) ** 2
        up += (w * (wilson.high - p)) ** 2
    return Estimate(float(share), max(0.0, float(share - down**0.5)), min(1.0, float(share + up**0.5)), "Wilson, MOVER")


def fisher_greater(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """One-sided Fisher exact p-value of "the first share is larger than the second"."""
    return float(stats.fisher_exact(_table(hits, trials, other_hits, other_trials), alternative="greater").pvalue)


def boschloo_greater(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """One-sided Boschloo exact p-value of the same: never larger than Fisher's (:func:`fisher_greater`)."""
    # scipy takes the two groups as columns
    table = _table(hits, trials, other_hits, other_trials).T
    return float(stats.boschloo_exact(table, alternative="greater").pvalue)


def seed_permutation(values: ArrayLike, others: ArrayLike) -> Estimate:
    """Difference of two means over seeds, with the exact one-sided permutation p of "the first is larger".

    What ran under one seed is not independent, so whole seeds are exchanged: 3 against 3 seeds give
    p = 1/20 = .05 at best, however many canaries each has; ``reason`` says where p < .05 is out of reach.

    :param values: (k,) one number a seed, and ``others`` (m,), at least 2 each; up to 9,999 exchanges are drawn
        (all of them where there are no more).
    """
    first, second = (np.asarray(v, dtype=np.float64) for v in (values, others))
    k, m = first.size, second.size
    if first.ndim != 1 or second.ndim != 1:
        raise UsageError(f"seed values have shapes {first.shape} and {second.shape}, expected one number for each seed")
    if min(k, m) < 2:
        return Estimate(None, reason=f"no data: {k} and {m} seeds, at least 2 of each are needed; one is a case study")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return Estimate(None, reason="no data: a seed has no finite value")
    test = stats.permutation_test(
        (first, second),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        vectorized=True,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    best = 1 / comb(k + m, k)
    reason = f"{k} against {m} seeds give p = {best:.2g} at best" if best >= 0.05 else None
    difference = float(first.mean() - second.mean())
    return Estimate(difference, method="permutation of seeds", reason=reason, p=float(test.pvalue))


def holm(p_values: Iterable[float | None]) -> list[float | None]:
    """Holm's adjusted p-values (family-wise error), in the given order; ``None`` (not tested) stays and does not count.

    :raises UsageError: a p-value outside [0, 1], or NaN.
    """
    given = list(p_values)
    tested = [(p, i) for i, p in enumerate(given) if p is not None]
    if odd := [p for p, _ in tested if not 0 <= p <= 1]:
        raise UsageError(f"p-value {odd[0]!r}, expected one in [0, 1], or None for a cell that was not tested")
    adjusted: list[float | None] = [None] * len(given)
    worst = 0.0
    for done, (p, i) in enumerate(sorted(tested)):
        worst = max(worst, min(1.0, (len(tested) - done) * p))
        adjusted[i] = worst
    return adjusted


def _table(hits: int, trials: int, other_hits: int, other_trials: int) -> np.ndarray:
    _count(hits, trials)
    _count(other_hits, other_trials)
    return np.array([[hits, trials - hits], [other_hits, other_trials - other_hits]])


def _count(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials or trials < 1:
        raise UsageError(f"{successes} successes of {trials} trials, expected 0 to {max(trials, 1)} of at least one")
