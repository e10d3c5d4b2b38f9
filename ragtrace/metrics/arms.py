"""What a defense changes about membership inference: each arm's ROC AUC minus the undefended one's, same targets.

Paired, target by target (``ragtrace.stats.auc_difference``), in [-1, 1]; below 0 the attack is worse off with the
defense. Over all differences of a run the p-values are adjusted by Holm's method, since one of many would differ by
chance: ``p`` and ``p_holm`` stand in the signature, and the reason says what holds after the adjustment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ragtrace.metrics._read import cells
from ragtrace.metrics.base import Result

if TYPE_CHECKING:
    import duckdb

    from ragtrace.metrics._read import Cell
    from ragtrace.metrics.base import Score
    from ragtrace.stats import Estimate
    from ragtrace.types import Channel, Hook

UNDEFENDED = "none"
LEVEL = 0.05
SIGNS = {"bleu": 1, "perplexity": -1}
"""S²MIA's features, and whether members are expected to score high; attacks' own scores always are."""


class _Difference(NamedTuple):
    score: str
    cell: Cell
    estimate: Estimate
    n: int


class AUCChange:
    """``<score>_roc_auc_change`` for every membership score of the run and every arm but the undefended one."""

    name = "membership_roc_auc_change"
    channel: Channel = "retrieval"
    moved_by: tuple[Hook, ...] = ("query", "retrieval", "content")
    membership = True
    observes = "how much worse (or better) membership can be told with the arm's defenses than without any"

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """None of its own: it reads the attacks' scores."""
        return []

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """One difference for each score, arm and corpus; ``n`` is the number of targets with a score in both arms."""
        from ragtrace import stats

        found = [d for score in self._stored(db, run_id) for d in _differences(db, run_id, score)]
        tested = [i for i, d in enumerate(found) if d.estimate.p is not None]
        adjusted = (
            dict(zip(tested, stats.holm([found[i].estimate.p or 0.0 for i in tested]), strict=True)) if tested else {}
        )
        return [_result(run_id, d, adjusted.get(i)) for i, d in enumerate(found)]

    @staticmethod
    def _stored(db: duckdb.DuckDBPyConnection, run_id: str) -> list[str]:
        """The membership scores that the run has in more arms than the undefended one."""
        from ragtrace import attacks
        from ragtrace.attacks._membership import MembershipAttack

        known = {name for name, attack in attacks.load().items() if isinstance(attack, MembershipAttack)} | SIGNS.keys()
        rows = db.execute(
            "SELECT metric FROM scores WHERE run_id = ? GROUP BY metric HAVING count(DISTINCT arm) > 1 ORDER BY metric",
            [run_id],
        ).fetchall()
        return [metric for (metric,) in rows if metric in known]


def _differences(db: duckdb.DuckDBPyConnection, run_id: str, score: str) -> list[_Difference]:
    import numpy as np

    from ragtrace import stats

    every = list(cells(db, run_id, score))
    bare = {(c.attack, c.corpus): {r.probe_id: r for r in c.scored} for c in every if c.arm == UNDEFENDED}
    found = []
    for cell in every:
        before = bare.get((cell.attack, cell.corpus), {})
        rows = [r for r in cell.scored if r.probe_id in before and r.is_member is not None]
        if cell.arm == UNDEFENDED or not rows:
            continue
        sign = SIGNS.get(score, 1)
        estimate = stats.auc_difference(
            np.array([r.is_member for r in rows], dtype=bool),
            sign * np.array([r.value for r in rows], dtype=np.float64),
            sign * np.array([before[r.probe_id].value for r in rows], dtype=np.float64),
            clusters=[r.target_id or r.probe_id for r in rows],
        )
        found.append(_Difference(score, cell, estimate, len(rows)))
    return found


def _result(run_id: str, difference: _Difference, adjusted: float | None) -> Result:
    estimate = difference.estimate
    said = None
    if adjusted is not None:
        holds = "differs from the undefended arm" if adjusted < LEVEL else "no difference from the undefended arm shown"
        said = f"{holds} (p = {adjusted:.2g}, Holm over the run's differences)"
    return difference.cell.result(
        run_id,
        f"{difference.score}_roc_auc_change",
        difference.n,
        estimate.value,
        (estimate.low, estimate.high),
        {"reference_arm": UNDEFENDED, "interval": estimate.method, "p": estimate.p, "p_holm": adjusted},
        [estimate.reason, said],
    )


METRIC = AUCChange()
