"""What a statistic gives back, and what it accepts: a number with its interval, or no number and the reason."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragtrace.errors import UsageError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]


class Interval(NamedTuple):
    """A confidence interval and how it was made; an end that the data cannot give is ``None``."""

    low: float | None
    high: float | None
    method: str


class Estimate(NamedTuple):
    """A statistic, or ``value=None`` and why there is none.

    :param low: and ``high``: ends of the confidence interval, ``None`` where the data give none (``reason`` says why).
    :param method: how the interval was made.
    :param reversal: set where the whole interval lies on the side of "non-members score higher".
    :param p: two-sided p-value of "no difference", for comparisons.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str | None = None
    reason: str | None = None
    reversal: str | None = None
    p: float | None = None


def truth(labels: ArrayLike) -> Bools:
    """Membership labels as booleans: ``bool``, or integers that are all 0 or 1.

    Anything else is refused, since to a cast the text "False" and a probability of 0.1 are both true.
    """
    given = np.asarray(labels)
    if given.ndim != 1:
        raise UsageError(f"labels have {given.ndim} dimensions, expected 1; pass one label for each score")
    kind = given.dtype.kind
    if kind == "O" and all(isinstance(label, bool | np.bool_) for label in given):
        kind = "b"
    if not given.size or kind == "b" or (kind in "iu" and np.isin(given, (0, 1)).all()):
        return np.asarray(given, dtype=bool)
    odd = next((v for v in given if not isinstance(v, bool | np.bool_) and (kind not in "iu" or v not in (0, 1))), None)
    raise UsageError(
        f"labels are not boolean (dtype {given.dtype}, for example {odd!r:.40}), expected True or False (or integers "
        "1 and 0) for member or not; compare the column with the value that means member"
    )


def numbers(scores: ArrayLike, n: int) -> Floats:
    """``n`` scores as floats; a missing one (``None``) becomes NaN."""
    raw = np.asarray(scores)
    text = raw.dtype.kind not in "biufO" or (
        raw.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in raw.flat)
    )
    try:
        given = None if text else np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        given = None
    if given is None:  # numbers written as text too: they come from a column that was read wrongly
        raise UsageError(f"scores are not numbers (dtype {raw.dtype}), expected one number for each label")
    if given.shape != (n,):
        raise UsageError(f"scores have shape {given.shape}, expected ({n},); pass one score for each label")
    return given


def level(confidence: float) -> float:
    """``confidence`` if it is one."""
    if not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence!r}, expected a share between 0 and 1, for example 0.95")
    return confidence


def no_data(labels: Bools, *arms: Floats, least: int = 2) -> str | None:
    """Why these scores mean nothing: a class too small, scores that are not finite, all tied."""
    members = int(labels.sum())
    if min(members, len(labels) - members) < least:
        counts = f"{members} members and {len(labels) - members} non-members"
        return f"no data: {counts}, at least {least} of each are needed"
    for scores in arms:
        if odd := int((~np.isfinite(scores)).sum()):
            what = f"{odd} of {len(scores)} scores are missing, NaN or infinite"
            return f"no data: {what}; leave these targets out and say so"
        if np.ptp(scores) == 0:
            return f"no data: all {len(scores)} scores are tied"
    return None


def codes(clusters: ArrayLike | None, n: int) -> Indices | None:
    """Each row's cluster as 0, 1, 2 …; ``None`` where every row is a cluster of its own."""
    if clusters is None:
        return None
    given = np.asarray(clusters)
    if given.shape != (n,):
        raise UsageError(f"clusters have shape {given.shape}, expected ({n},); pass one document id for each score")
    if any(c is None or c != c for c in given.tolist()):
        raise UsageError("clusters hold missing ids, expected a document id for each score")
    unique, code = np.unique(given.astype(str) if given.dtype.kind == "O" else given, return_inverse=True)
    return None if len(unique) == n else np.asarray(code, dtype=np.intp)
