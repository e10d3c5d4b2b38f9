"""Bootstrap: of any statistic by scipy, and of areas over documents (clusters of rows), all resamples at once."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import ndtr, ndtri

from ragtrace.stats.results import Bools, Floats, Indices, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESAMPLES = 2_000
"""Bootstrap resamples, as in Mind the Hook."""
CELLS = 1_000_000
"""Weights held at once, which bounds memory to tens of MB."""
BLOCKS = 2_000
"""Most blocks the jackknife leaves out; more documents than that share blocks (acceleration then errs by < .001)."""


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
        return percentile(distribution, confidence)
    return Interval(low, high, "BCa")


def bootstrap_mean(values: ArrayLike, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """As :func:`bootstrap` of the mean, where n may be large: scipy's jackknife makes n copies of the sample."""
    sample = np.asarray(values, dtype=np.float64)
    n = len(sample)
    if n < 2 or np.ptp(sample) == 0:
        return Interval(None, None, "degenerate")
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    batch = max(1, CELLS // n)
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        means[start : start + size] = sample[rng.integers(0, n, (size, n))].mean(axis=1)
    # leaving out a row moves the mean by its distance from it
    return Resampled(float(sample.mean()), means, [sample - sample.mean()]).interval(confidence)


def percentile(distribution: Floats, confidence: float = 0.95) -> Interval:
    """The middle ``confidence`` of a bootstrap distribution."""
    tail = (1 - confidence) / 2
    low, high = (float(q) for q in np.quantile(distribution, [tail, 1 - tail]))
    return Interval(low, high, "percentile")


class Documents:
    """Rows in clusters (documents) in strata: who may be drawn in place of whom.

    Documents are stratified by membership: only members, only non-members, or both (the same document, indexed
    for one seed and not for another).

    :param labels: (n,) members. :param clusters: (n,) codes from 0, or ``None``: each row is a document.
    """

    def __init__(self, labels: Bools, clusters: Indices | None = None) -> None:
        self.cluster_of_row = clusters
        count = len(labels) if clusters is None else int(clusters.max()) + 1
        at = np.arange(len(labels)) if clusters is None else clusters
        pattern = np.zeros(count, dtype=np.intp)
        np.bitwise_or.at(pattern, at, np.where(labels, 1, 2))
        self.count = count
        strata = [np.flatnonzero(pattern == p) for p in (1, 2, 3) if (pattern == p).any()]
        # a document alone in its stratum would be in every resample, as if it could be no other
        self.strata = strata if all(len(s) > 1 for s in strata) else [np.arange(count)]
        self.members, self.others = (int(((pattern & bit) > 0).sum()) for bit in (1, 2))

    def resamples(self, number: int, seed: int) -> Iterator[Floats]:
        """(b, n) weights of the rows, in batches that add up to ``number`` resamples."""
        rng = np.random.default_rng(seed)
        rows = self.count if self.cluster_of_row is None else len(self.cluster_of_row)
        batch = max(1, CELLS // rows)
        for start in range(0, number, batch):
            size = min(batch, number - start)
            weights = np.empty((size, self.count))
            for stratum in self.strata:
                k = len(stratum)
                drawn = rng.integers(0, k, (size, k), dtype=np.int64) + k * np.arange(size)[:, None]
                weights[:, stratum] = np.bincount(drawn.ravel(), minlength=size * k).reshape(size, k)
            yield weights if self.cluster_of_row is None else weights[:, self.cluster_of_row]

    def influences(self, statistic: Callable[[Floats], Floats], without_each: Callable[[], Floats]) -> list[Floats]:
        """Jackknife: for each stratum of k documents, (k - 1) ÷ k times how far leaving out each moves the statistic.

        :param statistic: (b, n) weights of the rows to (…, b) values.
        :param without_each: gives its (…, n) values without each row, for documents of one row.
        :return: (…, k) for each stratum; more than ``BLOCKS`` documents of several rows share blocks.
        """
        if self.cluster_of_row is None:
            alone = without_each()
            return [moves(alone[..., stratum]) for stratum in self.strata]
        rng = np.random.default_rng(0)
        result = []
        for stratum in self.strata:
            k = min(len(stratum), max(2, BLOCKS * len(stratum) // self.count))
            blocks = np.arange(k) if k == len(stratum) else rng.permutation(np.arange(len(stratum)) % k)
            without = []
            for part in np.array_split(np.arange(k), k * len(self.cluster_of_row) // CELLS + 1):
                weights = np.ones((len(part), self.count))
                weights[:, stratum] = blocks != part[:, None]
                without.append(statistic(weights[:, self.cluster_of_row]))
            result.append(moves(np.concatenate(without, axis=-1)))
        return result


def moves(without: Floats) -> Floats:
    """Jackknife influences, from the statistic without each row (or block) of a stratum."""
    k = without.shape[-1]
    return np.asarray((k - 1) / k * (without.mean(axis=-1, keepdims=True) - without), dtype=np.float64)


class Resampled:
    """A bootstrap distribution with what BCa corrects it by (Efron 1987; several strata as scipy does it).

    :param distribution: (b,) values; NaN (a resample without a statistic) is left out.
    :param influences: of each stratum, as :meth:`Documents.influences` gives them.
    """

    def __init__(self, value: float, distribution: Floats, influences: list[Floats]) -> None:
        self.distribution = distribution[np.isfinite(distribution)]
        below = (self.distribution < value).mean() + (self.distribution <= value).mean()
        self.bias = float(ndtri(below / 2))
        square = sum(float((u**2).sum()) for u in influences)
        cube = sum(float((u**3).sum()) for u in influences)
        self.acceleration = cube / (6 * square**1.5) if square > 0 else np.nan
        self.degenerate = bool(np.ptp(self.distribution) < 1e-12)

    def interval(self, confidence: float = 0.95) -> Interval:
        """BCa; percentile where a correction is not defined; no ends where no resample differs from another."""
        if self.degenerate:
            return Interval(None, None, "degenerate")
        tail = (1 - confidence) / 2
        z = self.bias + ndtri(np.array([tail, 1 - tail]))
        at = ndtr(self.bias + z / (1 - self.acceleration * z))
        if not np.isfinite(at).all():
            return percentile(self.distribution, confidence)
        low, high = (float(q) for q in np.quantile(self.distribution, at))
        return Interval(low, high, "BCa")

    def p(self, null: float = 0.0) -> float:
        """Two-sided p-value: 1 - the confidence at which an end of :meth:`interval` is ``null``; at least 2 ÷ b."""
        n = len(self.distribution)
        share = ((self.distribution < null).sum() + (self.distribution <= null).sum()) / (2 * n)
        if not (np.isfinite(self.bias) and np.isfinite(self.acceleration)):
            tail = share
        else:
            w = ndtri(share) - self.bias
            tail = ndtr(w / (1 + self.acceleration * w) - self.bias) if np.isfinite(w) else share
        return float(np.clip(2 * min(tail, 1 - tail), 2 / n, 1))
