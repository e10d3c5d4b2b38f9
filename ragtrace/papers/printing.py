"""A paper's tables beside ours: for a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from ragtrace.report.terminal import harmless, table

if TYPE_CHECKING:
    from rich.console import Console

MISSING = "not run"


class Number(NamedTuple):
    """One of our numbers; ``value`` is ``None`` where there is none, and ``note`` says why."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    readable: str = MISSING
    note: str | None = MISSING

    def __str__(self) -> str:
        text = "–" if self.value is None else f"{self.value:.3f}"
        if self.low is not None and self.high is not None:
            text += f" [{self.low:.2f}, {self.high:.2f}]"
        if self.value is None or self.readable not in ("interpretable", "no data"):
            text += f" {harmless(self.readable)}"
        return text


class Entry(NamedTuple):
    """A row: its labels, and for each column our number (or a word) and the paper's values."""

    labels: tuple[str, ...]
    ours: tuple[Number | str, ...]
    paper: tuple[tuple[float | str, ...], ...]


class Table(NamedTuple):
    """A table of the paper with ours; a column has one number of ours and none or more of the paper's."""

    title: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Entry, ...]


def was_run(made: Table) -> bool:
    """Whether anything of the table is there."""
    return any(not isinstance(n, Number) or n.note != MISSING for row in made.rows for n in row.ours)


def none_of(columns: Sequence[str]) -> tuple[tuple[float | str, ...], ...]:
    """For a row that the paper does not have."""
    return ((),) * len(columns)


def to_console(made: Iterable[Table], console: Console) -> None:
    """Prints every table; a number that may not be read as it stands says so."""
    for one in made:
        shown = table((*one.labels, *one.columns), (), f"{one.title}; ours [95 %] (paper)")
        for row in one.rows:
            cells = (_cell(n, p) for n, p in zip(row.ours, row.paper, strict=True))
            shown.add_row(*(Text(harmless(label)) for label in row.labels), *cells)
        console.print(shown)


def _cell(ours: Number | str, paper: tuple[float | str, ...]) -> Text:
    cell = Text(harmless(ours))
    printed = ", ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in paper)
    return cell.append(f" ({printed})", "dim") if printed else cell


def to_markdown(heading: str, made: Iterable[Table], notes: Sequence[str]) -> str:
    """The same for a page."""
    parts = [f"# {heading}", "", *(f"- {note}" for note in notes)]
    for one in made:
        columns = (*one.labels, *one.columns)
        parts += ["", f"## {one.title}", "", _line(columns), _line(["---"] * len(columns))]
        for row in one.rows:
            parts.append(_line([*row.labels, *(str(_cell(n, p)) for n, p in zip(row.ours, row.paper, strict=True))]))
    return "\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(harmless(c).replace("|", "\\|") for c in cells) + " |"


def to_json(made: Iterable[Table], notes: Sequence[str]) -> str:
    """The same for a program: every number with its interval, whether it may be read, and why."""
    return json.dumps(
        {
            "notes": list(notes),
            "tables": [
                {"title": t.title, "columns": list(t.columns), "rows": list(_rows(t))}
                for t in made
            ],
        },
        indent=2,
    )  # fmt: skip


def _rows(made: Table) -> Iterator[dict[str, Any]]:
    for row in made.rows:
        yield {
            "labels": list(row.labels),
            "values": [
                (n._asdict() if isinstance(n, Number) else {"value": n}) | {"paper": list(p)}
                for n, p in zip(row.ours, row.paper, strict=True)
            ],
        }
