"""Areas under curves with their intervals, of one arm and of the difference of two.

Which interval: ``tests/benchmarks/coverage.py`` draws samples of known area and counts how often each holds it. At a
nominal 95 % and 2,000 draws a cell the default, ``logit``, held 93 to 97 % of the time for three shapes of scores from
50 + 50 to 1,000 + 1,000 up to an area of .95. ``delong`` is too narrow for an area of .95 and more, ``bca`` for
precision-recall areas at 50 + 50. For very skewed scores with an area of .98 none holds at 50 + 50: ``logit`` 87 %.
"""

from __future__ import annotations

from functools import partial
from math import log1p, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize
from scipy.special import expit, logit, ndtri, stdtrit

from ragtrace.errors import UsageError
from ragtrace.stats.areas import Curve, Ranking
from ragtrace.stats.delong import covariance, placements
from ragtrace.stats.proportions import clopper_pearson
from ragtrace.stats.resample import RESAMPLES, Documents, Resampled
from ragtrace.stats.results import Bools, Estimate, Floats, Interval, codes, level, no_data, numbers, truth

if TYPE_CHECKING:
    from collections.abc import Callable

Method = Literal["logit", "delong", "bca"]
CHANCE = 0.5
LEAST_RESAMPLES = 100
"""With fewer, a 95 % interval would end at the outermost resamples."""
NOTHING_VARIES = (
    "no interval: documents do not vary in what they add (arms that order all alike, or an arm fully reversed)"
)
NO_VARIANCE = 1e-24
"""Below this a variance is rounding error: one wrong pair among 10¹⁰ gives more."""
NO_INTERVAL = Interval(None, None, "degenerate")
_SURE = 1 - 1e-12
"""The highest confidence that an interval is looked for at: a p-value below 1e-12 is given as that."""


def auc(
    labels: ArrayLike,
    scores: ArrayLike,
    curve: Curve = "roc",
    *,
    clusters: ArrayLike | None = None,
    method: Method = "logit",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Area under the ROC (``curve="roc"``, chance ½) or precision-recall curve (``"pr"``, chance the share of members).

    :param labels: (n,) True for members. :param scores: (n,) finite, higher for members.
    :param clusters: (n,) document of each row where a document has several (probes, seeds); they then stay
        together. A document may be a member in one row and not in another.
    :param method: ``logit``: on the logit scale, with DeLong's variance (Obuchowski's for clusters; the jackknife's
        and a t quantile for ``pr``). ``delong``: the same untransformed, ROC only. ``bca``: bootstrap over
        documents, stratified by membership, with ``resamples`` (100 or more) drawn by ``seed``.
    :return: ``value=None`` and a ``reason`` for one class only, fewer than 2 documents in a class, scores that are
        not finite, all tied. Under complete separation every method's variance is 0, which is not certainty: then
        an exact, wider interval is given, and ``method`` says so. ``reversal`` is set where the ROC interval lies
        below ½.
    :raises UsageError: labels not boolean, lengths that differ, scores that are not numbers.
    """
    level(confidence)
    sample = _Sample(labels, (scores,), curve, clusters, method)
    if sample.why:
        return Estimate(None, reason=sample.why)
    value = float(sample.values[0])
    roc = sample if curve == "roc" else _Sample(labels, (scores,), "roc", clusters, "logit")
    interval = sample.bca(seed, resamples).interval(confidence) if method == "bca" else NO_INTERVAL
    if interval.low is None:
        interval = sample.interval(0, confidence, method)
    above = interval.high if curve == "roc" else roc.interval(0, confidence, "logit").high
    reversal = None
    if above is not None and above < CHANCE:
        reversal = f"non-members score higher; with the sign flipped the ROC AUC is {1 - roc.values[0]:.3f}"
    if interval.low is None:
        return Estimate(value, reason=NOTHING_VARIES, reversal=reversal)
    return Estimate(value, *interval, reversal=reversal)


def auc_difference(
    labels: ArrayLike,
    scores: ArrayLike,
    others: ArrayLike,
    curve: Curve = "roc",
    *,
    clusters: ArrayLike | None = None,
    method: Method = "logit",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Area of one arm minus that of another over the same rows, in [-1, 1], with the p-value of "no difference".

    :param scores: and ``others``: (n,) each, row by row the same targets. Other parameters as in :func:`auc`.
    :param method: ``logit``: the arms' logit intervals and their covariance (MOVER; Zou & Donner 2008).
        ``delong``: the paired test of DeLong et al. 1988 (where an arm separates completely: ``logit``).
        ``bca``: each resample is drawn once and used for both arms.
    :return: ``p`` is 1 - the confidence at which an end of the interval is 0 (at least 2 ÷ ``resamples`` for
        ``bca``). Arms that order all targets alike differ by 0 with p = 1 and no interval, and ``reason`` says so.
    :raises UsageError: as :func:`auc`.
    """
    level(confidence)
    sample = _Sample(labels, (scores, others), curve, clusters, method)
    if sample.why:
        return Estimate(None, reason=sample.why)
    value = float(sample.values[0] - sample.values[1])
    if method == "bca":
        resampled = sample.bca(seed, resamples)
        interval = resampled.interval(confidence)
        if interval.low is not None:
            return Estimate(value, *interval, p=resampled.p())
        method = "logit"
    at = partial(sample.difference, method=method)
    interval = at(confidence)
    if interval.low is None:
        return Estimate(value, reason=NOTHING_VARIES, p=None if value else 1.0)
    return Estimate(value, *interval, p=_touching_zero(at, value))


def auc_interval(members: ArrayLike, non_members: ArrayLike, confidence: float = 0.95) -> Interval:
    """The interval of :func:`auc` for scores given by class; where that has none: (None, None, "degenerate")."""
    x, y = np.asarray(members, dtype=np.float64), np.asarray(non_members, dtype=np.float64)
    estimate = auc(np.arange(len(x) + len(y)) < len(x), np.concatenate([x, y]), confidence=confidence)
    return Interval(estimate.low, estimate.high, estimate.method or "degenerate")


class _Sample:
    """The checked rows of one or two arms, their areas and the covariance of these."""

    def __init__(
        self, labels: ArrayLike, arms: tuple[ArrayLike, ...], curve: Curve, clusters: ArrayLike | None, method: Method
    ) -> None:
        if curve not in ("roc", "pr") or method not in ("logit", "delong", "bca"):
            raise UsageError(f"curve {curve!r} and method {method!r}, expected roc or pr, and logit, delong or bca")
        if (curve, method) == ("pr", "delong"):
            raise UsageError("DeLong's variance is that of the ROC AUC; use method logit or bca for curve pr")
        self.labels: Bools = truth(labels)
        self.curve = curve
        self.scores: list[Floats] = [numbers(arm, len(self.labels)) for arm in arms]
        self.clusters = codes(clusters, len(self.labels))
        self.documents = Documents(self.labels, self.clusters)
        self.why = no_data(self.labels, *self.scores)
        if not self.why and min(self.documents.members, self.documents.others) < 2:
            counts = f"{self.documents.members} documents with members and {self.documents.others} with non-members"
            self.why = f"no data: {counts}, at least 2 of each are needed"
        if self.why:
            return
        self.rankings = [Ranking(self.labels, scores) for scores in self.scores]
        self.values = self._areas(np.ones((1, len(self.labels))))[:, 0]
        self._covariance: Floats | None = None

    def _areas(self, weights: Floats) -> Floats:
        return np.array([ranking.area(self.curve, weights) for ranking in self.rankings])

    def bca(self, seed: int, resamples: int) -> Resampled:
        """The bootstrap of the area, or of the difference of the two."""
        if resamples < LEAST_RESAMPLES:
            raise UsageError(f"{resamples} resamples, expected at least {LEAST_RESAMPLES}")

        def one(areas: Floats) -> Floats:
            return np.asarray(areas[0] - areas[1] if len(areas) == 2 else areas[0])

        drawn = [one(self._areas(weights)) for weights in self.documents.resamples(resamples, seed)]
        return Resampled(float(one(self.values)), np.concatenate(drawn), [one(u) for u in self._influences()])

    def _influences(self) -> list[Floats]:
        return self.documents.influences(
            self._areas, lambda: np.array([ranking.without_each(self.curve) for ranking in self.rankings])
        )

    @property
    def covariance(self) -> Floats:
        """(a, a), DeLong's or the jackknife's."""
        if self._covariance is None:
            if self.curve == "roc":
                placed = [placements(self.labels, scores) for scores in self.scores]
                self._covariance = covariance(self.labels, *placed, clusters=self.clusters)
            else:
                moved = self._influences()
                self._covariance = np.sum([u.shape[1] / (u.shape[1] - 1) * u @ u.T for u in moved], axis=0)
        return self._covariance

    def separated(self, arm: int) -> int:
        """1 where all members score above all non-members, -1 where below, else 0."""
        members, others = self.scores[arm][self.labels], self.scores[arm][~self.labels]
        return int(members.min() > others.max()) - int(members.max() < others.min())

    def _exact(self, side: int, confidence: float) -> Interval:
        """Where the classes separate completely.

        ROC: disjoint pairs are independent trials with success probability AUC, of which all succeeded (failed).
        Precision-recall: a threshold at the highest non-member has TPR ≥ T and FPR ≤ f, each by Clopper-Pearson;
        so the curve lies above π·r ÷ (π·r + (1 - π)·f) for every recall r up to T, π being the share of members.
        """
        members, others = self.documents.members, self.documents.others
        if self.curve == "roc":
            pairs = min(members, others, self.documents.count // 2)
            exact = clopper_pearson(pairs if side == 1 else 0, pairs, confidence)
            return exact._replace(method="Clopper-Pearson of disjoint pairs")
        if side == -1:
            return NO_INTERVAL
        each = (3 + confidence) / 4
        recall = clopper_pearson(members, members, each, "lower").low or 0.0
        c = (clopper_pearson(0, others, each, "upper").high or 1.0) * (1 / float(self.labels.mean()) - 1)
        return Interval(recall - c * log1p(recall / c), 1.0, "Clopper-Pearson of TPR and FPR")

    def interval(self, arm: int, confidence: float, method: Method) -> Interval:
        """Of one arm's area."""
        value, variance = float(self.values[arm]), float(self.covariance[arm, arm])
        if side := self.separated(arm):
            return self._exact(side, confidence)
        if variance < NO_VARIANCE:
            return NO_INTERVAL
        quantile = float(ndtri((1 + confidence) / 2))
        if self.curve == "pr":  # few documents make up the jackknife's variance, which the normal quantile forgets
            quantile = float(stdtrit(min(self.documents.members, self.documents.others) - 1, (1 + confidence) / 2))
        half = quantile * variance**0.5
        if method == "delong":
            return Interval(max(0.0, value - half), min(1.0, value + half), "DeLong")
        half /= value * (1 - value)
        name = "DeLong, logit" if self.curve == "roc" else "jackknife, logit, t"
        return Interval(float(expit(logit(value) - half)), float(expit(logit(value) + half)), name)

    def difference(self, confidence: float, method: Method) -> Interval:
        """Of the first arm's area minus the second's."""
        c = self.covariance
        value = float(self.values[0] - self.values[1])
        variance = float(c[0, 0] + c[1, 1] - 2 * c[0, 1])
        separated = self.separated(0) or self.separated(1)
        if variance < NO_VARIANCE and not separated:
            return NO_INTERVAL
        if method == "delong" and not separated:
            half = float(ndtri((1 + confidence) / 2)) * variance**0.5
            return Interval(max(-1.0, value - half), min(1.0, value + half), "DeLong, paired")
        spread = float(c[0, 0] * c[1, 1]) ** 0.5
        correlation = min(1.0, max(-1.0, float(c[0, 1]) / spread)) if spread > NO_VARIANCE else 0.0
        reaches = []
        for arm in (0, 1):
            low, high, name = self.interval(arm, confidence, "logit")
            if low is None or high is None:
                return NO_INTERVAL
            reaches.append((float(self.values[arm]) - low, high - float(self.values[arm]), name))
        (down, up, name), (other_down, other_up, other_name) = reaches

        def reach(one: float, other: float) -> float:
            return sqrt(max(0.0, one**2 + other**2 - 2 * correlation * one * other))

        method_name = f"{name}, paired" if name == other_name else f"{name}; {other_name}; paired"
        return Interval(max(-1.0, value - reach(down, other_up)), min(1.0, value + reach(up, other_down)), method_name)


def _touching_zero(interval: Callable[[float], Interval], value: float) -> float:
    """1 - the confidence at which the end of the interval that is nearer to 0 is 0."""

    def end(confidence: float) -> float:
        low, high, _ = interval(confidence)
        return float((low if value > 0 else high) or 0.0)

    if end(1 - _SURE) * value <= 0:  # an exact interval may hold 0 at any confidence
        return 1.0
    if end(_SURE) * value >= 0:
        return 1 - _SURE
    return 1 - float(optimize.brentq(end, 1 - _SURE, _SURE, xtol=1e-14))
