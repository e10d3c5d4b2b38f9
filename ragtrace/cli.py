"""The command line: arguments in, exit codes out; the work is done elsewhere.

Exit codes: 0 fine, 1 a finding or breach, 2 wrong use or input.
"""

from __future__ import annotations

import os
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ragtrace import (
    cli_ask,
    cli_canary,
    cli_check,
    cli_detect,
    cli_entities,
    cli_exposure,
    cli_help,
    cli_lake,
    cli_papers,
    cli_store,
    cli_ui,
    cli_watch,
)
from ragtrace.cli_help import Format
from ragtrace.cli_help import console as _console
from ragtrace.cli_json import Json, say_json, say_run
from ragtrace.cli_json import said as _said
from ragtrace.cli_lake import EngineName
from ragtrace.errors import InputError, RagtraceError, UsageError

app = typer.Typer(
    name="ragtrace",
    help="Which stage does each privacy defense of a RAG pipeline really change, and what leaks all the same?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Database = Annotated[Path, typer.Option("--db", help="The DuckDB database.")]


class ReportFormat(StrEnum):
    """What ``ragtrace report`` writes."""

    html = "html"
    md = "md"
    json = "json"


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for traces.duckdb.")] = Path("ragtrace-demo"),
    as_json: Json = False,
) -> None:
    """Audits a real pipeline with the embedded model: defenses, probes, traces, SQL."""
    from ragtrace.demo import main as run_demo

    run = run_demo(out, _console(err=as_json))
    if as_json:
        say_run(out / "traces.duckdb", run)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement over the views.")],
    db: Database = Path("traces.duckdb"),
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write here instead (parquet always needs it).")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, max=1e6, help="Seconds that it may take.")] = 60.0,
    memory: Annotated[float, typer.Option(min=0.5, max=1e4, help="GB for DuckDB; more goes to disk.")] = 2.0,
) -> None:
    """Asks the traces: read-only, without file or network access from SQL."""
    from ragtrace.query import ask

    def stuck() -> None:
        typer.echo(_said("the question cannot be interrupted; ragtrace ends, and no harm is done"), err=True, nl=False)
        os._exit(2)

    if why := ask(db, query, format.value, out, _console(), timeout, stuck, memory=memory):
        typer.echo(_said(why), err=True, nl=False)


@app.command()
def score(
    db: Database = Path("traces.duckdb"),
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Only these metrics, by name or pattern ('s2mia_*'); may be given again.")
    ] = None,
    likelihoods: Annotated[
        bool, typer.Option("--likelihoods", help="First the targets' own texts, with the embedded model (minutes).")
    ] = False,
    lake: Annotated[
        str | None, typer.Option(help="Score the audits in this lake; their spans and results go into --db.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="What computes over a lake.")] = EngineName.duckdb,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Scores stored probes and prints verdicts and results."""
    from ragtrace.likelihood import fill
    from ragtrace.report import plain, terminal
    from ragtrace.scaled import score_lake
    from ragtrace.score import score as score_store
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    console = _console()
    if lake is None and engine is not EngineName.duckdb:
        raise UsageError(f"--engine {engine.value} computes over a lake; say where it is with --lake")
    with open_store(existing(db) if lake is None else db) as connection:
        if lake is not None:
            score_lake(lake, engine.value, connection, run, metric)
        if likelihoods:
            asked = "SELECT DISTINCT run_id FROM probes WHERE attack = 'likelihood' AND coalesce(run_id = ?, true)"
            for (one,) in connection.execute(asked, [run]).fetchall():
                fill(connection, one)
        if lake is None or likelihoods:
            score_store(connection, run, metric)
        [(written,)] = connection.execute("SELECT count(*) FROM results").fetchall()
        if as_json:
            say_json(plain.to_json(connection, run))
            return
        terminal.verdicts(connection, console)
        if written:
            terminal.results(connection, console)
        else:
            console.print("No probes in this database, so nothing to score: the verdicts above rest on its traffic.")


@app.command()
def report(
    db: Database = Path("traces.duckdb"),
    run: Annotated[str | None, typer.Option(help="Numbers of this run only.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write here (html: report.html).")] = None,
    format: Annotated[
        ReportFormat | None, typer.Option(help="What to write; else what the ending of --out says, or html.")
    ] = None,
    show_content: Annotated[
        bool, typer.Option("--show-content", help="Show the texts of traces, else masked: the file is then sensitive.")
    ] = False,
) -> None:
    """Writes the report: where each defense acts, what leaked, and may the numbers be read; one file, no network."""
    from ragtrace.report import reporting

    ending = out.suffix.lstrip(".") if out is not None else ""
    kind = format or (ReportFormat(ending) if ending in ("md", "json") else ReportFormat.html)
    made = reporting.report(db, kind.value, run, show_content)
    if out is None and kind is not ReportFormat.html:
        typer.echo(made, nl=False)
        return
    file = out or Path("report.html")
    reporting.write(file, made)
    typer.echo(f"report of {db} in {file}")


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
    fail_on: Annotated[
        str | None, typer.Option(help="Exit with 1 where a hook is one of these, as stub,dead,pass_through.")
    ] = None,
) -> None:
    """What the source of each defense says, hook by hook; reads the code, never runs it."""
    from ragtrace.inventory import failing
    from ragtrace.inventory import inventory as read
    from ragtrace.report import terminal

    unwanted = failing.statuses(fail_on)
    found = read(*targets, names=names)
    for warning in found.warnings:
        typer.echo(_said(warning), err=True, nl=False)
    if db is not None:
        from ragtrace.audit import store_inventory
        from ragtrace.store import open as open_store

        with open_store(db) as connection:
            store_inventory(connection, found)
    if as_json:
        say_json(found.to_json())
    elif not found:
        typer.echo("No defense found: see `--names` for classes whose methods have names of your own.")
    else:
        rows = [(h.status, h.hook, d.defense, h.where, h.reason) for d in found for h in d.hooks]
        _console().print(terminal.table(("status", "hook", "defense", "where", "why"), rows))
    if failed := failing.hooks(found, unwanted):
        for line in failed:
            typer.echo(_said(line), err=True, nl=False)
        raise typer.Exit(1)


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
        say_json(capabilities.to_json(found, moves, advice))
    else:
        capabilities.show(found, moves, advice, _console())
    if all(b.error for b in found):
        raise InputError("nothing could be fed to any target; the errors above say why")


@app.command()
def audit(
    file: Annotated[Path | None, typer.Argument(help="AUDIT.toml; or say --app and the rest.")] = None,
    app_: Annotated[str | None, typer.Option("--app", help="module:factory; the factory gets the documents.")] = None,
    corpus: Annotated[str, typer.Option(help="What is indexed and asked about.")] = "synthetic_email",
    members: Annotated[int, typer.Option(help="Documents indexed.")] = 50,
    non_members: Annotated[int, typer.Option(help="Documents outside, for membership attacks.")] = 0,
    canary: Annotated[list[str] | None, typer.Option(help="Canary family to plant; may be given again.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="An attack; may be given again.")] = None,
    defense: Annotated[
        list[str] | None,
        typer.Option(help="A defense, by name or module:Class: an arm of its own; may be given again."),
    ] = None,
    controls: Annotated[bool, typer.Option(help="Also without retrieval (and without the target), as arms.")] = True,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="Also the fewest of the defenses that cover what any does, as an arm.")
    ] = False,
    seed: Annotated[list[int] | None, typer.Option(help="A seed; may be given again.")] = None,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 1,
    db: Database = Path("traces.duckdb"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be asked.")] = False,
    as_json: Json = False,
) -> None:
    """Audits your own app: every arm of defenses × every probe × every seed, traced and scored."""
    from ragtrace import audit_file
    from ragtrace.auditing import conduct

    if (file is None) == (app_ is None):
        raise UsageError("expected either AUDIT.toml or --app module:factory")
    told: dict[str, object] = {
        "app": app_, "db": str(db), "concurrency": concurrency, "controls": controls,
        "recommended": recommended,
        "corpus": {"name": corpus, "members": members, "non_members": non_members, "canaries": canary or []},
        "attacks": {name: {} for name in attack or ["benign"]},
        "arms": {"none": []} | {name.rpartition(":")[2]: [name] for name in defense or ()},
    }  # fmt: skip
    if file is not None:
        asked = audit_file.read(file)
    else:
        asked = audit_file.made(told | ({"seeds": seed} if seed else {}), "the command line")
    run = conduct(asked, _console(err=as_json), dry_run=dry_run)
    if as_json:
        say_run(asked.db, run)


app.add_typer(cli_papers.papers, name="papers")
app.add_typer(cli_canary.canary, name="canary")
app.add_typer(cli_entities.entities, name="entities")
app.add_typer(cli_lake.lake, name="lake")
app.command("import")(cli_store.import_)
app.command()(cli_store.collect)
app.command()(cli_store.compact)
app.command()(cli_store.forget)
app.command()(cli_ask.ask)
app.command()(cli_watch.watch)
app.command()(cli_exposure.exposure)
app.command()(cli_detect.detect)
app.command()(cli_check.check)
app.command()(cli_check.doctor)
app.command()(cli_ui.ui)
cli_help.add_examples(app)


def main() -> None:
    """Entry point."""
    warnings.formatwarning = lambda message, *_, **__: _said(message)
    try:
        app()
    except RagtraceError as error:
        typer.echo(_said(error), err=True, nl=False)
        sys.exit(2)
