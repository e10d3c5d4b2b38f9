"""The commands ``canary mint``, ``plant`` and ``scan``: arguments in, the work is done elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import console
from ragtrace.cli_json import Json, say_json

canary = typer.Typer(help="Makes, plants and looks for canaries: strings that are nowhere else.", no_args_is_help=True)
Families = Annotated[
    list[str] | None, typer.Option("--family", help="email, person, phone, id, phrase; may be given again.")
]
_DEFAULT = ["email", "person"]


@canary.command()
def mint(
    family: Families = None,
    count: Annotated[int, typer.Option(help="Of each family.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same canaries.")] = 0,
    as_json: Json = False,
) -> None:
    """Prints new canaries, one a line: outside every installed defense's words and the scorer's."""
    from ragtrace.canaries import mint as make

    families = family or _DEFAULT
    made = make(count, seed, families)
    if as_json:
        say_json([{"text": text, "family": families[i // count]} for i, text in enumerate(made)])
        return
    for text in made:
        typer.echo(text)


@canary.command()
def plant(
    documents: Annotated[
        Path, typer.Argument(help="JSONL; each row has its text under content, text or page_content.")
    ],
    out: Annotated[Path, typer.Option(help="The rows with their canaries.")] = Path("planted.jsonl"),
    canaries: Annotated[Path, typer.Option(help="What was planted where: keep it secret.")] = Path("canaries.jsonl"),
    family: Families = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same canaries.")] = 0,
    as_json: Json = False,
) -> None:
    """Plants one canary of each family in every document of a file."""
    from ragtrace.canary_files import plant_file

    planted = plant_file(documents, out, canaries, family or _DEFAULT, seed)
    if as_json:
        say_json({"planted": planted, "documents": str(out), "canaries": str(canaries)})
        return
    typer.echo(f"{planted} canaries planted: documents in {out}, what was planted where in {canaries}")


@canary.command()
def scan(
    files: Annotated[list[Path] | None, typer.Argument(help="Text files to look through as well.")] = None,
    canaries: Annotated[Path | None, typer.Option(help="What `canary plant` wrote.")] = None,
    db: Annotated[Path | None, typer.Option("--db", help="A database: its traces are looked through.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Looks for canaries by exact match; exit code 1 where one is found."""
    from ragtrace import canary_files
    from ragtrace.errors import UsageError
    from ragtrace.report import terminal
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    if db is None and not files:
        raise UsageError("nothing to look through; expected --db or files")
    if files and canaries is None:
        raise UsageError("no canaries to look for in files; expected --canaries, the file that `canary plant` wrote")
    known = canary_files.read_canaries(canaries) if canaries is not None else []
    hits = list(canary_files.scan_texts(files or [], known))
    if db is not None:
        with open_store(existing(db)) as connection:
            hits += canary_files.scan_store(connection, known)
    if as_json:
        say_json([hit._asdict() for hit in hits])
    elif hits:
        console().print(terminal.table(("canary", "family", "where"), hits))
    else:
        typer.echo("No canary found.")
    if hits:
        raise typer.Exit(1)
