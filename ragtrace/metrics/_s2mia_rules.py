"""S²MIA's two forms over stored features: fitted on a reference half of the targets, measured on the other half.

T is the rule with two thresholds (``_threshold``), M a classifier (``_model``). Both halves are the same in every arm
and for every form; a document that is a target in several seeds is in one of them. Where the model gave no perplexity
for some answer the similarity decides alone, and ``reason`` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.metrics._membership import SPLIT_SEED, Membership, Sample, Statistic, area
from ragtrace.metrics._read import cells
from ragtrace.metrics._similar import ATTACK, PERPLEXITY, Nearness

if TYPE_CHECKING:
    import duckdb

    from ragtrace.metrics._membership import Numbers
    from ragtrace.metrics._model import Model
    from ragtrace.metrics._read import Cell
    from ragtrace.metrics._threshold import Rule
    from ragtrace.metrics.base import Result, Score
    from ragtrace.stats import OperatingPoint
    from ragtrace.stats.results import Bools, Floats

NAMES = {
    "bleu": "BLEU",
    "cosine": "cosine similarity",
    "euclidean": "Euclidean distance",
    "inner_product": "inner product",
}


def point(sample: Sample) -> OperatingPoint:
    """TPR and so on of a rule that accepts what has 1 and refuses what has 0."""
    from ragtrace import stats

    once = sample.once()
    return stats.operating_point(once.labels, once.values, 0.5)


def _at_point(name: str) -> Statistic:
    def of(sample: Sample) -> Numbers:
        return getattr(point(sample), name), {}

    return Statistic(name, of)


CURVES = (Statistic("roc_auc", area, 0.5), Statistic("pr_auc", lambda sample: area(sample, "pr")))
POINT = tuple(_at_point(name) for name in ("tpr", "fpr", "accuracy", "balanced_accuracy"))
"""Of T at the thresholds of the greedy search."""


class Halves(NamedTuple):
    """An arm's targets; rows without a similarity are in neither half."""

    labels: Bools
    sem: Floats
    gen: Floats | None
    documents: list[str]
    fit: Bools
    rest: Bools

    def features(self) -> Floats:
        """(n, 1 or 2) as the classifiers read them: perplexity spans orders of magnitude, its logarithm does not."""
        import numpy as np

        return np.column_stack([self.sem] if self.gen is None else [self.sem, np.log(self.gen)])

    def sample(self, values: Floats) -> Sample:
        """``values`` (m,) of the evaluation half, with its labels."""
        kept = [d for d, keep in zip(self.documents, self.rest.tolist(), strict=True) if keep]
        return Sample(self.labels[self.rest], values, kept)


class Fitted(Membership):
    """What T and M share: which features they read, the halves, and why there may be no number."""

    observes = "whether a target is reached through the index, by how the text generated from it resembles it"

    def __init__(
        self, name: str, statistic: Statistic, nearness: Nearness, perplexity: bool = True, on_request: bool = False
    ) -> None:
        super().__init__(name, statistic)
        self.nearness, self.perplexity, self.on_request = nearness, perplexity, on_request
        self.scored_by = (nearness, PERPLEXITY) if perplexity else (nearness,)

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """The features of every target."""
        return [score for feature in self.scored_by for score in feature.scores(db, run_id)]

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """One number for each arm and corpus; ``n`` is the number of targets in the evaluation half."""
        similar = list(cells(db, run_id, self.nearness.name, ATTACK))
        uncertain = list(cells(db, run_id, PERPLEXITY.name, ATTACK)) if self.perplexity else [None] * len(similar)
        return [self._result(run_id, *pair) for pair in zip(similar, uncertain, strict=True)]

    def _result(self, run_id: str, cell: Cell, perplexities: Cell | None) -> Result:
        halves, fallback = self._halves(cell, perplexities)
        parameters: dict[str, Any] = {
            "reference": self.nearness.reference,
            "features": [self.nearness.similarity] + (["perplexity"] if halves.gen is not None else []),
            "n_reference": int(halves.fit.sum()),
            "split_seed": SPLIT_SEED,
        }
        told = (fallback, cell.missing(), self.nearness.needs)
        if min((halves.labels & halves.fit).sum(), (~halves.labels & halves.fit).sum()) < 2:
            why = "no data: the reference half needs scores of at least 2 members and 2 non-members"
            return cell.result(run_id, self.name, 0, parameters=parameters, reasons=[why, *told])
        values, said = self.fitted(halves)
        return self.number(run_id, cell, halves.sample(values), {**parameters, **said}, *told)

    def _halves(self, cell: Cell, perplexities: Cell | None) -> tuple[Halves, str | None]:
        import numpy as np

        from ragtrace.metrics import _threshold as threshold

        labels = np.array([bool(r.is_member) for r in cell.rows], dtype=bool)
        documents = [r.target_id or r.probe_id for r in cell.rows]
        sem = self.nearness.sign * np.array([r.value for r in cell.rows], dtype=np.float64)  # None becomes NaN
        usable = ~np.isnan(sem) & np.array([r.is_member is not None for r in cell.rows], dtype=bool)
        gen, fallback = None, None
        if perplexities is not None:
            gen = np.array([r.value for r in perplexities.rows], dtype=np.float64)
            if unknown := int((~(gen[usable] > 0)).sum()):
                gen = None
                alone = NAMES[self.nearness.similarity]
                fallback = f"{alone} only: {unknown} of {int(usable.sum())} answers have no perplexity"
        # split first, so that all arms are fitted and measured on the same targets
        fit, rest = (half & usable for half in threshold.halves(labels, SPLIT_SEED, documents))
        return Halves(labels, sem, gen, documents, fit, rest), fallback

    def fitted(self, halves: Halves) -> tuple[Floats, dict[str, Any]]:
        """(scores of the evaluation half, what to say of the fit); the reference half has both classes."""
        raise NotImplementedError


class ThresholdRule(Fitted):
    """S²MIA-T: the staircase of the rule with two thresholds, or its operating point."""

    def fitted(self, halves: Halves) -> tuple[Floats, dict[str, Any]]:
        """The staircase score; for a statistic of the operating point, 1 for what the rule accepts and 0."""
        import numpy as np

        from ragtrace.metrics import _threshold as threshold

        gen = np.zeros(len(halves.sem)) if halves.gen is None else halves.gen
        labels, sem = halves.labels, halves.sem
        fit, rest = halves.fit, halves.rest
        rule = threshold.greedy(labels[fit], sem[fit], gen[fit])
        accepted = rule.accepts(sem[rest], gen[rest]).astype(np.float64)
        said = self._said(rule, halves, point(halves.sample(accepted)))
        if self.statistic in POINT:
            return accepted, said
        rules = threshold.envelope(labels[fit], sem[fit], gen[fit])
        return threshold.staircase(rules, sem[rest], gen[rest]), said

    def _said(self, rule: Rule, halves: Halves, at: OperatingPoint) -> dict[str, Any]:
        if at.tpr.value is None:
            return {}
        return {
            "theta_sem": self.nearness.sign * rule.sem,
            "theta_gen": None if halves.gen is None else rule.gen,
            "tpr": at.tpr.value,
            "fpr": at.fpr.value,
            "accuracy": at.accuracy.value,
        }


class ModelRule(Fitted):
    """S²MIA-M: a classifier's score."""

    def __init__(self, name: str, statistic: Statistic, nearness: Nearness, model: Model, **options: bool) -> None:
        super().__init__(name, statistic, nearness, **options)
        self.model: Model = model

    def fitted(self, halves: Halves) -> tuple[Floats, dict[str, Any]]:
        """What the classifier says of the evaluation half."""
        import numpy as np

        from ragtrace.metrics._model import SEED, learned

        said = {"model": self.model, "model_seed": SEED}
        features = halves.features()
        if not halves.rest.any():
            return np.zeros(0), said
        return learned(self.model, halves.labels[halves.fit], features[halves.fit], features[halves.rest]), said
