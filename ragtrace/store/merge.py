"""Spool segments into the database: each span exactly once, a torn segment left where it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ragtrace.errors import InputError
from ragtrace.ingest.files import read
from ragtrace.ingest.translate import translated
from ragtrace.record import attributes as a
from ragtrace.record.spool import FORMAT, FORMAT_KEY, SUFFIX, segment_schema, spool_of
from ragtrace.store.annotate import annotate
from ragtrace.store.twins import find_twins

_CHUNK = 32  # segments merged in one transaction: bounds the memory, and what a kill makes us do again
_READERS = 2
_WAL = "1GB"
_T = TypeVar("_T")
_LIFTED = (a.FRAMEWORK, a.PATH, a.RUN_ID, a.PROBE_ID, a.ARM, a.STAGE, a.NESTED, a.DECLARED, a.EFFECTS)

# The first of each (trace_id, span_id), where the database has none of it.
_NEW = """
SELECT min(k.n) AS n FROM keys k ANTI JOIN span_data d USING (trace_id, span_id) GROUP BY trace_id, span_id
"""
_INSERT = """
INSERT INTO span_data BY NAME
SELECT trace_id, span_id, parent_span_id, name, kind, start_time_ns AS start_ns, end_time_ns AS end_ns, status,
    status_message, service, scope, if(ours, 'ragtrace', coalesce(dialect, 'otel')) AS dialect,
    coalesce(lifted[1], framework) AS framework, lifted[2] AS path, lifted[3] AS run_id, lifted[4] AS probe_id,
    lifted[5] AS arm, coalesce(lifted[6], stage) AS stage, coalesce(try_cast(lifted[7] AS BOOLEAN), false) AS nested,
    lifted[8] AS declared, lifted[9] AS effects, attributes, events, resource
FROM (
    SELECT *, CASE WHEN ours THEN json_extract_string(attributes, $paths::VARCHAR[]) END AS lifted
    FROM (
        SELECT * REPLACE (
            try_cast(attributes AS JSON) AS attributes, try_cast(events AS JSON) AS events,
            try_cast(resource AS JSON) AS resource
        ), scope IS NOT DISTINCT FROM $scope AS ours
        FROM incoming
    )
)
"""
_FRESH = "CREATE OR REPLACE TEMP VIEW fresh AS SELECT * FROM span_data WHERE rowid > "


class SegmentWarning(UserWarning):
    """Segments could not be merged."""


@dataclass
class MergeReport:
    """What one merge did."""

    spans: int = 0
    segments: int = 0
    skipped: list[Path] = field(default_factory=list)


class _Segment(NamedTuple):
    path: Path
    size: int
    table: pa.Table


def merge(connection: duckdb.DuckDBPyConnection, database: Path) -> MergeReport:
    """Merges every whole segment of the database's spool, and removes what is merged.

    Removal comes after the commit; a segment found again after a crash in between is known by its name and size.
    """
    paths = sorted(spool_of(database).glob(f"*{SUFFIX}"))
    report = add(connection, paths)
    for path in set(paths).difference(report.skipped):
        with suppress(OSError):
            path.unlink()
    return report


@dataclass
class ImportReport(MergeReport):
    """What one import did; ``failed`` says of each file that was left out why it was."""

    files: int = 0
    failed: list[str] = field(default_factory=list)


def import_files(connection: duckdb.DuckDBPyConnection, paths: Iterable[Path]) -> ImportReport:
    """Brings in the files at ``paths``, whatever wrote them.

    Each is stored whole or not at all, none keeps another out, and a span that is here already adds nothing.
    """
    report = ImportReport()
    segments: list[Path] = []
    with _one_checkpoint(connection):
        for path in paths:
            try:
                tables = read(path)
                if tables is None:
                    segments.append(path)
                    continue
                report.spans += _transaction(connection, partial(_insert_all, connection, _ahead(tables)))
                report.files += 1
            except InputError as error:
                report.failed.append(str(error))
            except duckdb.Error as error:
                report.failed.append(f"{path} could not be stored ({str(error).splitlines()[0]}); nothing of it is")
    merged = add(connection, segments)
    report.spans += merged.spans
    report.segments, report.skipped = merged.segments, merged.skipped
    return report


def add(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> MergeReport:
    """Merges the segments at ``paths`` and leaves the files where they are; those merged before add nothing.

    Segments that cannot be read are left out and named, with the reason, in one :class:`SegmentWarning`.
    """
    report = MergeReport()
    reasons: list[str] = []
    with _one_checkpoint(connection):
        for chunk in _ahead(_chunks(_unknown(connection, paths, report, reasons), report, reasons)):
            report.spans += _transaction(connection, partial(_insert, connection, chunk))
            report.segments += len(chunk)
    if reasons:
        message = f"left where they are, not merged: {'; '.join(reasons)}; the rest is merged"
        warnings.warn(message, SegmentWarning, stacklevel=4)
    return report


def _transaction(connection: duckdb.DuckDBPyConnection, work: Callable[[], int]) -> int:
    connection.execute("BEGIN")
    try:
        done = work()
        connection.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise
    return done


def _unknown(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], report: MergeReport, reasons: list[str]
) -> list[tuple[Path, int]]:
    """The segments that were not merged before, with their sizes."""
    known = set(
        connection.execute(
            "SELECT name, bytes FROM segment_data SEMI JOIN (SELECT unnest($names::VARCHAR[]) AS name) USING (name)",
            {"names": [path.name for path in paths]},
        ).fetchall()
    )
    found = []
    for path in paths:
        try:
            found.append((path, path.stat().st_size))
        except OSError as error:
            _left_out(path, error, report, reasons)
    return [(path, size) for path, size in found if (path.name, size) not in known]


def _chunks(segments: list[tuple[Path, int]], report: MergeReport, reasons: list[str]) -> Iterator[list[_Segment]]:
    with ThreadPoolExecutor(_READERS) as pool:
        for start in range(0, len(segments), _CHUNK):
            some = segments[start : start + _CHUNK]
            chunk: list[_Segment] = []
            for (path, size), reading in zip(some, [pool.submit(_read, path) for path, _ in some], strict=True):
                try:
                    chunk.append(_Segment(path, size, reading.result()))
                except (OSError, ValueError, pa.ArrowException) as error:
                    _left_out(path, error, report, reasons)
            if chunk:
                yield chunk


def _left_out(path: Path, error: Exception, report: MergeReport, reasons: list[str]) -> None:
    report.skipped.append(path)
    reasons.append(f"{path} ({(str(error).splitlines() or [type(error).__name__])[0]})")


@contextmanager
def _one_checkpoint(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Leaves the checkpoint to whoever closes the database: after each transaction it would double the time."""
    [(before,)] = connection.execute("SELECT current_setting('checkpoint_threshold')").fetchall()
    connection.execute(f"SET checkpoint_threshold = '{_WAL}'")
    try:
        yield
    finally:
        connection.execute(f"SET checkpoint_threshold = '{before}'")


def _read(path: Path) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        found = (file.schema_arrow.metadata or {}).get(FORMAT_KEY)
        if found != FORMAT:
            raise ValueError(f"segment format {found!r}, expected {FORMAT!r}")
        table = file.read(use_threads=False).cast(segment_schema())
    table.validate(full=True)
    return table


def _insert(connection: duckdb.DuckDBPyConnection, chunk: list[_Segment]) -> int:
    new = _insert_all(connection, [translated(pa.concat_tables([segment.table for segment in chunk]))])
    connection.executemany(
        "INSERT INTO segment_data VALUES (?, ?, ?, current_localtimestamp())",
        [[segment.path.name, segment.size, segment.table.num_rows] for segment in chunk],
    )
    return new


def _insert_all(connection: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table]) -> int:
    """Inserts what is new in ``tables``, which is in the view ``fresh`` while what follows from it is computed."""
    [(last,)] = connection.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    with ThreadPoolExecutor(1) as pool:
        count = sum(_insert_spans(connection, table, pool) for table in tables)
    if count:
        connection.execute(_FRESH + str(int(last)))
        find_twins(connection)
        connection.execute("DROP VIEW fresh")
    return count


def _insert_spans(connection: duckdb.DuckDBPyConnection, table: pa.Table, pool: Executor) -> int:
    keys = table.select(["trace_id", "span_id"]).append_column("n", pa.array(range(table.num_rows)))
    connection.register("keys", keys)
    new = connection.sql(_NEW).to_arrow_table()["n"]
    connection.unregister("keys")
    if len(new) < table.num_rows:
        table = table.take(new.combine_chunks().sort())
    if table.num_rows:
        connection.register("incoming", table)
        store_entities = annotate(connection, pool)
        connection.execute(_INSERT, {"scope": a.SCOPE, "paths": [f'$."{name}"' for name in _LIFTED]}).fetchall()
        connection.unregister("incoming")
        store_entities()
    return int(table.num_rows)


def _ahead(made: Iterable[_T]) -> Iterator[_T]:
    """The same, each made in another thread while the one before it is inserted: DuckDB needs no interpreter."""
    each = iter(made)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, each, None)
        while (one := waiting.result()) is not None:
            waiting = pool.submit(next, each, None)
            yield one
