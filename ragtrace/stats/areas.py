"""Areas under the ROC and the precision-recall curve, also of thousands of reweighted samples at once.

scikit-learn defines the two numbers. They are written again for weights because a bootstrap resample is a
vector of how often each document was drawn: scores are then sorted once and not once a resample.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn import metrics

from ragtrace.errors import UsageError
from ragtrace.stats.results import Bools, Floats, no_data, numbers, truth

Curve = Literal["roc", "pr"]


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """P(a member's score > a non-member's), ties ½ (Mann-Whitney U ÷ n₁n₀), in [0, 1].

    :raises UsageError: labels not boolean, one class only, or scores that are not finite.
    """
    return float(metrics.roc_auc_score(*_both_classes(labels, scores)))


def pr_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Average precision, in [0, 1]. What guessing reaches is the share of members, not ½.

    :raises UsageError: as :func:`roc_auc`.
    """
    return float(metrics.average_precision_score(*_both_classes(labels, scores)))


def by_class(labels: ArrayLike, scores: ArrayLike) -> tuple[Floats, Floats]:
    """(members' scores, non-members' scores), either of which may be empty.

    :raises UsageError: labels not boolean, or of another length than scores.
    """
    mask = truth(labels)
    values = numbers(scores, len(mask))
    return values[mask], values[~mask]


def mean_statistic(values: Floats, axis: int = -1) -> Floats:
    """The mean along the last axis of a batch."""
    return np.asarray(values.mean(axis=-1), dtype=np.float64)


def _both_classes(labels: ArrayLike, scores: ArrayLike) -> tuple[Bools, Floats]:
    mask = truth(labels)
    values = numbers(scores, len(mask))
    if not np.isfinite(values).all():
        raise UsageError(f"{int((~np.isfinite(values)).sum())} of {len(values)} scores are not finite numbers")
    if why := no_data(mask, least=1):
        raise UsageError(why)
    return mask, values


class Ranking:
    """Scores of one arm, sorted once.

    :param labels: (n,) members. :param scores: (n,) finite scores.
    """

    def __init__(self, labels: Bools, scores: Floats) -> None:
        order = np.argsort(-scores, kind="stable")
        self._members, self._others = order[labels[order]], order[~labels[order]]
        high, low = -scores[self._members], -scores[self._others]
        # how many non-members score above each member, and at least as high; the last member tied with each
        self._above, self._level = (np.searchsorted(low, high, side=side) for side in ("left", "right"))
        self._last = np.searchsorted(high, high, side="right") - 1
        # from which member on, highest first, each non-member scores at least as high, and higher
        self._first_at, self._first_below = (np.searchsorted(high, low, side=side) for side in ("left", "right"))
        self._ties = bool((self._above != self._level).any()), bool((self._last != np.arange(len(high))).any())

    def area(self, curve: Curve, weights: Floats) -> Floats:
        """(b,) areas of the samples in which row i occurs ``weights[b, i]`` times; NaN where a class is missing."""
        mixed, tied = self._ties
        members = weights[:, self._members]
        alarms = np.zeros((len(weights), len(self._others) + 1))
        np.cumsum(weights[:, self._others], axis=1, out=alarms[:, 1:])
        level = alarms[:, self._level]
        if curve == "roc":
            above = (alarms[:, self._above] + level) / 2 if mixed else level
            lost = np.einsum("bm,bm->b", members, above)
            return 1 - _ratio(lost, members.sum(axis=1) * alarms[:, -1])
        hits = np.cumsum(members, axis=1)
        total = hits[:, -1] * (alarms[:, -1] > 0)
        if tied:
            hits = hits[:, self._last]
        drawn = hits + level
        drawn[drawn == 0] = 1  # no row so high was drawn: its weight is 0 too
        return _ratio(np.einsum("bm,bm->b", members, hits / drawn), total)

    def without_each(self, curve: Curve) -> Floats:
        """(n,) areas of the samples that lack one row each, in closed form; at least 2 rows in each class."""
        n1, n0 = len(self._members), len(self._others)
        result = np.empty(n1 + n0)
        above = (self._above + self._level) / 2  # non-members that beat each member, ties ½
        if curve == "roc":
            lost = above.sum()
            beaten = n1 - (self._first_at + self._first_below) / 2  # members that each non-member beats
            result[self._members] = 1 - (lost - above) / ((n1 - 1) * n0)
            result[self._others] = 1 - (lost - beaten) / (n1 * (n0 - 1))
            return result
        hits, alarms = self._last + 1, self._level
        precision = hits / (hits + alarms)
        before = np.concatenate([[0.0], np.cumsum(precision)])
        # without a row, the precision of the members that score no higher changes: one hit less, or one alarm
        fewer = (hits - 1) / np.maximum(hits + alarms - 1, 1)
        clearer = hits / np.maximum(hits + alarms - 1, 1)
        rest, clear = (np.concatenate([np.cumsum(p[::-1])[::-1], [0.0]]) for p in (fewer, clearer))
        first = np.searchsorted(self._last, self._last)  # the first member tied with each
        result[self._members] = (before[first] + rest[first] - fewer) / (n1 - 1)
        result[self._others] = (before[self._first_at] + clear[self._first_at]) / n1
        return result


def _ratio(part: Floats, whole: Floats) -> Floats:
    result = np.full(part.shape, np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result
