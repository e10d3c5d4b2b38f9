"""Scores stored traces: fills ``scores`` and ``results``, each number with whether it may be read.

Nothing is asked of the app again: everything is computed from the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import ragtrace
from ragtrace.errors import UsageError
from ragtrace.metrics import load
from ragtrace.metrics.base import Metric, Result, Score
from ragtrace.store.database import SCHEMA_VERSION

if TYPE_CHECKING:
    import duckdb

BASELINE = "none"


def score(db: duckdb.DuckDBPyConnection, run_id: str | None = None, metrics: Iterable[Metric] | None = None) -> int:
    """Scores one run, or all that the store holds; returns the number of results.

    A run's old scores and results are replaced in one transaction.

    :raises UsageError: ``run_id`` is not in the store, or the extra ``audit`` is not installed.
    """
    known = [run for (run,) in db.execute("SELECT DISTINCT run_id FROM probes ORDER BY run_id").fetchall()]
    if run_id is not None and run_id not in known:
        raise UsageError(f"no run {run_id!r} in this database; it has: {', '.join(known) or 'none (no probes)'}")
    wanted = [run_id] if run_id is not None else known
    chosen = list(metrics) if metrics is not None else list(load().values())
    written = 0
    for run in wanted:
        db.execute("BEGIN")
        try:
            written += _score_run(db, run, chosen)
            db.execute("COMMIT")
        except BaseException as error:
            db.execute("ROLLBACK")
            if isinstance(error, ModuleNotFoundError):
                raise UsageError(
                    f"scoring needs the package {error.name!r}, which is not installed; "
                    'install it with: pip install "ragtrace-audit[audit]"'
                ) from error
            raise
    return written


def _score_run(db: duckdb.DuckDBPyConnection, run: str, metrics: list[Metric]) -> int:
    db.execute("DELETE FROM score_data WHERE run_id = ?", [run])
    db.execute("DELETE FROM result_data WHERE run_id = ?", [run])
    seen: set[tuple[Any, ...]] = set()
    rows: list[Score] = []
    for metric in metrics:
        for row in metric.scores(db, run):  # two metrics may read the same score; it is stored once
            key = astuple(row)[:-1]
            if key not in seen:
                seen.add(key)
                rows.append(row)
    _insert(db, "score_data", [astuple(row) for row in rows])
    reading = _Reading(db, run)
    results = [reading.row(metric, result) for metric in metrics for result in metric.results(db, run)]
    _insert(db, "result_data", results)
    return len(results)


def _insert(db: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608


class _Reading:
    """Whether a number may be read as the defense's work: its active hooks against what may move the metric."""

    def __init__(self, db: duckdb.DuckDBPyConnection, run: str) -> None:
        row = db.execute(
            "SELECT attributes->>'ragtrace.run' AS run FROM own_spans WHERE run_id = ? AND run IS NOT NULL",
            [run],
        ).fetchone()
        self.manifest: dict[str, Any] = json.loads(row[0]) if row else {}
        # of this run and arm, not the verdict of the whole store: a bypass elsewhere undoes nothing that was done here
        self.acts = db.execute(
            "SELECT DISTINCT arm, defense, hook FROM effects WHERE run_id = ? AND status = 'changed' ORDER BY ALL",
            [run],
        ).fetchall()
        self.changed = {
            arm: (changed, n)
            for arm, changed, n in db.execute(
                """
                SELECT d.arm, count(*) FILTER (d.response_hash <> b.response_hash), count(*)
                FROM generations d JOIN generations b USING (run_id, probe_id)
                WHERE run_id = $run AND b.arm = $baseline AND d.arm <> $baseline AND NOT d.nested AND NOT b.nested
                GROUP BY d.arm
                """,
                {"run": run, "baseline": BASELINE},
            ).fetchall()
        }
        self.models = [m for (m,) in db.execute(
            "SELECT DISTINCT model FROM generations WHERE run_id = ? AND model IS NOT NULL ORDER BY model", [run]
        ).fetchall()]  # fmt: skip

    def row(self, metric: Metric, result: Result) -> tuple[Any, ...]:
        defenses = self.manifest.get("arms", {}).get(result.arm, [] if result.arm == BASELINE else [result.arm])
        readable, reason = self._judge(metric, result, defenses)
        signature = "|".join(
            [
                f"ragtrace:{ragtrace.__version__}",
                f"schema:{SCHEMA_VERSION}",
                f"metric:{result.metric}",
                *(f"{name}:{value}" for name, value in result.parameters.items()),
                f"seed:{result.seed}",
                f"n:{result.n}",
                f"model:{','.join(self.models) or 'unknown'}",
            ]
        )
        return (
            result.run_id, result.arm, "+".join(defenses) or None, result.attack, result.corpus, result.metric,
            metric.channel, result.value, result.ci_low, result.ci_high, result.n, readable, reason, signature,
        )  # fmt: skip

    def _judge(self, metric: Metric, result: Result, defenses: list[str]) -> tuple[str, str]:
        said = f"; {result.reason}" if result.reason else ""
        if result.value is None:
            return "no data", result.reason or "nothing to compute it from"
        if not defenses:
            return "interpretable", f"the undefended baseline{said}"
        if shared := self._entangled(metric, result.arm):
            return "entangled", f"the scorer's lexicon holds what this defense writes ({', '.join(shared[:3])}…){said}"
        hooks = [hook for arm, defense, hook in self.acts if arm == result.arm and defense in defenses]
        overlap = [hook for hook in hooks if hook in metric.moved_by]
        if overlap:
            acts = f"acts at {', '.join(overlap)}, which may move a metric of the {metric.channel} channel"
            return "interpretable", f"{acts}{said}"
        where = f"acts only at {', '.join(hooks)}" if hooks else "was not seen to act at any hook"
        changed, n = self.changed.get(result.arm, (0, 0))
        if changed and hooks:
            return "indirect", f"{where}; the answer differs from the undefended one in {changed} of {n} probes{said}"
        return "nuisance", f"{where}, not where this metric may be moved ({', '.join(metric.moved_by)}){said}"

    def _entangled(self, metric: Metric, arm: str) -> list[str]:
        if not getattr(metric, "uses_lexicon", False):
            return []
        from ragtrace.ner import vocabulary

        written = {word.casefold() for word in self.manifest.get("constants", {}).get(arm, [])}
        return sorted(written & vocabulary())
