"""One SQL question, answered read-only and printed."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ragtrace.errors import UsageError
from ragtrace.record.spool import SUFFIX, spool_of
from ragtrace.report.terminal import harmless, table
from ragtrace.store import MEMORY, existing, open_readonly
from ragtrace.store import open as open_store
from ragtrace.store.limits import memory_limit, time_limit

if TYPE_CHECKING:
    from rich.console import Console

_ASKING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_STRINGS = 2**30  # bytes of address space for what DuckDB does not count
_LARGEST = 2**30  # bytes of an answer
_ROWS = 2_048
_MOMENT = 5.0  # seconds for what is said beside an empty answer
_NARROWEST = 10  # characters a column needs to be read; with less, each row is shown as a table of its own


def ask(
    database: Path,
    query: str,
    format: str,
    out: Path | None,
    console: Console,
    timeout: float = 60.0,
    stuck: Callable[[], None] | None = None,
    values: Mapping[str, str | int | float | None] | None = None,
    memory: float = MEMORY,
) -> str | None:
    """Merges what waits in the spool, then runs ``query`` on a read-only connection, for ``timeout`` seconds at most.

    Returns why the answer is empty, where it is and that can be told.

    :param stuck: called where the query can then not be interrupted. :param values: of its parameters (``$name``).
    :param memory: GB for DuckDB; what needs more goes to temporary files.
    :raises UsageError: not one question, wrong SQL (with DuckDB's hint), one that takes too long or too much memory, or
        an answer that ``format`` cannot hold.
    :raises StoreError: no database, or none that can be read.
    """
    check_format(format, out)
    path = existing(database)
    if not path.exists() or any(spool_of(path).glob(f"*{SUFFIX}")):
        open_store(path).close()
    with open_readonly(path, memory=memory) as connection:
        found = answer(connection, query, timeout, stuck, values or {}, memory=memory)
        why = None if found.num_rows else _nothing(connection, query)
    show(found, format, out, console)
    return why


def _nothing(connection: duckdb.DuckDBPyConnection, query: str) -> str | None:
    if _empty(connection, "spans"):
        return (
            "no span is here yet; expected an app that calls ragtrace.setup with this database, and has ended or "
            "waited for its next batch (`ragtrace doctor` says what arrives)"
        )
    if "verdicts" in query.casefold() and _empty(connection, "verdicts"):
        return (
            "no defense is known here; name yours with ragtrace.observe, ragtrace.defend or ragtrace.declare, or see "
            "what the source holds with `ragtrace inventory`"
        )
    return None


def _empty(connection: duckdb.DuckDBPyConnection, view: str) -> bool:
    try:
        question = f"SELECT 1 FROM {view} LIMIT 1"  # noqa: S608 (constants)
        return not answer(connection, question, _MOMENT, None, {}).num_rows
    except UsageError:  # a large store: nothing is said rather than waited for
        return False


def check_format(format: str, out: Path | None) -> None:
    """:raises UsageError: what cannot be printed needs a file."""
    if format == "parquet" and out is None:
        raise UsageError("--format parquet is binary; say where it goes with --out FILE")


def show(found: pa.Table, format: str, out: Path | None, console: Console) -> None:
    """Prints an answer, or writes it to ``out``.

    :raises UsageError: ``format`` cannot hold it, or it cannot be written.
    """
    check_format(format, out)
    if format != "table" or out is not None:
        _write(found, format, out)
        return
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    if len(found.column_names) * _NARROWEST <= console.width:
        console.print(table(found.column_names, rows))
        return
    for number, row in enumerate(rows, 1):
        console.print(table(("column", "value"), zip(found.column_names, row, strict=True), f"row {number}"))


def answer(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    timeout: float,
    stuck: Callable[[], None] | None,
    values: Mapping[str, Any],
    rows: int | None = None,
    memory: float = MEMORY,
) -> pa.Table:
    """What one question is answered, within its limits; with ``rows`` no more than those are read.

    :raises UsageError: see :func:`ask`.
    """
    with time_limit(connection, timeout, stuck) as clock:
        try:
            with memory_limit(int(memory * 1e9) + _STRINGS):
                return _asked(connection, query, values, rows)
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:  # Arrow's while rows came
            if clock.over:
                raise UsageError(
                    f"took longer than {timeout:g} s; ask for less, or give more time (--timeout)"
                ) from error
            if isinstance(error, MemoryError | duckdb.OutOfMemoryException) or "Out of Memory" in str(error):
                raise UsageError(
                    f"needs more memory than a question may take ({memory:g} GB); ask for less, or give more (--memory)"
                ) from error
            raise UsageError(str(error)) from error


def _asked(connection: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, Any], rows: int | None) -> pa.Table:
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            raise UsageError(f"got {len(statements)} SQL statements, expected one")
        if statements[0].type not in _ASKING:
            raise UsageError(
                f"got {statements[0].type.name}, expected a question: SELECT, FROM, DESCRIBE, SHOW or EXPLAIN"
            )
        return _read(connection.sql(query, params=dict(values)) if values else connection.sql(query), rows)
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.Error as error:
        views = [v for (v,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
        raise UsageError(f"{error}\nviews: {', '.join(sorted(views))}") from error


def _read(asked: duckdb.DuckDBPyRelation | None, rows: int | None) -> pa.Table:
    if asked is None:
        raise UsageError("no answer; expected a question: SELECT, FROM, DESCRIBE, SHOW or EXPLAIN")
    batches, size, count = asked.to_arrow_reader(_ROWS), 0, 0
    found = []
    for batch in batches:
        size += batch.nbytes
        if size > _LARGEST:
            raise UsageError(f"the answer is larger than {_LARGEST} bytes; ask for less, for example with LIMIT")
        found.append(batch)
        count += batch.num_rows
        if rows is not None and count >= rows:
            break
    return pa.Table.from_batches(found, batches.schema)[:rows]


def _write(answer: pa.Table, format: str, out: Path | None) -> None:
    write = _WRITERS[format]
    if out is None:
        write(answer, sys.stdout.buffer)
        return
    try:
        with tempfile.NamedTemporaryFile(dir=out.expanduser().parent, delete=False) as made:
            try:
                write(answer, made)
                made.flush()
                os.replace(made.name, out.expanduser())  # noqa: PTH105 - all of the answer or none
            except BaseException:
                Path(made.name).unlink()
                raise
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; choose a file in a folder you may write to") from error


def _write_table(answer: pa.Table, stream: IO[bytes]) -> None:
    for row in (answer.column_names, *zip(*(column.to_pylist() for column in answer.columns), strict=True)):
        stream.write("\t".join(harmless(value, None) for value in row).encode() + b"\n")


def _write_csv(answer: pa.Table, stream: IO[bytes]) -> None:
    columns = [column if _is_flat(column.type) else _as_json(column) for column in answer.columns]
    names = answer.column_names
    if stream.isatty():
        names = [harmless(name, None) for name in names]
        columns = [_harmless(column) if pa.types.is_string(column.type) else column for column in columns]
    pyarrow.csv.write_csv(pa.table(columns, names=names), stream)


def _is_flat(kind: pa.DataType) -> bool:
    return bool(
        (pa.types.is_primitive(kind) and not pa.types.is_interval(kind))
        or pa.types.is_string(kind)
        or pa.types.is_decimal(kind)
    )


def _harmless(column: pa.ChunkedArray) -> pa.Array:
    return pa.array((None if v is None else harmless(v, None) for v in column.to_pylist()), pa.string())


def _as_json(column: pa.ChunkedArray) -> pa.Array:
    made = (value if isinstance(value, str | None) else json.dumps(_plain(value)) for value in column.to_pylist())
    return pa.array(made, pa.string())


def _write_json(answer: pa.Table, stream: IO[bytes]) -> None:
    names = [
        name if i == answer.column_names.index(name) else f"{name}_{i}" for i, name in enumerate(answer.column_names)
    ]
    rows = zip(*(column.to_pylist() for column in answer.columns), strict=True)
    stream.write(json.dumps([dict(zip(names, map(_plain, row), strict=True)) for row in rows]).encode() + b"\n")


def _write_parquet(answer: pa.Table, stream: IO[bytes]) -> None:
    try:
        pyarrow.parquet.write_table(answer, stream)
    except pa.ArrowException as error:
        raise UsageError(
            f"Parquet cannot hold this answer ({error}); cast the column, for example to VARCHAR"
        ) from error


_WRITERS: dict[str, Callable[[pa.Table, IO[bytes]], None]] = {
    "table": _write_table, "csv": _write_csv, "json": _write_json, "parquet": _write_parquet,
}  # fmt: skip


def _plain(value: Any) -> Any:
    """What JSON has a word for: numbers stay numbers, NaN and infinity become null, other things text."""
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    return value if isinstance(value, str | int | None) else str(value)
