"""Intervals and tests. Scores are "higher means member"; every share and interval is in [0, 1].

scipy and scikit-learn define the numbers. Only the two areas under curves are written again, for a whole
batch of resamples at once, because the bootstrap needs thousands of them; the tests hold them equal.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.float64]
Side = Literal["two-sided", "lower", "upper"]

RESAMPLES = 2_000
"""Bootstrap resamples, as in Mind the Hook."""


class Interval(NamedTuple):
    """A confidence interval and how it was made; an end that the data cannot give is ``None``."""

    low: float | None
    high: float | None
    method: str


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """P(a member's score > a non-member's), ties ½ (Mann-Whitney U ÷ n₁n₀). Both classes must be there."""
    return float(metrics.roc_auc_score(labels, scores))


def pr_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Average precision. What guessing reaches is the share of members, not ½."""
    return float(metrics.average_precision_score(labels, scores))


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95, side: Side = "two-sided") -> Interval:
    """Exact binomial interval; ``side="upper"`` puts all of the error above: [0, bound]."""
    alternative: dict[Side, Literal["two-sided", "less", "greater"]] = {
        "two-sided": "two-sided",
        "upper": "less",
        "lower": "greater",
    }
    test = stats.binomtest(successes, trials, alternative=alternative[side])
    interval = test.proportion_ci(confidence_level=confidence, method="exact")
    return Interval(float(interval.low), float(interval.high), "clopper-pearson")


def fisher_greater(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """One-sided Fisher exact p-value of "the first share is larger than the second"."""
    table = np.array([[hits, trials - hits], [other_hits, other_trials - other_hits]])
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def bootstrap(
    statistic: Callable[..., Any],
    *strata: ArrayLike,
    seed: int = 0,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """BCa bootstrap interval of ``statistic(*strata, axis=-1)``, each stratum resampled by itself.

    Rows are documents or probes, so the interval speaks of other documents of the same kind, not of other
    models or corpora. Where the acceleration is not defined the percentile interval is given, and ``method``
    says so; where no resample differs from another there is no interval: (None, None, "degenerate").
    """
    samples = [np.asarray(s, dtype=np.float64) for s in strata]
    if any(len(s) < 2 for s in samples):
        return Interval(None, None, "degenerate")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what scipy warns of (degenerate data) is looked at below
        outcome = stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            batch=max(1, 2_000_000 // sum(len(s) for s in samples)),  # bounds memory to tens of MB
            vectorized=True,
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(seed),
        )
    distribution = np.asarray(outcome.bootstrap_distribution)
    if np.ptp(distribution) < 1e-12:
        return Interval(None, None, "degenerate")
    low, high = float(outcome.confidence_interval.low), float(outcome.confidence_interval.high)
    if np.isnan(low) or np.isnan(high):
        tail = (1 - confidence) / 2
        low, high = (float(q) for q in np.quantile(distribution, [tail, 1 - tail]))
        return Interval(low, high, "percentile")
    return Interval(low, high, "BCa")


def auc_interval(members: ArrayLike, non_members: ArrayLike, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Interval of the ROC AUC that resamples documents within each class.

    Under complete separation every resample has AUC 1 (or 0), which is not certainty. Then min(n₁, n₀)
    disjoint pairs are independent trials with success probability AUC, all of which succeeded (failed), and
    their Clopper-Pearson interval is given: valid, and wide where there are few documents.
    """
    x, y = np.asarray(members, dtype=np.float64), np.asarray(non_members, dtype=np.float64)
    pairs = min(len(x), len(y))
    if pairs and x.min() > y.max():
        return clopper_pearson(pairs, pairs)._replace(method="clopper-pearson of disjoint pairs")
    if pairs and x.max() < y.min():
        return clopper_pearson(0, pairs)._replace(method="clopper-pearson of disjoint pairs")
    return bootstrap(auc_statistic, x, y, seed=seed, resamples=resamples)


def auc_statistic(members: Floats, non_members: Floats, axis: int = -1) -> Floats:
    """:func:`roc_auc` along the last axis of a batch."""
    n1, n0 = members.shape[-1], non_members.shape[-1]
    ranks = stats.rankdata(np.concatenate([members, non_members], axis=-1), axis=-1)
    wins = ranks[..., :n1].sum(axis=-1) - n1 * (n1 + 1) / 2
    return np.asarray(wins / (n1 * n0), dtype=np.float64)


def ap_statistic(members: Floats, non_members: Floats, axis: int = -1) -> Floats:
    """:func:`pr_auc` along the last axis of a batch: precision at each member's own score, averaged."""
    both = np.concatenate([members, non_members], axis=-1)
    order = np.argsort(-both, axis=-1, kind="stable")
    score = np.take_along_axis(both, order, axis=-1)
    is_member = (order < members.shape[-1]).astype(np.float64)
    at = np.arange(1, both.shape[-1] + 1)
    # a tie is one step of the curve: every row of it has the precision of its last row
    last = np.ones(score.shape, dtype=bool)
    last[..., :-1] = score[..., 1:] != score[..., :-1]
    end = np.minimum.accumulate(np.where(last, at, at[-1])[..., ::-1], axis=-1)[..., ::-1]
    precision = np.take_along_axis(np.cumsum(is_member, axis=-1), end - 1, axis=-1) / end
    return np.asarray((is_member * precision).sum(axis=-1) / members.shape[-1], dtype=np.float64)


def mean_statistic(values: Floats, axis: int = -1) -> Floats:
    """The mean along the last axis of a batch."""
    return np.asarray(values.mean(axis=-1), dtype=np.float64)


def by_class(labels: ArrayLike, scores: ArrayLike) -> tuple[Floats, Floats]:
    """(members' scores, non-members' scores)."""
    mask, values = np.asarray(labels, dtype=bool), np.asarray(scores, dtype=np.float64)
    return values[mask], values[~mask]
