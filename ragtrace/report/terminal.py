"""Tables for a terminal. What comes from a trace is shown as text: control characters and escapes are neutralised."""

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
WEAK_MODELS = ("SmolLM2-135M-Instruct",)
_BLANKS = "\n\r\t\u2028\u2029"
_STYLES = {
    "active": "green", "interpretable": "green",
    "silent_stub": "red", "bypassed": "red", "error": "red", "undeclared": "red",
    "pass_through": "yellow", "dormant": "yellow", "nuisance": "yellow", "indirect": "yellow", "entangled": "yellow",
    "reversal": "yellow",
}  # fmt: skip


def harmless(value: Any, longest: int | None = _LONGEST) -> str:
    """``value`` as one line of text that a terminal only shows: no control, format or unassigned characters."""
    text = "NULL" if value is None else str(value)
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    return "".join(" " if c in _BLANKS else c if unicodedata.category(c)[0] != "C" else "�" for c in text)


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
    console.print(
        table(("defense", "hook", "verdict", "runs", "changed", "evidence"), rows, "Where does each defense act?")
    )


def results(db: duckdb.DuckDBPyConnection, console: Console, run_id: str | None = None) -> None:
    """Prints metrics × arms, each number with its interval and whether it may be read; one table for each run."""
    runs = db.execute(
        "SELECT DISTINCT run_id FROM results WHERE $1 IS NULL OR run_id = $1 ORDER BY run_id", [run_id]
    ).fetchall()
    for (run,) in runs:
        rows = db.execute(
            "SELECT (metric, attack), arm, value, ci_low, ci_high, interpretable FROM results WHERE run_id = ?", [run]
        ).fetchall()
        arms = sorted({row[1] for row in rows}, key=lambda arm: (arm != "none", arm))
        made = table(("metric", *arms), (), f"What leaked in {run}, with 95 % intervals, and may the number be read?")
        made.show_lines = True
        cells = {(row[0], row[1]): _cell(*row[2:]) for row in rows}
        for key in sorted({row[0] for row in rows}):
            label = Text(harmless(key[0])).append(f"\n{harmless(key[1])} probes", "dim")
            made.add_row(label, *(cells.get((key, arm), Text("–")) for arm in arms))
        console.print(made)
    if runs:
        console.print("Reasons and signatures: SELECT metric, arm, interpretable, reason, signature FROM results")
        weak = db.execute(
            "SELECT count(*) > 0 FROM results WHERE list_has_any($1, string_split(signature, '|'))",
            [[f"model:{name}" for name in WEAK_MODELS]],
        ).fetchone()
        if weak and weak[0]:
            console.print(
                "The embedded model is tiny: these numbers are instrument checks, not findings about any model."
            )


def _cell(value: float | None, low: float | None, high: float | None, readable: str) -> Text:
    cell = Text(_number(value))
    if readable != "interpretable":
        cell.append(f" {harmless(readable)}", _STYLES.get(readable, ""))
    return cell if low is None else cell.append(f"\n[{_number(low)}, {_number(high)}]", "dim")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
