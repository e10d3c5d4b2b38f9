"""What a defense changes, unit by unit: the difference of two means over the same units, and its share of the first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragtrace.errors import UsageError
from ragtrace.stats.resample import CELLS, RESAMPLES, Resampled, moves
from ragtrace.stats.results import Estimate, level

LEAST_DIFFERING = 6
"""Units that must differ before a direction is told: with 5 that all agree, chance alone has p = 1/16 (two-sided)."""
_RARE = 0.025
"""Share of resamples in which nothing happened before; with more, the interval of a share would have no end."""


class Change(NamedTuple):
    """Means over ``n`` units before and after, and how they differ.

    ``share`` is the difference as a share of ``before`` (-1: nothing is left), without a value where that is 0.
    ``direction``: ``lowers`` or ``raises`` where the interval of the difference leaves out 0 and at least
    ``LEAST_DIFFERING`` units differ, else ``None``: an interval of a handful of units is too narrow.
    """

    before: float
    after: float
    n: int
    differing: int
    difference: Estimate
    share: Estimate

    @property
    def direction(self) -> str | None:
        value, low, high = self.difference[:3]
        if value is None or self.differing < LEAST_DIFFERING:
            return None
        if low is None or high is None:  # all units differ by the same
            return "lowers" if value < 0 else "raises"
        return "lowers" if high < 0 else "raises" if low > 0 else None


def paired_change(
    before: ArrayLike, after: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Change:
    """Bootstrap (BCa) over units, each drawn with both of its numbers; the same draws serve difference and share.

    :param before: (n,) a number for each unit, and ``after`` (n,), unit by unit the same ones; n ≥ 1, all finite.
    :raises UsageError: lengths that differ, no units, or a number that is not finite.
    """
    level(confidence)
    first, second = (np.asarray(v, dtype=np.float64) for v in (before, after))
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise UsageError(f"paired values have shapes {first.shape} and {second.shape}, expected (n,) twice, n ≥ 1")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise UsageError("paired values hold some that are not finite; leave these units out and say so")
    n, moved = len(first), second - first
    rng = np.random.default_rng(seed)
    was, by = np.empty(resamples), np.empty(resamples)
    batch = max(1, CELLS // n)
    for start in range(0, resamples, batch):
        drawn = rng.integers(0, n, (min(batch, resamples - start), n))
        was[start : start + len(drawn)], by[start : start + len(drawn)] = (
            first[drawn].mean(axis=1),
            moved[drawn].mean(axis=1),
        )
    return Change(
        float(first.mean()), float(second.mean()), n, int((moved != 0).sum()),
        _difference(moved, by, confidence), _share(first, moved, was, by, confidence),
    )  # fmt: skip


def _difference(moved: np.ndarray, by: np.ndarray, confidence: float) -> Estimate:
    value = float(moved.mean())
    if np.ptp(moved) == 0:
        return Estimate(
            value, reason=f"{'all units differ by the same' if len(moved) > 1 else 'one unit'}: no interval"
        )
    # leaving out a unit moves the mean by its distance from it
    return Estimate(value, *Resampled(value, by, [moved - value]).interval(confidence))


def _share(first: np.ndarray, moved: np.ndarray, was: np.ndarray, by: np.ndarray, confidence: float) -> Estimate:
    if not first.sum():
        return Estimate(None, reason="no data: there was nothing before, so the change has no share")
    value = float(moved.sum() / first.sum())
    nothing = was == 0
    if nothing.mean() > _RARE:
        return Estimate(value, reason="too few units with anything before for an interval of the share")
    shares = by[~nothing] / was[~nothing]
    without = first.sum() - first
    if np.ptp(shares) < 1e-12 or not without.all():
        return Estimate(value, reason="all resamples give the same share, no interval")
    influence = moves((moved.sum() - moved) / without)
    return Estimate(value, *Resampled(value, shares, [influence]).interval(confidence))
