"""Spool segments into the database: each span exactly once, a torn segment left where it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ragtrace.record.attributes import SCOPE
from ragtrace.record.spool import FORMAT, FORMAT_KEY, SUFFIX, spool_of
from ragtrace.store.annotate import annotate

_CHUNK = 64  # segments merged in one transaction: bounds the memory, and what a kill makes us do again


class SegmentWarning(UserWarning):
    """A segment could not be merged."""


@dataclass
class MergeReport:
    """What one merge did."""

    spans: int = 0
    segments: int = 0
    skipped: list[str] = field(default_factory=list)


def merge(connection: duckdb.DuckDBPyConnection, database: Path) -> MergeReport:
    """Merges every whole segment of the database's spool, and removes what is merged.

    Removal comes after the commit; a segment found again after a crash in between is known by its name.
    """
    paths = sorted(spool_of(database).glob(f"*{SUFFIX}"))
    report = add(connection, paths)
    left = set(report.skipped)
    _remove(path for path in paths if path.name not in left)
    return report


def add(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> MergeReport:
    """Merges the segments at ``paths`` and leaves the files where they are; those merged before add nothing."""
    report = MergeReport()
    if not paths:
        return report
    known = {name for (name,) in connection.execute("SELECT name FROM segment_data").fetchall()}
    for chunk in _chunks(paths, known, report):
        connection.execute("BEGIN")
        try:
            report.spans += _insert(connection, chunk)
            annotate(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        report.segments += len(chunk)
    return report


def _chunks(paths: Sequence[Path], known: set[str], report: MergeReport) -> Iterator[list[tuple[Path, pa.Table]]]:
    chunk: list[tuple[Path, pa.Table]] = []
    for path in paths:
        if path.name in known:
            continue
        try:
            table = pq.read_table(path)
            found = (table.schema.metadata or {}).get(FORMAT_KEY)
            if found != FORMAT:
                raise ValueError(f"segment format {found!r}, expected {FORMAT!r}")
        except FileNotFoundError:  # another process has just merged it
            continue
        except (OSError, ValueError, pa.ArrowException) as error:
            report.skipped.append(path.name)
            reason = (str(error).splitlines() or ["?"])[0]
            warnings.warn(f"segment left where it is, not merged: {path} ({reason})", SegmentWarning, stacklevel=5)
            continue
        chunk.append((path, table))
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _insert(connection: duckdb.DuckDBPyConnection, chunk: list[tuple[Path, pa.Table]]) -> int:
    incoming = pa.concat_tables([table for _, table in chunk])
    connection.register("incoming", incoming)
    try:
        # A span that came twice came with the same start: only that stretch of the table has to be looked at.
        row = connection.execute(
            """
            INSERT INTO span_data
            SELECT trace_id, span_id, parent_span_id, name, kind, start_time_ns, end_time_ns, status, status_message,
                service, scope, CASE scope WHEN $scope THEN 'ragtrace' ELSE 'otel' END, attributes->>'ragtrace.stage',
                attributes, events, resource
            FROM (SELECT DISTINCT ON (trace_id, span_id) * REPLACE (attributes::JSON AS attributes) FROM incoming) i
            WHERE NOT EXISTS (
                SELECT 1 FROM span_data d WHERE d.trace_id = i.trace_id AND d.span_id = i.span_id
                AND d.start_ns BETWEEN (SELECT min(start_time_ns) FROM incoming) AND (SELECT max(start_time_ns) FROM incoming)
            )
            """,
            {"scope": SCOPE},
        ).fetchone()
    finally:
        connection.unregister("incoming")
    rows: list[list[Any]] = [[path.name, table.num_rows] for path, table in chunk]
    connection.executemany("INSERT INTO segment_data VALUES (?, ?, current_localtimestamp())", rows)
    return int(row[0]) if row else 0


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
