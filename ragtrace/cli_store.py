"""The commands ``import``, ``collect``, ``compact`` and ``forget``: arguments in, the work is done elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_json import Json, said, say_json
from ragtrace.errors import InputError, UsageError

Database = Annotated[Path, typer.Option("--db", help="The DuckDB database.")]
_DB = Path("traces.duckdb")


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files or folders: our spool, OTLP, SDK JSON, Langfuse and Phoenix exports."),
    ],
    db: Database = _DB,
    as_json: Json = False,
) -> None:
    """Brings spans from elsewhere into the database, each file whole or not at all; the files are left as they are."""
    from rich.console import Console
    from rich.progress import track

    from ragtrace.ingest.files import files_at
    from ragtrace.store import import_files
    from ragtrace.store import open as open_store

    found = files_at(paths)
    console = Console(stderr=True)
    with open_store(db) as connection:
        shown = track(found, "importing", console=console, transient=True, disable=not console.is_terminal)
        report = import_files(connection, shown)
    what = "files" if report.files or report.failed else "segments"
    if as_json:
        say_json({
            "db": str(db), "spans": report.spans, "files": report.files, "segments": report.segments,
            "failed": report.failed, "skipped": [str(path) for path in report.skipped],
        })  # fmt: skip
    else:
        typer.echo(f"{report.spans} spans from {report.files + report.segments} {what} into {db}")
    for message in report.failed:
        typer.echo(said(message), err=True, nl=False)
    if lost := len(report.failed) + len(report.skipped):
        raise InputError(f"{lost} of {len(found)} {what} could not be read; the rest is merged")


def collect(
    db: Database = _DB,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 4318,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine only with a token.")] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="RAGTRACE_COLLECT_TOKEN", help="Senders must give it as a bearer token.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second, at most.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="At the end, print JSON.")] = False,
) -> None:
    """Receives spans by OTLP/HTTP into the spool beside the database; SIGTERM or Ctrl-C ends it, losing nothing."""
    from ragtrace.collect import serve
    from ragtrace.record.spool import SUFFIX, spool_of

    serve(db, host, port, token, rate, lambda line: typer.echo(line, err=as_json))
    if as_json:
        spool = spool_of(db.expanduser().absolute())
        say_json({"db": str(db), "spool": str(spool), "segments": len(list(spool.glob(f"*{SUFFIX}")))})


def compact(
    db: Database = _DB,
    older_than: Annotated[str | None, typer.Option(help="Remove traces that ended longer ago: 12h, 30d, 4w.")] = None,
    as_json: Json = False,
) -> None:
    """Merges the spool and rewrites the database without the space that deleted traces left."""
    from ragtrace.store import compact as rewrite
    from ragtrace.store.retention import age

    done = rewrite(db, age(older_than) if older_than is not None else None)
    if as_json:
        say_json({
            "db": str(db), "removed": done.removed._asdict(), "bytes_before": done.before, "bytes_after": done.after,
        })  # fmt: skip
        return
    if older_than is not None:
        typer.echo(f"{done.removed.traces} traces ({done.removed.spans} spans) older than {older_than} removed")
    typer.echo(f"{db}: {done.before / 1e6:.1f} MB before, {done.after / 1e6:.1f} MB now")


def forget(
    db: Database = _DB,
    user: Annotated[str | None, typer.Option(help="The traces of one user, by user.id and its like.")] = None,
    session: Annotated[str | None, typer.Option(help="Those of one session.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Those of one conversation.")] = None,
    document: Annotated[str | None, typer.Option(help="Those in which one document was retrieved.")] = None,
    trace: Annotated[str | None, typer.Option(help="One trace.")] = None,
    as_json: Json = False,
) -> None:
    """Deletes traces for good: from the database, the spool, and the bytes of both."""
    from ragtrace.store import forget as delete

    given = {"user": user, "session": session, "conversation": conversation, "document": document, "trace": trace}
    chosen = [(what, id) for what, id in given.items() if id is not None]
    if len(chosen) != 1:
        raise UsageError(f"got {len(chosen)} of {', '.join('--' + what for what in given)}; expected one")
    done = delete(db, *chosen[0])
    if as_json:
        say_json({"db": str(db), "removed": done._asdict()})
    else:
        typer.echo(f"{done.traces} traces ({done.spans} spans) and {done.results} results deleted")
