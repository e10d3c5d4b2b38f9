"""The command line: arguments in, exit codes out; the work is done elsewhere.

Exit codes: 0 fine, 1 a finding or breach, 2 wrong use or input.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ragtrace import cli_ask, cli_canary, cli_check, cli_help, cli_papers
from ragtrace.cli_ask import Format
from ragtrace.cli_help import console as _console
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
    timeout: Annotated[float, typer.Option(min=0.001, max=1e6, help="Seconds that it may take.")] = 60.0,
) -> None:
    """Asks the traces: read-only, without file or network access from SQL."""
    from ragtrace.query import ask

    def stuck() -> None:
        typer.echo(_said("the question cannot be interrupted; ragtrace ends, and no harm is done"), err=True, nl=False)
        os._exit(2)

    ask(db, query, format.value, out, _console(), timeout, stuck)


@app.command("import")
def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files or folders: our spool, OTLP, SDK JSON, Langfuse and Phoenix exports."),
    ],
    db: Database = Path("traces.duckdb"),
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
    typer.echo(f"{report.spans} spans from {report.files + report.segments} {what} into {db}")
    for message in report.failed:
        typer.echo(_said(message), err=True, nl=False)
    if lost := len(report.failed) + len(report.skipped):
        raise InputError(f"{lost} of {len(found)} {what} could not be read; the rest is merged")


@app.command()
def collect(
    db: Database = Path("traces.duckdb"),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 4318,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine only with a token.")] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="RAGTRACE_COLLECT_TOKEN", help="Senders must give it as a bearer token.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second, at most.")] = None,
) -> None:
    """Receives spans by OTLP/HTTP into the spool beside the database; SIGTERM or Ctrl-C ends it, losing nothing."""
    from ragtrace.collect import serve

    serve(db, host, port, token, rate, typer.echo)


@app.command()
def compact(
    db: Database = Path("traces.duckdb"),
    older_than: Annotated[str | None, typer.Option(help="Remove traces that ended longer ago: 12h, 30d, 4w.")] = None,
) -> None:
    """Merges the spool and rewrites the database without the space that deleted traces left."""
    from ragtrace.store import compact as rewrite
    from ragtrace.store.retention import age

    done = rewrite(db, age(older_than) if older_than is not None else None)
    if older_than is not None:
        typer.echo(f"{done.removed.traces} traces ({done.removed.spans} spans) older than {older_than} removed")
    typer.echo(f"{db}: {done.before / 1e6:.1f} MB before, {done.after / 1e6:.1f} MB now")


@app.command()
def forget(
    db: Database = Path("traces.duckdb"),
    user: Annotated[str | None, typer.Option(help="The traces of one user, by user.id and its like.")] = None,
    session: Annotated[str | None, typer.Option(help="Those of one session.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Those of one conversation.")] = None,
    document: Annotated[str | None, typer.Option(help="Those in which one document was retrieved.")] = None,
    trace: Annotated[str | None, typer.Option(help="One trace.")] = None,
) -> None:
    """Deletes traces for good: from the database, the spool, and the bytes of both."""
    from ragtrace.store import forget as delete

    given = {"user": user, "session": session, "conversation": conversation, "document": document, "trace": trace}
    chosen = [(what, id) for what, id in given.items() if id is not None]
    if len(chosen) != 1:
        raise UsageError(f"got {len(chosen)} of {', '.join('--' + what for what in given)}; expected one")
    done = delete(db, *chosen[0])
    typer.echo(f"{done.traces} traces ({done.spans} spans) and {done.results} results deleted")


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Scores stored probes and prints verdicts and results."""
    from ragtrace.likelihood import fill
    from ragtrace.report import plain, terminal
    from ragtrace.score import score as score_store
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    console = _console()
    with open_store(existing(db)) as connection:
        if likelihoods:
            asked = "SELECT DISTINCT run_id FROM probes WHERE attack = 'likelihood' AND coalesce(run_id = ?, true)"
            for (one,) in connection.execute(asked, [run]).fetchall():
                fill(connection, one)
        written = score_store(connection, run, metric)
        if as_json:
            typer.echo(json.dumps(plain.to_json(connection, run), indent=2))
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
        typer.echo(json.dumps(found.to_json(), indent=2))
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
        typer.echo(json.dumps(capabilities.to_json(found, moves, advice), indent=2))
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
    controls: Annotated[bool, typer.Option(help="Also the controls of membership attacks, as arms.")] = True,
    seed: Annotated[list[int] | None, typer.Option(help="A seed; may be given again.")] = None,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 1,
    db: Database = Path("traces.duckdb"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be asked.")] = False,
) -> None:
    """Audits your own app: every arm of defenses × every probe × every seed, traced and scored."""
    from ragtrace import audit_file
    from ragtrace.auditing import conduct

    if (file is None) == (app_ is None):
        raise UsageError("expected either AUDIT.toml or --app module:factory")
    if file is not None:
        conduct(audit_file.read(file), _console(), dry_run=dry_run)
        return
    told: dict[str, object] = {
        "app": app_, "db": str(db), "concurrency": concurrency, "controls": controls,
        "corpus": {"name": corpus, "members": members, "non_members": non_members, "canaries": canary or []},
        "attacks": {name: {} for name in attack or ["benign"]},
        "arms": {"none": []} | {name.rpartition(":")[2]: [name] for name in defense or ()},
    }  # fmt: skip
    conduct(audit_file.made(told | ({"seeds": seed} if seed else {}), "the command line"), _console(), dry_run=dry_run)


app.add_typer(cli_papers.papers, name="papers")
app.add_typer(cli_canary.canary, name="canary")
app.command()(cli_ask.ask)
app.command()(cli_check.check)
app.command()(cli_check.doctor)
cli_help.add_examples(app)


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
