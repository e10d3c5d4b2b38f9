"""Membership metrics of S²MIA: how near the generated text comes to the target, how certain the model was, and both.

Names are regular::

    {bleu,cosine,euclidean,inner_product}[_remaining]_roc_auc, perplexity_roc_auc        one feature, all targets
    s2mia_{roc_auc,pr_auc}                                                               form T with BLEU
    s2mia_t[SIMILARITY][_remaining][_without_perplexity]_STATISTIC                       form T, every variant
    s2mia_m[_MODEL][SIMILARITY][_remaining][_without_perplexity]_{roc_auc,pr_auc}        form M

SIMILARITY is nothing for BLEU, else ``_cosine``, ``_euclidean`` or ``_inner_product`` (Table 2). ``_remaining``
compares with what was not sent; Equation 4 takes the whole target. STATISTIC is ``roc_auc``, ``pr_auc``, or ``tpr``,
``fpr``, ``accuracy``, ``balanced_accuracy`` at the thresholds of the greedy search. MODEL is nothing for logistic
regression, else ``_boosting``, ``_mlp`` or, where it is installed, ``_xgboost``. Only ``bleu_roc_auc``,
``perplexity_roc_auc``, ``s2mia_*_auc`` and ``s2mia_m_*_auc`` are computed unless others are named.

T and M are fitted on a reference half and measured on the other (``_s2mia_rules``). Areas are in [0, 1]; guessing has
½ (ROC) or the share of members (PR). Channel and intervals: see ``_membership``.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, get_args

from ragtrace.metrics._membership import Membership, sample
from ragtrace.metrics._model import MODELS
from ragtrace.metrics._read import cells
from ragtrace.metrics._s2mia_rules import CURVES, POINT, ModelRule, ThresholdRule
from ragtrace.metrics._similar import ATTACK, PERPLEXITY, Feature, Nearness, Reference, Similarity

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from ragtrace.metrics.base import Metric, Result, Score


class FeatureAUC(Membership):
    """ROC AUC of one feature over all targets."""

    observes = "whether a target is reached through the index, by how the text generated from it resembles it"

    def __init__(self, feature: Feature, on_request: bool = False) -> None:
        super().__init__(f"{feature.name}_roc_auc", CURVES[0])
        self.feature, self.on_request = feature, on_request
        self.scored_by = (feature,)

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """The feature of every target, in its own unit."""
        return self.feature.scores(db, run_id)

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """One area for each arm and corpus; ``n`` is the number of targets with a score."""
        parameters = {"reference": self.feature.reference} if isinstance(self.feature, Nearness) else {}
        return [
            self.number(
                run_id,
                cell,
                sample(cell.rows, self.feature.sign),
                dict(parameters),
                cell.missing(),
                self.feature.needs,
            )
            for cell in cells(db, run_id, self.feature.name, ATTACK)
        ]


def _metrics() -> Iterator[Metric]:
    yield FeatureAUC(PERPLEXITY)
    for similarity, reference in product(get_args(Similarity), get_args(Reference)):
        near = Nearness(similarity, reference)
        usual = near.name == "bleu"
        yield FeatureAUC(near, on_request=not usual)
        stem = ("" if similarity == "bleu" else f"_{similarity}") + ("" if reference == "full" else "_remaining")
        for perplexity in (True, False):
            variant = stem if perplexity else f"{stem}_without_perplexity"
            for statistic in (*CURVES, *POINT):
                default = usual and perplexity and statistic in CURVES
                name = f"s2mia{'' if default else f'_t{variant}'}_{statistic.name}"
                yield ThresholdRule(name, statistic, near, perplexity, on_request=not default)
            for model, statistic in product(MODELS, CURVES):
                name = f"s2mia_m{'' if model == 'logistic' else f'_{model}'}{variant}_{statistic.name}"
                asked = not (usual and perplexity and model == "logistic")
                yield ModelRule(name, statistic, near, model, perplexity=perplexity, on_request=asked)


METRIC = tuple(_metrics())
