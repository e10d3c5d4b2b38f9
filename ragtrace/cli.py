"""The command line: arguments in, exit codes out; the work is done elsewhere.

Exit codes: 0 fine, 1 a finding or breach, 2 wrong use or input.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ragtrace.errors import RagtraceError, UsageError

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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for traces.duckdb.")] = Path("ragtrace-demo"),
) -> None:
    """Audits a real pipeline with the embedded model: defenses, probes, traces, SQL."""
    from ragtrace.demo import main as run_demo

    run_demo(out, Console())


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement over the views.")],
    db: Database = Path("traces.duckdb"),
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write here instead (parquet always needs it).")] = None,
) -> None:
    """Asks the traces: read-only, without file or network access from SQL."""
    from ragtrace.query import ask

    ask(db, query, format.value, out, Console())


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
        raise UsageError(
            f"{len(report.skipped)} of {len(found)} segments could not be read and were left: {', '.join(report.skipped)}"
        )


@app.command()
def score(
    db: Database = Path("traces.duckdb"),
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
) -> None:
    """Scores stored probes and prints verdicts and results."""
    from ragtrace.report import terminal
    from ragtrace.score import score as score_store
    from ragtrace.store import open as open_store

    if not db.is_file():
        raise UsageError(f"no database at {db}; give the one your app's ragtrace.setup() names with --db")
    console = Console()
    with open_store(db) as connection:
        written = score_store(connection, run)
        terminal.verdicts(connection, console)
        if written:
            terminal.results(connection, console)
        else:
            console.print("No probes in this database, so nothing to score: the verdicts above rest on its traffic.")


def main() -> None:
    """Entry point."""
    try:
        app()
    except RagtraceError as error:
        from ragtrace.report.terminal import harmless

        typer.echo(f"ragtrace: {harmless(error, 2_000)}", err=True)
        sys.exit(2)
