"""Scores stored traces: fills ``scores`` and ``results``, each number with whether it may be read.

Nothing is asked of the app again: everything is computed from the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ragtrace.errors import UsageError
from ragtrace.metrics import load
from ragtrace.metrics.base import Metric, Score
from ragtrace.reading import Reader

if TYPE_CHECKING:
    import duckdb


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
    reader = Reader(db, run)
    results = [reader.row(metric, result) for metric in metrics for result in metric.results(db, run)]
    _insert(db, "result_data", results)
    return len(results)


def _insert(db: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608
