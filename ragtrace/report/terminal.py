"""Tables for a terminal. Whatever comes from a trace is shown as text: control characters and escapes are neutralised."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import duckdb

_LONGEST = 400
_STYLES = {
    "active": "green", "interpretable": "green",
    "silent_stub": "red", "bypassed": "red", "error": "red", "undeclared": "red",
    "pass_through": "yellow", "dormant": "yellow", "nuisance": "yellow", "indirect": "yellow", "entangled": "yellow",
}  # fmt: skip


def harmless(value: Any, longest: int = _LONGEST) -> str:
    """``value`` as one line of text that a terminal only shows: no control, format or unassigned characters."""
    text = "NULL" if value is None else str(value)
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return "".join(c if unicodedata.category(c)[0] != "C" else "�" if c not in "\n\t" else " " for c in text)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """A table of trace content."""
    made = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(harmless(column), overflow="fold")
    for row in rows:
        made.add_row(*(Text(harmless(v), style=_STYLES.get(v, "") if isinstance(v, str) else "") for v in row))
    return made


def verdicts(db: duckdb.DuckDBPyConnection, console: Console) -> None:
    """Prints the matrix: where does each defense act?"""
    rows = db.execute(
        "SELECT defense, hook, verdict, runs, changed, evidence FROM verdicts ORDER BY defense, "
        "list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook)"
    ).fetchall()
    console.print(table(("defense", "hook", "verdict", "runs", "changed", "evidence"), rows, "Where does each defense act?"))


def results(db: duckdb.DuckDBPyConnection, console: Console) -> None:
    """Prints each metric with its interval and whether it may be read."""
    rows = db.execute(
        "SELECT metric, arm, value, ci_low, ci_high, n, interpretable, reason FROM results ORDER BY metric, arm <> 'none', arm"
    ).fetchall()
    shown = [
        (metric, arm, _number(value), f"[{_number(low)}, {_number(high)}]" if low is not None else "", n, readable, reason)
        for metric, arm, value, low, high, n, readable, reason in rows
    ]
    console.print(
        table(("metric", "arm", "value", "95 % interval", "n", "may it be read?", "why"), shown, "What leaked, and may the number be read?")
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
