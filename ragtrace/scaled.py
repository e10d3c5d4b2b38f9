"""Scores a lake: the same numbers as scoring a database, with the work spread by an engine.

Three steps. The engine picks the audits' spans out of all traffic. It maps each target's spans to the scores that
depend on nothing else (BLEU, entities, canaries …): every part is a small database with the usual views, asked by the
usual metrics. What needs all of a run (thresholds, areas, intervals, verdicts) is computed here, over the audits'
spans alone, and stored in one transaction: a job that was killed has stored nothing, and run again gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ragtrace.engine import engine as opened
from ragtrace.engine.small import hold, small
from ragtrace.errors import InputError
from ragtrace.lake import Lake
from ragtrace.metrics.base import Score
from ragtrace.score import score, target_scores
from ragtrace.store import add_tables
from ragtrace.store.canary_search import search_for_planted

if TYPE_CHECKING:
    import duckdb

    from ragtrace.engine import Engine

_SCORES = pa.schema([*((name, pa.string()) for name in ("run_id", "probe_id", "arm", "attack", "metric")),
                     ("value", pa.float64())])  # fmt: skip
# Spans of others lie in the traces of an audit too, and carry no id of it: the trace says whose they are.
_AUDITED = """
SELECT s.*, t.target FROM spans s JOIN (
    SELECT trace_id, max(run_id) AS run_id, concat(max(run_id), ' ', split_part(max(probe_id), '/', 1)) AS target,
        max(probe_id) AS probe_id
    FROM spans WHERE run_id IS NOT NULL GROUP BY trace_id
) t ON s.trace_id = t.trace_id
"""
_FACTS = "SELECT * FROM audited WHERE target IS NULL OR target LIKE '% '"


def score_lake(
    url: str,
    engine: str,
    db: duckdb.DuckDBPyConnection,
    run_id: str | None = None,
    metrics: Iterable[str] | None = None,
) -> int:
    """Brings the lake's audits into ``db`` and scores them there; returns the number of results.

    :param url: of the lake. :param engine: see ``ragtrace.engine``.
    :param metrics: patterns of names, as ``ragtrace.score.score`` takes them.
    :raises InputError: the lake holds no audit. :raises UsageError: ``run_id`` is none of them, or no such metric.
    """
    wanted = None if metrics is None else tuple(metrics)
    computing = opened(engine, Lake(url))
    try:
        return _score(computing, db, run_id, wanted)
    finally:
        computing.close()


def _score(engine: Engine, db: duckdb.DuckDBPyConnection, run_id: str | None, metrics: tuple[str, ...] | None) -> int:
    engine.keep("audited", _AUDITED)
    audited = engine.sql("SELECT * FROM audited").drop_columns(["target"])
    if not audited.num_rows:
        raise InputError("the lake holds no span of an audit: nothing to score; `ragtrace audit` makes some")
    add_tables(db, [audited])
    search_for_planted(db)
    facts = engine.sql(_FACTS).drop_columns(["target"])
    engine.map("made", "SELECT * FROM audited", "target", TargetScores(facts, metrics), _SCORES)
    made = engine.sql("SELECT * FROM made").cast(_SCORES)
    return score(db, run_id, metrics, [Score(**row) for row in made.to_pylist()])


@dataclass(frozen=True)
class TargetScores:
    """What is mapped: the spans of some targets to their scores; ``facts`` are the spans that tell of the runs."""

    facts: pa.Table
    metrics: tuple[str, ...] | None

    def __call__(self, spans: pa.Table) -> pa.Table:
        """The scores of all targets whose spans these are, as rows of the view ``scores``."""
        with small() as db:
            add_tables(db, [self.facts, spans])
            search_for_planted(db)
            hold(db, "probes", "generations", "entities", "canary_hits")  # each metric reads them
            runs = db.execute("SELECT DISTINCT run_id FROM probes ORDER BY run_id").fetchall()
            found = [row for (run,) in runs for row in target_scores(db, run, self.metrics)]
        columns = ([getattr(row, name) for row in found] for name in _SCORES.names)
        return pa.table(dict(zip(_SCORES.names, columns, strict=True)), schema=_SCORES)
