"""Scores stored traces: fills ``scores`` and ``results``, each number with whether it may be read.

Nothing is asked of the app again: everything is computed from the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ragtrace.errors import UsageError
from ragtrace.metrics import load
from ragtrace.metrics.base import Metric, Score
from ragtrace.reading import Reader, replications, tradeoffs

if TYPE_CHECKING:
    import duckdb


def score(
    db: duckdb.DuckDBPyConnection,
    run_id: str | None = None,
    metrics: Iterable[Metric | str] | None = None,
    ready: Iterable[Score] | None = None,
) -> int:
    """Scores one run, or all that the store holds; returns the number of results.

    A run's old scores and results are replaced in one transaction.

    :param db: opened by ``ragtrace.open``. :param run_id: ``None``: every run that has probes.
    :param metrics: metrics, or patterns of their names (``"s2mia_*"``); ``None`` means all but those that are made
        on request only (variants, and what needs a model of its own).
    :param ready: what :func:`target_scores` gave for all of these runs, where that was computed elsewhere.
    :raises UsageError: ``run_id`` is not in the store, a pattern that no metric has, or the extra ``audit`` is not
        installed.
    """
    known = [run for (run,) in db.execute("SELECT DISTINCT run_id FROM probes ORDER BY run_id").fetchall()]
    if run_id is not None and run_id not in known:
        raise UsageError(f"no run {run_id!r} in this database; it has: {', '.join(known) or 'none (no probes)'}")
    wanted = [run_id] if run_id is not None else known
    chosen = _chosen(metrics)
    written = 0
    known_scores = None if ready is None else list(ready)
    for run in wanted:
        db.execute("BEGIN")
        try:
            written += _score_run(db, run, chosen, known_scores)
            db.execute("COMMIT")
        except BaseException as error:
            db.execute("ROLLBACK")
            if isinstance(error, ModuleNotFoundError):
                raise _missing(error.name) from error
            raise
    return written


def check_packages() -> None:
    """What scoring needs is there; to be asked before an audit spends its requests.

    :raises UsageError: the extra ``audit`` is not installed.
    """
    for package in ("numpy", "scipy", "sklearn"):
        if find_spec(package) is None:
            raise _missing(package)


def _missing(package: str | None) -> UsageError:
    return UsageError(
        f"scoring needs the package {package!r}, which is not installed; "
        'install it with: pip install "ragtrace-audit[audit]"'
    )


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


def target_scores(
    db: duckdb.DuckDBPyConnection, run_id: str, metrics: Iterable[Metric | str] | None = None
) -> list[Score]:
    """The scores that depend on nothing but the traces of a target's own probes and the facts of the run.

    They can be computed target by target, in any number of processes (``ragtrace.scaled``).
    """
    return [row for scorer in _scorers(_chosen(metrics)) if _by_target(scorer) for row in scorer.scores(db, run_id)]


def _by_target(scorer: Any) -> bool:
    return bool(getattr(scorer, "by_target", False))


def _scorers(metrics: list[Metric]) -> list[Any]:
    """What computes the metrics' scores, each once."""
    found: dict[int, Any] = {}
    for metric in metrics:
        shared = getattr(metric, "scored_by", metric)
        found |= {id(s): s for s in shared} if isinstance(shared, tuple) else {id(shared): metric}
    return list(found.values())


def _score_run(db: duckdb.DuckDBPyConnection, run: str, metrics: list[Metric], ready: list[Score] | None) -> int:
    for table in ("score_data", "result_data", "tradeoff_data", "replication_data"):
        db.execute(f"DELETE FROM {table} WHERE run_id = ?", [run])  # noqa: S608 (constants)
    # under the views' own names, so that no metric parses every probe's JSON again, nor looks through texts
    kept = {"probes": "run_id = ?", "entities": "run_id = ?"}
    if db.execute("SELECT 1 FROM canaries WHERE run_id = ? LIMIT 1", [run]).fetchone():
        kept["canary_hits"] = "trace_id IN (SELECT trace_id FROM probes WHERE run_id = ?)"
    for view, which in kept.items():
        db.execute(f"CREATE TEMP TABLE {view} AS SELECT * FROM {view} WHERE {which}", [run])  # noqa: S608 (constants)
    rows = {_key(row): row.value for row in ready or () if row.run_id == run}
    for scorer in _scorers(metrics):
        if ready is None or not _by_target(scorer):
            for row in scorer.scores(db, run):  # two metrics may read the same score; it is stored once
                rows.setdefault(_key(row), row.value)
    _insert(db, "score_data", [(*key, value) for key, value in rows.items()])
    found = [(metric, result) for metric in metrics for result in metric.results(db, run)]
    reader = Reader(db, run, [result for _, result in found])
    _insert(db, "result_data", [reader.row(metric, result) for metric, result in found])
    _insert(db, "replication_data", list(replications(db, run, found)))
    _insert(db, "tradeoff_data", list(tradeoffs(db, run)))
    for view in kept:
        db.execute(f"DROP TABLE temp.{view}")
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
