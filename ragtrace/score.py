"""Scores stored traces: fills ``scores`` and ``results``, each number with whether it may be read.

Nothing is asked of the app again: everything is computed from the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ragtrace.errors import UsageError
from ragtrace.metrics import load
from ragtrace.metrics.base import Metric, Score
from ragtrace.reading import Reader

if TYPE_CHECKING:
    import duckdb


def score(
    db: duckdb.DuckDBPyConnection, run_id: str | None = None, metrics: Iterable[Metric | str] | None = None
) -> int:
    """Scores one run, or all that the store holds; returns the number of results.

    A run's old scores and results are replaced in one transaction.

    :param metrics: metrics, or patterns of their names (``"s2mia_*"``); ``None`` means all but those that are made
        on request only (variants, and what needs a model of its own).
    :raises UsageError: ``run_id`` is not in the store, a pattern that no metric has, or the extra ``audit`` is not
        installed.
    """
    known = [run for (run,) in db.execute("SELECT DISTINCT run_id FROM probes ORDER BY run_id").fetchall()]
    if run_id is not None and run_id not in known:
        raise UsageError(f"no run {run_id!r} in this database; it has: {', '.join(known) or 'none (no probes)'}")
    wanted = [run_id] if run_id is not None else known
    chosen = _chosen(metrics)
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


def _chosen(metrics: Iterable[Metric | str] | None) -> list[Metric]:
    if metrics is None:
        return [m for m in load().values() if not getattr(m, "on_request", False)]
    chosen: dict[str, Metric] = {}
    for wanted in metrics:
        if not isinstance(wanted, str):
            chosen[wanted.name] = wanted
            continue
        found = {name: metric for name, metric in load().items() if fnmatchcase(name, wanted)}
        if not found:
            near = get_close_matches(wanted, load(), 3)
            raise UsageError(
                f"no metric is called {wanted!r}; {f'did you mean {near}?' if near else 'see ragtrace.metrics.load()'}"
            )
        chosen |= found
    return list(chosen.values())


def _score_run(db: duckdb.DuckDBPyConnection, run: str, metrics: list[Metric]) -> int:
    db.execute("DELETE FROM score_data WHERE run_id = ?", [run])
    db.execute("DELETE FROM result_data WHERE run_id = ?", [run])
    # under the view's own name, so that no metric parses every probe's JSON again
    db.execute("CREATE TEMP TABLE probes AS SELECT * FROM probes WHERE run_id = ?", [run])
    rows: dict[tuple[str, ...], float | None] = {}
    scorers: dict[int, Any] = {}
    for metric in metrics:
        shared = getattr(metric, "scored_by", metric)
        scorers |= {id(s): s for s in shared} if isinstance(shared, tuple) else {id(shared): metric}
    for scorer in scorers.values():
        for row in scorer.scores(db, run):  # two metrics may read the same score; it is stored once
            rows.setdefault(_key(row), row.value)
    _insert(db, "score_data", [(*key, value) for key, value in rows.items()])
    found = [(metric, result) for metric in metrics for result in metric.results(db, run)]
    reader = Reader(db, run, [result for _, result in found])
    _insert(db, "result_data", [reader.row(metric, result) for metric, result in found])
    db.execute("DROP TABLE temp.probes")
    return len(found)


def _key(row: Score) -> tuple[str, ...]:
    # dataclasses.astuple copies every value: 4 s for 100,000 rows
    return row.run_id, row.probe_id, row.arm, row.attack, row.metric


def _insert(db: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        return
    names = [name for name, *_ in db.execute(f"DESCRIBE {table}").fetchall()]
    # by Arrow: executemany takes a minute for 100,000 rows
    given = pa.table(dict(zip(names, (pa.array(column) for column in zip(*rows, strict=True)), strict=True)))
    db.register("given", given)
    db.execute(f"INSERT INTO {table} SELECT * FROM given")  # noqa: S608 (a constant)
    db.unregister("given")
