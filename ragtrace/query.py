"""One SQL question, answered read-only and printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ragtrace.errors import UsageError
from ragtrace.record.spool import spool_of
from ragtrace.report.terminal import harmless, table
from ragtrace.store import open as open_store
from ragtrace.store import open_readonly

if TYPE_CHECKING:
    from rich.console import Console


def ask(database: Path, query: str, format: str, out: Path | None, console: Console) -> None:
    """Merges what waits in the spool, then runs ``query`` on a read-only connection.

    :raises UsageError: the SQL is wrong (with DuckDB's hint), or ``parquet`` without ``out``.
    """
    if format == "parquet" and out is None:
        raise UsageError("--format parquet is binary; say where it goes with --out FILE")
    if database.is_file() and any(spool_of(database).glob("*.parquet")):
        open_store(database).close()
    elif not database.is_file() and spool_of(database).is_dir():
        open_store(database).close()
    with open_readonly(database) as connection:
        try:
            answer = connection.execute(query).to_arrow_table()
        except duckdb.Error as error:
            views = [v for (v,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
            raise UsageError(f"{error}\nviews: {', '.join(sorted(views))}") from error
    if format == "table" and out is None:
        rows = list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
        console.print(table(answer.column_names, rows))
        return
    _write(answer, format, out)


def _write(answer: pa.Table, format: str, out: Path | None) -> None:
    stream = out.open("wb") if out is not None else sys.stdout.buffer
    try:
        if format == "parquet":
            pyarrow.parquet.write_table(answer, stream)
        elif format == "csv":
            pyarrow.csv.write_csv(answer, stream)
        elif format == "json":
            stream.write(json.dumps(answer.to_pylist(), default=str).encode() + b"\n")
        else:
            lines = ["\t".join(map(harmless, answer.column_names))]
            lines += ["\t".join(harmless(v) for v in row.values()) for row in answer.to_pylist()]
            stream.write(("\n".join(lines) + "\n").encode())
    finally:
        if out is not None:
            stream.close()
