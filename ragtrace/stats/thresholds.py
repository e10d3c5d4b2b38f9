"""One threshold: TPR at a low FPR, and accuracy at a threshold fitted elsewhere. Member iff score ≥ threshold.

Intervals of shares take rows as independent: give one row for each document.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragtrace.errors import UsageError
from ragtrace.stats.areas import by_class
from ragtrace.stats.proportions import clopper_pearson, mean_share
from ragtrace.stats.results import Estimate, no_data, numbers, truth

_ROUNDING = 1e-9
"""0.29 · 100 is 28.999…96 in floats; a step of the curve must not be lost by that."""


class OperatingPoint(NamedTuple):
    """What one threshold does, each share with its interval.

    :param tpr: share of members accepted; ``fpr``: of non-members accepted (Clopper-Pearson).
    :param accuracy: share of rows told right; ``balanced_accuracy``: (TPR + 1 - FPR) ÷ 2, ½ is chance.
    """

    threshold: float
    tpr: Estimate
    fpr: Estimate
    accuracy: Estimate
    balanced_accuracy: Estimate


def threshold_at_fpr(non_members: ArrayLike, fpr: float) -> float:
    """The lowest threshold that accepts no more than ``fpr`` of these non-members: no interpolation between steps.

    :param non_members: (n,) finite scores, 1 or more. :param fpr: in [0, 1).
    """
    if not 0 <= fpr < 1:
        raise UsageError(f"FPR {fpr!r}, expected a share from 0 to below 1")
    scores = np.asarray(non_members, dtype=np.float64)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise UsageError(f"non-members' scores of shape {scores.shape}, expected one finite number for each of them")
    allowed = int(np.floor(fpr * scores.size + _ROUNDING))
    refused = np.partition(scores, scores.size - 1 - allowed)[scores.size - 1 - allowed]
    return float(np.nextafter(refused, np.inf))


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, fpr: float = 0.01, confidence: float = 0.95) -> Estimate:
    """Share of members accepted where at most ``fpr`` of the non-members are, with its Clopper-Pearson interval.

    The step below ``fpr`` is taken (:func:`threshold_at_fpr`), as the largest TPR of
    ``sklearn.metrics.roc_curve`` whose FPR is not above it. The interval is that of the rule found: its TPR on
    other members. The rule's FPR on other non-members is not ``fpr``: of k accepted out of n₀ it may be up to
    ``clopper_pearson(k, n₀, side="upper").high``, which also holds for a threshold chosen by its k.

    Refused where n₀ < 1 ÷ ``fpr``: then one false positive is already too many, and the number would be the TPR
    at FPR = 0 of the sample, which falls as n₀ grows.

    :raises UsageError: labels not boolean, lengths that differ, ``fpr`` outside (0, 1).
    """
    if not 0 < fpr < 1:
        raise UsageError(f"FPR {fpr!r}, expected a share between 0 and 1")
    mask = truth(labels)
    values = numbers(scores, len(mask))
    if why := no_data(mask, values):
        return Estimate(None, reason=why)
    members, others = values[mask], values[~mask]
    if len(others) * fpr < 1 - _ROUNDING:
        needed = int(np.ceil(1 / fpr - _ROUNDING))
        why = f"refused: {len(others)} non-members cannot show an FPR of {fpr:.2%}, at least {needed} are needed"
        return Estimate(None, reason=why)
    return _share(members >= threshold_at_fpr(others, fpr), confidence)


def fit_threshold(
    labels: ArrayLike, scores: ArrayLike, criterion: Literal["balanced_accuracy", "accuracy"] = "balanced_accuracy"
) -> float:
    """The observed score that is the best threshold on a reference set; of equally good ones the lowest.

    :raises UsageError: one class only, or scores that are not finite: nothing can be fitted.
    """
    members, others = by_class(labels, scores)
    if not (len(members) and len(others)):
        counts = f"{len(members)} members and {len(others)} non-members"
        raise UsageError(f"a reference set of {counts}, expected some of both; nothing can be fitted")
    candidates = np.unique(np.concatenate([members, others]))
    if not np.isfinite(candidates).all():
        raise UsageError("the reference set has scores that are not finite numbers; leave these targets out")
    hits, alarms = (len(v) - np.searchsorted(np.sort(v), candidates) for v in (members, others))
    if criterion == "accuracy":
        gain = hits - alarms
    else:
        gain = hits * len(others) - alarms * len(members)  # whole numbers: equally good is equal
    return float(candidates[np.argmax(gain)])


def operating_point(labels: ArrayLike, scores: ArrayLike, threshold: float, confidence: float = 0.95) -> OperatingPoint:
    """TPR, FPR, accuracy and balanced accuracy at a ``threshold`` that was fitted on *other* rows.

    :raises UsageError: labels not boolean, lengths that differ, a threshold that is NaN.
    """
    if np.isnan(threshold):
        raise UsageError("threshold is NaN, expected a number; fit it on a reference set by fit_threshold")
    mask = truth(labels)
    values = numbers(scores, len(mask))
    why = no_data(mask, least=1)
    if not why and np.isnan(values).any():
        why = f"no data: {int(np.isnan(values).sum())} of {len(values)} scores are missing or NaN"
    if why:
        none = Estimate(None, reason=why)
        return OperatingPoint(threshold, none, none, none, none)
    accepted = values >= threshold
    right = (int(accepted[mask].sum()), int(mask.sum())), (int((~accepted[~mask]).sum()), int((~mask).sum()))
    return OperatingPoint(
        threshold,
        _share(accepted[mask], confidence),
        _share(accepted[~mask], confidence),
        mean_share(*right, weight=float(mask.mean()), confidence=confidence),
        mean_share(*right, confidence=confidence),
    )


def _share(accepted: np.ndarray, confidence: float) -> Estimate:
    interval = clopper_pearson(int(accepted.sum()), len(accepted), confidence)
    return Estimate(float(accepted.mean()), *interval)
