"""The command line: arguments in, exit codes out; the work is done elsewhere.

Exit codes: 0 fine, 1 a finding or breach, 2 wrong use or input.
"""

from __future__ import annotations

import json
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ragtrace.errors import InputError, RagtraceError

app = typer.Typer(
    name="ragtrace",
    help="Which stage does each privacy defense of a RAG pipeline really change, and what leaks all the same?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Database = Annotated[Path, typer.Option("--db", help="The DuckDB database.")]


class Format(StrEnum):
    """How ``ragtrace sql`` prints."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def _console() -> Console:
    """Where nobody watches (a pipe, a file), lines are as long as their content."""
    return Console() if sys.stdout.isatty() else Console(width=100_000)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for traces.duckdb.")] = Path("ragtrace-demo"),
) -> None:
    """Audits a real pipeline with the embedded model: defenses, probes, traces, SQL."""
    from ragtrace.demo import main as run_demo

    run_demo(out, _console())


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement over the views.")],
    db: Database = Path("traces.duckdb"),
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write here instead (parquet always needs it).")] = None,
) -> None:
    """Asks the traces: read-only, without file or network access from SQL."""
    from ragtrace.query import ask

    ask(db, query, format.value, out, _console())


@app.command("import")
def import_(
    paths: Annotated[list[Path], typer.Argument(help="Spool folders or segments.")],
    db: Database = Path("traces.duckdb"),
) -> None:
    """Merges spans from elsewhere into the database; the files are left where they are."""
    from ragtrace.ingest.segments import segments_at
    from ragtrace.store import add
    from ragtrace.store import open as open_store

    found = segments_at(paths)
    with open_store(db) as connection:
        report = add(connection, found)
    typer.echo(f"{report.spans} spans from {report.segments} segments into {db}")
    if report.skipped:
        raise InputError(f"{len(report.skipped)} of {len(found)} segments could not be read; the rest is merged")


@app.command()
def score(
    db: Database = Path("traces.duckdb"),
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Only these metrics, by name or pattern ('s2mia_*'); may be given again.")
    ] = None,
) -> None:
    """Scores stored probes and prints verdicts and results."""
    from ragtrace.report import terminal
    from ragtrace.score import score as score_store
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    console = _console()
    with open_store(existing(db)) as connection:
        written = score_store(connection, run, metric)
        terminal.verdicts(connection, console)
        if written:
            terminal.results(connection, console)
        else:
            console.print("No probes in this database, so nothing to score: the verdicts above rest on its traffic.")


@app.command()
def inventory(
    targets: Annotated[
        list[str], typer.Argument(help="Python files, notebooks, folders, or import paths (package.module:Class).")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    db: Annotated[Path | None, typer.Option("--db", help="Also store the findings: `verdicts` joins them.")] = None,
    names: Annotated[
        Path | None, typer.Option(help="TOML with a [methods] table: method name = hook, for classes of your own.")
    ] = None,
) -> None:
    """What the source of each defense says, hook by hook; reads the code, never runs it."""
    from ragtrace.inventory import inventory as read
    from ragtrace.report import terminal

    found = read(*targets, names=names)
    for warning in found.warnings:
        typer.echo(_said(warning), err=True, nl=False)
    if db is not None:
        from ragtrace.audit import store_inventory
        from ragtrace.store import open as open_store

        with open_store(db) as connection:
            store_inventory(connection, found)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    if not found:
        typer.echo("No defense found: see `--names` for classes whose methods have names of your own.")
        return
    rows = [(h.status, h.hook, d.defense, h.where, h.reason) for d in found for h in d.hooks]
    _console().print(terminal.table(("status", "hook", "defense", "where", "why"), rows))


@app.command()
def battery(
    targets: Annotated[list[str], typer.Argument(help="module:attribute, file.py:attribute, module or file.py.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    db: Annotated[Path | None, typer.Option("--db", help="Also store it: the view `capabilities`.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one defense.")] = 20.0,
    protect: Annotated[str | None, typer.Option(help="Families to keep out of responses, as email,person.")] = None,
    names: Annotated[Path | None, typer.Option(help="TOML with a [methods] table: method name = hook.")] = None,
) -> None:
    """What each hook changes when it is fed without a model; runs the code, in processes of its own."""
    from ragtrace.capabilities import mitigates, recommend
    from ragtrace.inventory.battery import battery as feed
    from ragtrace.report import capabilities

    asked = [f.strip() for f in protect.split(",") if f.strip()] if protect is not None else None
    if asked is not None:
        recommend([], asked)  # a wrong family is told before anything runs
    found = feed(*targets, timeout=timeout, names=names)
    if db is not None:
        from ragtrace.audit import store_battery
        from ragtrace.store import open as open_store

        with open_store(db) as connection:
            store_battery(connection, found)
    advice = None if asked is None else recommend(found, asked)
    moves = [m for b in found for m in mitigates(b)]
    if as_json:
        typer.echo(json.dumps(capabilities.to_json(found, moves, advice), indent=2))
    else:
        capabilities.show(found, moves, advice, _console())
    if all(b.error for b in found):
        raise InputError("nothing could be fed to any target; the errors above say why")


def main() -> None:
    """Entry point."""
    warnings.formatwarning = lambda message, *_, **__: _said(message)
    try:
        app()
    except RagtraceError as error:
        typer.echo(_said(error), err=True, nl=False)
        sys.exit(2)


def _said(message: object) -> str:
    """A message that may quote traces, paths and SQL, fit for a terminal."""
    from ragtrace.report.terminal import harmless

    return "ragtrace: " + "".join(f"{harmless(line, 2_000)}\n" for line in str(message).split("\n"))
