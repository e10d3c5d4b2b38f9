"""What all membership metrics share: from one score a target to areas and error rates with their intervals.

Scores are higher for members. Areas and TPR use all targets. The balanced accuracy and the ε bound need a threshold:
it is fitted on a reference half and measured on the other. Of a document that is a target in several seeds, areas keep
the rows together, and shares count it once (its mean score).

Channel: ``retrieval``; moved by ``query``, ``retrieval`` and ``content``: the numbers are meant to show whether a
document is reached through the index. A defense of the response alone moves them by corrupting the surface,
which is nuisance (Mind the Hook, step 2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.metrics._read import cells, score, targets
from ragtrace.metrics.base import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb

    from ragtrace.attacks._membership import MembershipAttack
    from ragtrace.metrics._read import Cell, Row
    from ragtrace.metrics.base import Score
    from ragtrace.stats import Estimate
    from ragtrace.stats.results import Bools, Floats
    from ragtrace.types import Channel, Hook

SPLIT_SEED = 0
"""Of the split into reference and evaluation half."""


class Sample(NamedTuple):
    """Targets with a score: (n,) each."""

    labels: Bools
    values: Floats
    documents: list[str]

    def once(self) -> Sample:
        """One row for each document on each side: the mean of its scores."""
        import numpy as np

        keys = dict.fromkeys(zip(self.documents, self.labels.tolist(), strict=True))
        if len(keys) == len(self.documents):
            return self
        at = {key: i for i, key in enumerate(keys)}
        rows = [at[key] for key in zip(self.documents, self.labels.tolist(), strict=True)]
        counts = np.bincount(rows)
        return Sample(
            np.array([label for _, label in keys], dtype=bool),
            np.bincount(rows, weights=self.values) / counts,
            [document for document, _ in keys],
        )


Numbers = tuple["Estimate", dict[str, Any]]


def area(sample: Sample, curve: Any = "roc") -> Numbers:
    """Area under the curve; that under the precision-recall curve says the prevalence, which is its chance."""
    from ragtrace import stats

    estimate = stats.auc(sample.labels, sample.values, curve, clusters=sample.documents)
    said: dict[str, Any] = {"curve": curve, "interval": estimate.method}
    if curve == "pr" and len(sample.labels):
        said["prevalence"] = float(sample.labels.mean())
    return estimate, said


def _tpr(sample: Sample, fpr: float) -> Numbers:
    from ragtrace import stats

    once = sample.once()
    return stats.tpr_at_fpr(once.labels, once.values, fpr), {"fpr": fpr, "n_members": int(once.labels.sum())}


def _fitted(sample: Sample) -> tuple[float, Sample] | str:
    """(threshold fitted on the reference half, the other half), or why there is none."""
    from ragtrace import stats
    from ragtrace.metrics._threshold import halves

    once = sample.once()
    reference, rest = halves(once.labels, SPLIT_SEED)
    if min((once.labels & reference).sum(), (~once.labels & reference).sum()) < 2:
        return "no data: the reference half needs scores of at least 2 members and 2 non-members"
    threshold = stats.fit_threshold(once.labels[reference], once.values[reference])
    kept = [d for d, keep in zip(once.documents, rest.tolist(), strict=True) if keep]
    return threshold, Sample(once.labels[rest], once.values[rest], kept)


def _balanced_accuracy(sample: Sample) -> Numbers:
    from ragtrace import stats

    fitted = _fitted(sample)
    if isinstance(fitted, str):
        return stats.Estimate(None, reason=fitted), {}
    threshold, rest = fitted
    point = stats.operating_point(rest.labels, rest.values, threshold)
    said = {"threshold": threshold, "tpr": point.tpr.value, "fpr": point.fpr.value, "n_evaluation": len(rest.labels)}
    return point.balanced_accuracy, {**said, "split_seed": SPLIT_SEED}


def _epsilon(sample: Sample) -> Numbers:
    from ragtrace import stats

    fitted = _fitted(sample)
    if isinstance(fitted, str):
        return stats.Estimate(None, reason=fitted), {}
    threshold, rest = fitted
    members, others = rest.values[rest.labels], rest.values[~rest.labels]
    bound = stats.epsilon_lower_bound(
        int((members >= threshold).sum()), len(members), int((others >= threshold).sum()), len(others)
    )
    said = {"ceiling": round(bound.ceiling, 3), "n_evaluation": len(rest.labels), "split_seed": SPLIT_SEED}
    # one-sided: the value is itself the lower end
    return stats.Estimate(bound.value, bound.value, None, "Clopper-Pearson", bound.reason), said


class Statistic(NamedTuple):
    """A number made of scores; ``chance`` is what guessing has, where flipping the sign mirrors it."""

    name: str
    of: Callable[[Sample], Numbers]
    chance: float | None = None


STATISTICS = (
    Statistic("roc_auc", area, 0.5),
    Statistic("pr_auc", lambda sample: area(sample, "pr")),
    Statistic("tpr_at_1pct_fpr", lambda sample: _tpr(sample, 0.01)),
    Statistic("tpr_at_01pct_fpr", lambda sample: _tpr(sample, 0.001)),
    Statistic("balanced_accuracy", _balanced_accuracy),
    Statistic("epsilon_lower_bound", _epsilon),
)
"""What is said of every membership score. ``tpr_at_01pct_fpr`` is at an FPR of 0.1 %."""


class Membership:
    """What a membership metric declares, and how its scores become a result."""

    channel: Channel = "retrieval"
    moved_by: tuple[Hook, ...] = ("query", "retrieval", "content")
    membership = True
    """Read beside the blind baseline: a score that text alone gives is no leak."""
    observes = "whether a target is reached through the index, by what is generated when it is asked about"

    def __init__(self, name: str, statistic: Statistic) -> None:
        self.name, self.statistic, self.chance = name, statistic, statistic.chance

    def number(
        self, run_id: str, cell: Cell, sample: Sample, parameters: dict[str, Any], *reasons: str | None
    ) -> Result:
        """The statistic of these targets, or NULL and the reason where it would mean nothing."""
        estimate, said = self.statistic.of(sample)
        result = cell.result(
            run_id,
            self.name,
            len(sample.values),
            estimate.value,
            (estimate.low, estimate.high),
            {**parameters, **said},
            [estimate.reason, *reasons],
        )
        return replace(result, reversal=estimate.reversal) if estimate.reversal else result


def sample(rows: tuple[Row, ...], sign: int = 1) -> Sample:
    """The rows that have a score, times ``sign`` (-1 where members are expected to score low)."""
    import numpy as np

    scored = [r for r in rows if r.value is not None and r.is_member is not None]
    return Sample(
        np.array([r.is_member for r in scored], dtype=bool),
        sign * np.array([r.value for r in scored], dtype=np.float64),
        [r.target_id or r.probe_id for r in scored],
    )


class TargetMetric(Membership):
    """One statistic of a membership attack's scores; the score itself is stored as ``metric = <attack's name>``."""

    def __init__(self, attack: MembershipAttack, statistic: Statistic) -> None:
        super().__init__(f"{attack.name}_{statistic.name}", statistic)
        self.attack, self.scored_by = attack.probed_as, attack
        self.on_request = attack.on_request
        self.by_target = attack.by_target

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """One score a target and arm, under the id of the target's first probe."""
        asked = self.attack
        found = [(t, arms) for arms in targets(db, run_id, asked).values() for t in arms.values()]
        values = self.scored_by.score_stored(db, run_id, found)
        return [
            score(run_id, asked, self.scored_by.name, target, value)
            for (target, _), value in zip(found, values, strict=True)
        ]

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """One number for each arm and corpus; ``n`` is the number of targets with a score."""
        results = []
        for cell in cells(db, run_id, self.scored_by.name, self.attack):
            # the score is the target's, not that of each of its queries
            own = cell._replace(rows=tuple(r for r in cell.rows if "/" not in r.probe_id))
            reasons = own.missing(), None if own.scored else self.scored_by.no_score
            parameters = self.scored_by.parameters(db, run_id, cell.arm)
            results.append(self.number(run_id, own, sample(own.rows), parameters, *reasons))
        return results
