"""The commands ``entities find`` and ``entities audit``: arguments in, the work is done elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import console

entities = typer.Typer(help="The named-entity classifier behind NEL: use it, and measure it.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON list.")]


@entities.command(epilog='\b\nFor example:\n  ragtrace entities find "ask Patricia Henderson, ph@acme.io"')
def find(
    text: Annotated[
        str | None, typer.Argument(help="What to look through; without it, what comes in by a pipe.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prints the named entities of a text: type, start, end and text."""
    from ragtrace import ner
    from ragtrace.report import terminal

    if text is None:
        text = sys.stdin.buffer.read().decode("utf-8", errors="replace")
    found = [(e.type, e.start, e.end, e.text) for e in ner.entities(text)]
    columns = ("type", "start", "end", "text")
    if as_json:
        typer.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in found], indent=2))
    elif found:
        console().print(terminal.table(columns, found))
    else:
        typer.echo("No entity found.")


@entities.command(epilog="\b\nFor example:\n  ragtrace entities audit labelled.jsonl --label PERSON_NAME=NAME_STUDENT")
def audit(
    labelled: Annotated[
        Path, typer.Argument(help='JSONL: {"text", "spans": [{"start", "end", "label"}], "source"?} a line.')
    ],
    label: Annotated[
        list[str] | None,
        typer.Option(help="OURS=THEIRS: what a label means; NONE=THEIRS leaves it out; may be given again."),
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--md", help="Print a Markdown table.")] = False,
) -> None:
    """Measures the classifier on labelled text: precision and recall by source and type, with exact 95 % bounds."""
    from ragtrace import ner_audit
    from ragtrace.errors import InputError, UsageError
    from ragtrace.report import terminal

    if as_json and as_markdown:
        raise UsageError("both --json and --md; expected one of them")
    cells = ner_audit.audit(ner_audit.read(labelled, ner_audit.mapping(label or ())))
    if not cells:
        raise InputError(f"{str(labelled)!r} has no rows; expected one labelled text a line")
    if as_json:
        typer.echo(json.dumps(ner_audit.as_rows(cells), indent=2))
    elif as_markdown:
        typer.echo(ner_audit.markdown(cells))
    else:
        console().print(terminal.table(ner_audit.COLUMNS, ner_audit.lines(cells)))
