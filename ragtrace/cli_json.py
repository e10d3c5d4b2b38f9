"""What ``--json`` means at every command: one JSON document on standard output, and all else on standard error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON; all else goes to standard error.")]


def say_json(value: Any) -> None:
    """Prints the document."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def say_run(db: Path, run: str | None) -> None:
    """Verdicts and results of a run; nothing of both where nothing was run."""
    say_json({"db": str(db), "run": run} | (_found(db, run) if run is not None else _found(None)))


def say_papers(out: Path, name: str, ran: bool) -> None:
    """Verdicts and results of all the runs behind a paper's tables, and the files that were written."""
    db = out / f"{name}.duckdb"
    files = sorted(str(file) for file in out.iterdir() if file.is_file() and file != db) if ran else []
    say_json({"db": str(db), "files": files} | _found(db if ran else None))


def said(message: object) -> str:
    """A message that may quote traces, paths and SQL, fit for a terminal."""
    from ragtrace.report.terminal import harmless

    return "ragtrace: " + "".join(f"{harmless(line, 2_000)}\n" for line in str(message).split("\n"))


def _found(db: Path | None, run: str | None = None) -> dict[str, Any]:
    if db is None:
        return {"verdicts": [], "results": []}
    from ragtrace.report import plain
    from ragtrace.store import open as open_store

    with open_store(db) as connection:
        return plain.to_json(connection, run)
