"""Puts spans into a lake: by the day on which they began, each file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ragtrace.errors import InputError, UsageError
from ragtrace.ingest.files import read
from ragtrace.ingest.translate import SAID, translated
from ragtrace.lake.layout import Lake, schema
from ragtrace.record import attributes as a
from ragtrace.record.spool import segment_schema
from ragtrace.store.merge import _read as read_segment

_ROWS = 100_000  # of one file
_LIFT = """
SELECT *, lifted[1] AS path, lifted[2] AS run_id, lifted[3] AS probe_id, lifted[4] AS arm,
    strftime(make_timestamp(coalesce(start_time_ns, 0) // 1000), '%Y-%m-%d') AS day
FROM (SELECT *, json_extract_string(attributes, $paths::VARCHAR[]) AS lifted FROM given)
"""
_LIFTED_PATHS = [f'$."{name}"' for name in (a.PATH, a.RUN_ID, a.PROBE_ID, a.ARM)]
_STORED = """
SELECT trace_id, span_id, parent_span_id, name, kind, start_ns AS start_time_ns, end_ns AS end_time_ns, status,
    status_message, service, scope, attributes::VARCHAR AS attributes, events::VARCHAR AS events,
    resource::VARCHAR AS resource, if(dialect = 'ragtrace', NULL, dialect) AS dialect,
    if(dialect = 'ragtrace', NULL, framework) AS framework, if(dialect = 'ragtrace', NULL, stage) AS stage
FROM span_data ORDER BY start_ns, trace_id, span_id
"""


@dataclass
class Added:
    """What one call added; ``known`` are files that the lake has already, ``failed`` says why others were left out."""

    spans: int = 0
    files: int = 0
    known: int = 0
    failed: list[str] = field(default_factory=list)


def add(lake: Lake, paths: Sequence[Path] = (), database: duckdb.DuckDBPyConnection | None = None) -> Added:
    """Adds the spans of files of any format that ``ragtrace import`` reads, and those of an open database.

    A file's name in the lake is a digest of what is in it: what is added again changes nothing.

    :raises UsageError: the lake cannot be written to.
    """
    added = Added()
    for path in paths:
        try:
            _put(lake, list(_of_file(path)), added)  # all of it is read before any of it is written
        except InputError as error:
            added.failed.append(str(error))
    if database is not None:
        _put(lake, _of_database(database), added)
    return added


def _of_file(path: Path) -> Iterator[pa.Table]:
    tables = read(path)
    if tables is not None:
        return tables
    try:
        return iter([translated(read_segment(path))])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read ({error})") from error


def _of_database(database: duckdb.DuckDBPyConnection) -> Iterator[pa.Table]:
    with database.cursor() as cursor:
        for batch in cursor.sql(_STORED).to_arrow_reader(_ROWS):
            yield pa.Table.from_batches([batch])


def _put(lake: Lake, tables: Iterable[pa.Table], added: Added) -> None:
    """Writes a day's spans whenever there are enough of them for a file, and what is left at the end."""
    waiting: dict[str, pa.Table] = {}
    names = [*segment_schema().names, *SAID]
    with duckdb.connect() as connection:
        for table in tables:
            connection.register("given", table.select(names))
            dated = connection.sql(_LIFT, params={"paths": _LIFTED_PATHS}).to_arrow_table()
            connection.unregister("given")
            for day, rows in _by_day(dated):
                held = pa.concat_tables([waiting[day], rows]) if day in waiting else rows
                while held.num_rows >= _ROWS:
                    _write(lake, day, held.slice(0, _ROWS), added)
                    held = held.slice(_ROWS)
                waiting[day] = held
    for day, rows in sorted(waiting.items()):
        if rows.num_rows:
            _write(lake, day, rows, added)


def _by_day(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    plain = table.select(schema().names).cast(schema())
    for day in pc.unique(table["day"]).to_pylist():
        yield day, plain.filter(pc.equal(table["day"], day))


def _write(lake: Lake, day: str, rows: pa.Table, added: Added) -> None:
    made = pa.BufferOutputStream()
    pq.write_table(rows, made, compression="zstd", write_page_checksum=True)
    body = made.getvalue()
    system, root = lake.opened()
    folder = f"{root}/date={day}"
    name = f"{folder}/{blake2b(body, digest_size=16).hexdigest()}.parquet"
    try:
        if system.get_file_info(name).type is pafs.FileType.File:
            added.known += 1
            return
        system.create_dir(folder, recursive=True)
        _whole(system, Path(name), body)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot write into the lake at {lake.url} ({str(error).splitlines()[0]})") from error
    added.spans += rows.num_rows
    added.files += 1


def _whole(system: pafs.FileSystem, path: Path, body: pa.Buffer) -> None:
    """Under a name that no reader takes, then moved; an object store shows an object only when all of it is there."""
    if not isinstance(system, pafs.LocalFileSystem):
        with system.open_output_stream(str(path)) as target:
            target.write(body)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
