"""Spool segments into the database: each span exactly once, a torn segment left where it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ragtrace.record import attributes as a
from ragtrace.record.spool import FORMAT, FORMAT_KEY, SUFFIX, segment_schema, spool_of
from ragtrace.store.annotate import annotate

_CHUNK = 64  # segments merged in one transaction: bounds the memory, and what a kill makes us do again
_LIFTED = (a.FRAMEWORK, a.PATH, a.RUN_ID, a.PROBE_ID, a.ARM, a.STAGE, a.NESTED, a.DECLARED, a.EFFECTS)

# Only what is new: the first of each (trace_id, span_id), and none that the database has already.
_FRESH = """
CREATE OR REPLACE TEMP TABLE fresh AS
SELECT trace_id, span_id, parent_span_id, name, kind, start_time_ns AS start_ns, end_time_ns AS end_ns, status,
    status_message, service, scope, if(ours, 'ragtrace', 'otel') AS dialect,
    lifted[1] AS framework, lifted[2] AS path, lifted[3] AS run_id, lifted[4] AS probe_id, lifted[5] AS arm,
    lifted[6] AS stage, coalesce(try_cast(lifted[7] AS BOOLEAN), false) AS nested,
    lifted[8] AS declared, lifted[9] AS effects, attributes, events, resource
FROM (
    SELECT *, CASE WHEN ours THEN json_extract_string(attributes, $paths::VARCHAR[]) END AS lifted
    FROM (
        SELECT DISTINCT ON (trace_id, span_id) * REPLACE (
            try_cast(attributes AS JSON) AS attributes, try_cast(events AS JSON) AS events,
            try_cast(resource AS JSON) AS resource
        ), scope IS NOT DISTINCT FROM $scope AS ours
        FROM incoming
    )
) i
WHERE NOT EXISTS (FROM span_data d WHERE d.trace_id = i.trace_id AND d.span_id = i.span_id)
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


def add(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> MergeReport:
    """Merges the segments at ``paths`` and leaves the files where they are; those merged before add nothing.

    Segments that cannot be read are left out and named, with the reason, in one :class:`SegmentWarning`.
    """
    report = MergeReport()
    reasons: list[str] = []
    for chunk in _chunks(connection, paths, report, reasons):
        connection.execute("BEGIN")
        try:
            report.spans += _insert(connection, chunk)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.unregister("incoming")
        report.segments += len(chunk)
    if reasons:
        message = f"left where they are, not merged: {'; '.join(reasons)}; the rest is merged"
        warnings.warn(message, SegmentWarning, stacklevel=4)
    return report


def _chunks(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], report: MergeReport, reasons: list[str]
) -> Iterator[list[_Segment]]:
    known = set(
        connection.execute(
            "SELECT name, bytes FROM segment_data SEMI JOIN (SELECT unnest($names::VARCHAR[]) AS name) USING (name)",
            {"names": [path.name for path in paths]},
        ).fetchall()
    )
    chunk: list[_Segment] = []
    for path in paths:
        try:
            size = path.stat().st_size
            if (path.name, size) in known:
                continue
            chunk.append(_Segment(path, size, _read(path)))
        except (OSError, ValueError, pa.ArrowException) as error:
            report.skipped.append(path)
            reasons.append(f"{path} ({(str(error).splitlines() or [type(error).__name__])[0]})")
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _read(path: Path) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        found = (file.schema_arrow.metadata or {}).get(FORMAT_KEY)
        if found != FORMAT:
            raise ValueError(f"segment format {found!r}, expected {FORMAT!r}")
        table = file.read().cast(segment_schema())
    table.validate(full=True)
    return table


def _insert(connection: duckdb.DuckDBPyConnection, chunk: list[_Segment]) -> int:
    connection.register("incoming", pa.concat_tables([segment.table for segment in chunk]))
    connection.execute(_FRESH, {"scope": a.SCOPE, "paths": [f'$."{name}"' for name in _LIFTED]})
    row = connection.execute("INSERT INTO span_data BY NAME FROM fresh").fetchone()
    annotate(connection)
    connection.execute("DROP TABLE fresh")
    connection.executemany(
        "INSERT INTO segment_data VALUES (?, ?, ?, current_localtimestamp())",
        [[segment.path.name, segment.size, segment.table.num_rows] for segment in chunk],
    )
    return int(row[0]) if row else 0
