"""The commands ``lake add`` and ``lake sql``: arguments in, exit codes out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import Format, console
from ragtrace.errors import InputError, UsageError

lake = typer.Typer(help="Spans as Parquet by date, in a folder or an object store, for an engine such as Spark.",
                   no_args_is_help=True)  # fmt: skip
Url = Annotated[str, typer.Option("--lake", help="A folder, or a URL such as s3://bucket/traces.")]


class EngineName(StrEnum):
    """What computes."""

    duckdb = "duckdb"
    spark = "spark"


@lake.command()
def add(
    url: Url,
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders, as `ragtrace import` takes.")] = None,
    db: Annotated[Path | None, typer.Option("--db", help="Also all spans of this database and its spool.")] = None,
) -> None:
    """Adds spans: each file whole or not at all, and what is there already once."""
    from contextlib import nullcontext

    from ragtrace.ingest.files import files_at
    from ragtrace.lake import Lake
    from ragtrace.lake import add as put
    from ragtrace.report.terminal import harmless
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    if not paths and db is None:
        raise UsageError("nothing to add; give files, or --db")
    found = files_at(paths) if paths else []
    with nullcontext() if db is None else open_store(existing(db)) as connection:
        done = put(Lake(url), found, connection)
    typer.echo(f"{done.spans} spans in {done.files} new files of {url}; {done.known} files were there already")
    for message in done.failed:
        typer.echo(harmless(message, 2_000), err=True)
    if done.failed:
        raise InputError(f"{len(done.failed)} of {len(found)} files could not be read; the rest is in the lake")


@lake.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over `spans`, in DuckDB's dialect.")],
    url: Url,
    engine: Annotated[EngineName, typer.Option(help="What computes.")] = EngineName.duckdb,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write here instead (parquet always needs it).")] = None,
) -> None:
    """Asks the lake: each span once, its attributes as JSON text."""
    from ragtrace.engine import engine as made
    from ragtrace.lake import Lake
    from ragtrace.query import check_format, show

    check_format(format.value, out)
    computing = made(engine.value, Lake(url))
    try:
        answer = computing.sql(query)
    finally:
        computing.close()
    show(answer, format.value, out, console())
