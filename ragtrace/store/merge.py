"""Spool segments into the database: each span exactly once, a torn segment left where it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragtrace.errors import InputError
from ragtrace.ingest.busy import busy
from ragtrace.ingest.files import read
from ragtrace.ingest.translate import SAID, translated
from ragtrace.record.spool import FORMAT, FORMAT_KEY, SUFFIX, segment_schema, spool_of
from ragtrace.store import outgoing, requests
from ragtrace.store.annotate import annotate, beside
from ragtrace.store.canary_search import search_for_planted
from ragtrace.store.lifting import FIRST, lifted
from ragtrace.store.twins import find_twins

# Segments merged in one transaction: bounds the memory, and what a kill makes us do again. While one chunk is inserted
# the next is read, but nothing goes on beside the reading of the first and the insertion of the last, so they are not
# long. Each looks through the ids of the whole store, though: on a large one they are longer.
_CHUNK, _LONGEST = 16, 64
_ROWS = 250_000  # of the store, for each segment more
_WRITING = {"checkpoint_threshold": "1GB", "threads": 1}
_T = TypeVar("_T")

_KNOWN = "SELECT n FROM incoming SEMI JOIN span_data USING (trace_id, span_id)"
_INSERT = f"""
INSERT INTO span_data BY NAME
SELECT trace_id, span_id, parent_span_id, name, kind, start_time_ns AS start_ns, end_time_ns AS end_ns, status,
    status_message, service, scope, if(ours, 'ragtrace', coalesce(dialect, 'otel')) AS dialect,
    coalesce(own[1], framework) AS framework, own[2] AS path, own[3] AS run_id, own[4] AS probe_id, own[5] AS arm,
    coalesce(own[6], stage) AS stage, coalesce(try_cast(own[7] AS BOOLEAN), false) AS nested, own[8] AS declared,
    own[9] AS effects, request_id, try_cast(attributes AS JSON) AS attributes, try_cast(events AS JSON) AS events,
    try_cast(resource AS JSON) AS resource, {FIRST}
FROM (SELECT *, if(ours, lifted, NULL) AS own FROM incoming)
"""  # noqa: S608 - constants
_DONE = """
INSERT INTO segment_data
SELECT unnest($names::VARCHAR[]), unnest($sizes::BIGINT[]), unnest($spans::BIGINT[]), current_localtimestamp()
"""


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
    spans: int


class _Incoming(NamedTuple):
    table: pa.Table  # numbered in a column n
    segments: list[_Segment]


class _Prepared(NamedTuple):
    table: Future[pa.Table]
    entities: Future[pa.Table]
    segments: list[_Segment]


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
    with _set_for_writing(connection), busy():
        for path in paths:
            try:
                tables = read(path)
                if tables is None:
                    segments.append(path)
                    continue
                report.spans += _transaction(connection, partial(_insert_all, connection, tables))
                report.files += 1
            except InputError as error:
                report.failed.append(str(error))
            except duckdb.Error as error:
                report.failed.append(f"{path} could not be stored ({str(error).splitlines()[0]}); nothing of it is")
    if report.spans:
        search_for_planted(connection)
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
    if segments := _unknown(connection, paths, report, reasons):
        with (
            _set_for_writing(connection),
            closing(_prepared(connection, _chunks(segments, _size(connection), report, reasons))) as chunks,
        ):
            for chunk in chunks:
                report.spans += _transaction(connection, partial(_insert_chunk, connection, chunk))
                report.segments += len(chunk.segments)
    if report.spans:
        search_for_planted(connection)
    if reasons:
        message = f"left where they are, not merged: {'; '.join(reasons)}; the rest is merged"
        warnings.warn(message, SegmentWarning, stacklevel=4)
    return report


def add_tables(connection: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table]) -> int:
    """Adds translated spans (the columns of a segment and ``SAID``); all of them, or none; returns how many are new."""
    return _transaction(connection, partial(_insert_all, connection, tables))


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


def _size(connection: duckdb.DuckDBPyConnection) -> int:
    return max(_CHUNK, min(_LONGEST, _last(connection) // _ROWS))


def _chunks(
    segments: list[tuple[Path, int]], size: int, report: MergeReport, reasons: list[str]
) -> Iterator[_Incoming]:
    for start in range(0, len(segments), size):
        whole: list[_Segment] = []
        tables: list[pa.Table] = []
        for path, held in segments[start : start + size]:
            try:
                tables.append(_read(path))
            except (OSError, ValueError, pa.ArrowException) as error:
                _left_out(path, error, report, reasons)
            else:
                whole.append(_Segment(path, held, tables[-1].num_rows))
        if whole:
            yield _Incoming(_numbered(translated(pa.concat_tables(tables))), whole)


def _left_out(path: Path, error: Exception, report: MergeReport, reasons: list[str]) -> None:
    report.skipped.append(path)
    reasons.append(f"{path} ({(str(error).splitlines() or [type(error).__name__])[0]})")


@contextmanager
def _set_for_writing(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Settings for taking many spans.

    The checkpoint is left to whoever closes the database: after each transaction it would double the time. One thread
    inserts: two copy every row once more to keep the order, and take longer.
    """
    names = list(_WRITING)
    [before] = connection.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in names)).fetchall()
    _set(connection, _WRITING)
    try:
        yield
    finally:
        _set(connection, dict(zip(names, before, strict=True)))


def _set(connection: duckdb.DuckDBPyConnection, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        connection.execute(f"SET {name} = ?", [value])


def _read(path: Path) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        found = (file.schema_arrow.metadata or {}).get(FORMAT_KEY)
        if found != FORMAT:
            raise ValueError(f"segment format {found!r}, expected {FORMAT!r}")
        table = file.read(use_threads=False)
    if not table.schema.equals(expected := segment_schema()):
        table = table.cast(expected)
    table.validate(full=True)
    return table


def _numbered(table: pa.Table) -> pa.Table:
    """Each span once, with a column ``n``, and texts as a segment has them: other engines have other types for them."""
    for name, expected in _types().items():
        if (found := table[name]).type != expected:
            table = table.set_column(table.schema.get_field_index(name), name, found.cast(expected))
    numbers = pa.array(range(table.num_rows), pa.int64())
    ids = pc.binary_join_element_wise(table["trace_id"], table["span_id"], "/")
    if pc.count_distinct(ids).as_py() < table.num_rows:
        numbers = pa.table([ids, numbers], ["id", "n"]).group_by("id").aggregate([("n", "min")])["n_min"].sort()
        table = table.take(numbers)
    return table.append_column("n", numbers)


@cache
def _types() -> dict[str, pa.DataType]:
    return {column.name: column.type for column in segment_schema()} | dict.fromkeys(SAID, pa.string())


def _prepared(connection: duckdb.DuckDBPyConnection, made: Iterable[_Incoming]) -> Generator[_Prepared]:
    """What is read out of the attributes of each, and its entities: while the one before it is inserted."""
    with beside(connection) as cursor, ThreadPoolExecutor(1) as pool:

        def prepared(incoming: _Incoming) -> _Prepared:
            with_lifted = pool.submit(lifted, cursor, incoming.table)
            return _Prepared(
                pool.submit(lambda: requests.with_requests(with_lifted.result())),
                pool.submit(lambda: annotate(cursor, with_lifted.result())),
                incoming.segments,
            )

        yield from _ahead(map(prepared, made))


def _insert_chunk(connection: duckdb.DuckDBPyConnection, chunk: _Prepared) -> int:
    new = _insert_prepared(connection, [chunk])
    names, sizes, spans = zip(*((segment.path.name, *segment[1:]) for segment in chunk.segments), strict=True)
    connection.execute(_DONE, {"names": names, "sizes": sizes, "spans": spans})
    return new


def _insert_all(connection: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table]) -> int:
    made = (_Incoming(_numbered(table), []) for table in tables)
    with closing(_prepared(connection, made)) as ready:
        return _insert_prepared(connection, ready)


def _insert_prepared(connection: duckdb.DuckDBPyConnection, chunks: Iterable[_Prepared]) -> int:
    last = _last(connection)
    new, tells = 0, False
    for chunk in chunks:
        new += _insert(connection, chunk)
        tells = tells or outgoing.tells(chunk.table.result())
    if new:
        requests.settle(connection, last)
        outgoing.settle(connection, last, tells)
        find_twins(connection, last)
    return new


def _last(connection: duckdb.DuckDBPyConnection) -> int:
    [(last,)] = connection.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    return int(last)


def _insert(connection: duckdb.DuckDBPyConnection, chunk: _Prepared) -> int:
    """Inserts what is new of a chunk, and its entities; says how many spans that were."""
    table = chunk.table.result()
    connection.register("incoming", table)
    known = connection.sql(_KNOWN).to_arrow_table()["n"]
    if len(known):
        table = table.filter(pc.invert(pc.is_in(table["n"], known)))
        connection.register("incoming", table)
    if table.num_rows:
        connection.execute(_INSERT).fetchall()
        found = chunk.entities.result()
        if found.num_rows:
            connection.register("found", found.filter(pc.invert(pc.is_in(found["n"], known))) if len(known) else found)
            connection.execute("INSERT INTO entity_data BY NAME SELECT * EXCLUDE (n) FROM found").fetchall()
            connection.unregister("found")
    connection.unregister("incoming")
    return int(table.num_rows)


def _ahead(made: Iterable[_T]) -> Iterator[_T]:
    """The same, made in another thread while the one before it is inserted: DuckDB needs no interpreter."""
    each = iter(made)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, each, None)
        while (one := waiting.result()) is not None:
            waiting = pool.submit(next, each, None)
            yield one
