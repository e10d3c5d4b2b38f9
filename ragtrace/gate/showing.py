"""The gate on a terminal, and in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from ragtrace.errors import UsageError
from ragtrace.gate import junit, markdown, sarif
from ragtrace.gate.writing import write_whole
from ragtrace.report.terminal import harmless, table

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.gate.outcomes import Gate

FORMATS = {"sarif": sarif.render, "junit": junit.render, "markdown": markdown.render}
_STYLES = {"pass": "green", "breach": "red", "no data": "yellow"}


def show(gate: Gate, console: Console) -> None:
    """Prints each rule with its findings."""
    for outcome in gate.outcomes:
        console.print(
            Text(f"{outcome.status:8}", _STYLES[outcome.status]).append(
                f"{harmless(outcome.rule)}: {harmless(outcome.about)}", "default"
            )
        )
        if outcome.findings:
            rows = [(f.subject, f.kind, f.message, f.where, f.reason or "") for f in outcome.findings]
            console.print(table(("subject", "is", "what", "where", "excused because"), rows))
        for note in outcome.notes:
            console.print(Text(f"  note: {harmless(note)}"))
    console.print(Text(gate.summary, "red" if gate.breached else "green"))


def write(gate: Gate, files: Mapping[str, Path | None]) -> None:
    """Writes the gate in each format that has a file, each whole or not at all.

    :raises UsageError: a file cannot be written, or two formats have the same one.
    """
    wanted = {format: path for format, path in files.items() if path is not None}
    if len({p.expanduser().absolute() for p in wanted.values()}) < len(wanted):
        raise UsageError(f"two of {', '.join(f'--{f}' for f in wanted)} name the same file; give each its own")
    rendered = [(path, FORMATS[format](gate)) for format, path in wanted.items()]
    for path, text in rendered:
        write_whole(path, text)
