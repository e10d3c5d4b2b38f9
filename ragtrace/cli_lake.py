"""The commands ``lake add`` and ``lake sql``: arguments in, exit codes out."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import Format, console
from ragtrace.cli_json import Json, say_json
from ragtrace.errors import InputError, UsageError

lake = typer.Typer(help="Spans as Parquet by date, in a folder or an object store, for an engine such as Spark.",
                   no_args_is_help=True)  # fmt: skip
Day = partial(typer.Option, formats=["%Y-%m-%d"])
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
    as_json: Json = False,
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
    if as_json:
        say_json({
            "lake": url, "spans": done.spans, "files": done.files, "known": done.known, "failed": done.failed,
        })  # fmt: skip
    else:
        typer.echo(f"{done.spans} spans in {done.files} new files of {url}; {done.known} files were there already")
    for message in done.failed:
        typer.echo(harmless(message, 2_000), err=True)
    if done.failed:
        raise InputError(f"{len(done.failed)} of {len(found)} files could not be read; the rest is in the lake")


@lake.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over `spans` and the views, in DuckDB's dialect.")],
    url: Url,
    engine: Annotated[EngineName, typer.Option(help="What computes.")] = EngineName.duckdb,
    since: Annotated[datetime | None, Day("--from", help="Only traces that began on this day (UTC) or later.")] = None,
    until: Annotated[datetime | None, Day("--to", help="Only traces that began on this day or before.")] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write here instead (parquet always needs it).")] = None,
    as_json: Json = False,
) -> None:
    """Asks the lake: `spans` (each once, its attributes as JSON text) and the views that can be made of them."""
    from ragtrace.engine import Days
    from ragtrace.engine import engine as made
    from ragtrace.engine.asking import ask
    from ragtrace.engine.relations import named
    from ragtrace.lake import Lake
    from ragtrace.query import check_format, show

    if as_json and format not in (Format.table, Format.json):
        raise UsageError(f"both --json and --format {format.value}; expected one of them")
    kind = "json" if as_json else format.value
    check_format(kind, out)
    if since and until and since > until:
        raise UsageError(f"--from {since:%Y-%m-%d} is after --to {until:%Y-%m-%d}; expected the earlier day first")
    named(query)  # what is wrong with it is said before anything is read
    computing = made(engine.value, Lake(url), Days(since and since.date(), until and until.date()))
    try:
        answer = ask(computing, query)
    finally:
        computing.close()
    show(answer, kind, out, console())
