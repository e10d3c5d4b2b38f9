"""The commands ``check`` and ``doctor``: arguments in, exit codes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import console

_FILE = "traces.duckdb"


def check(
    db: Annotated[Path, typer.Option("--db", help="The DuckDB database.")] = Path(_FILE),
    policy: Annotated[Path | None, typer.Option(help="What must hold, in TOML; the default policy without.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="An earlier database: no verdict may be worse.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0 here, for code hosts.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here, for build servers.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary here, for pull requests.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    init: Annotated[bool, typer.Option("--init", help="Only write a commented policy to begin with.")] = False,
) -> None:
    """Holds the traces to a policy: exit code 0 where it is kept, 1 where it is breached, 2 for wrong input."""
    from ragtrace.gate import check as judge
    from ragtrace.gate import showing, write_template

    if init:
        written = policy or Path("policy.toml")
        write_template(written)
        typer.echo(f"{written}: the default policy, with a comment on all that it may say")
        return
    gate = judge(db, policy, baseline)
    showing.write(gate, {"sarif": sarif, "junit": junit, "markdown": markdown})
    if as_json:
        typer.echo(json.dumps(gate.to_json(), indent=2))
    else:
        showing.show(gate, console())
    if not gate.passed:
        raise typer.Exit(1)


def doctor(
    db: Annotated[Path | None, typer.Option("--db", help="Also look at this database and what arrives there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Says what is installed, instrumented, writable and arriving, with the fix for what is not; 1 for a problem."""
    from ragtrace.doctor import examine, show

    checks = examine(db)
    if as_json:
        typer.echo(json.dumps([c.to_json() for c in checks], indent=2))
    else:
        show(checks, console())
    if any(c.status == "problem" for c in checks):
        raise typer.Exit(1)
