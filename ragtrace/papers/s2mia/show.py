"""The tables for a terminal, as Markdown and as JSON; Figure 2 as SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ragtrace.errors import UsageError
from ragtrace.papers.s2mia.conduct import run_id
from ragtrace.papers.s2mia.tables import UTILITY, Number, Price, Table
from ragtrace.report.terminal import harmless, table

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from rich.console import Console

    from ragtrace.papers.s2mia.plan import Design

FEATURES = {"cosine": "cosine similarity of answer and target", "perplexity": "perplexity of the answer"}


def to_console(made: list[Table], utility: list[Price], console: Console) -> None:
    """Prints every table; a number that may not be read as it stands says so."""
    for one in made:
        shown = table((*one.labels, *one.columns), (), f"{one.title}; ours [95 %], (paper)")
        for row in one.rows:
            shown.add_row(*row.labels, *(_ours(n, p) for n, p in zip(row.ours, row.paper, strict=True)))
        console.print(shown)
    rows = [(p.dataset, p.arm, *(str(_ours(n, ())) for n in p.numbers)) for p in utility]
    console.print(table(("dataset", "arm", *UTILITY), rows, "Utility beside privacy: answers to plain questions"))


def _ours(number: Number, paper: tuple[float, ...]) -> Text:
    text = "–" if number.value is None else f"{number.value:.3f}"
    if number.low is not None and number.high is not None:
        text += f" [{number.low:.2f}, {number.high:.2f}]"
    if number.readable not in ("interpretable", "no data"):
        text += f" {harmless(number.readable)}"
    return Text(text).append(f" ({', '.join(f'{v:.3f}' for v in paper)})" if paper else "", "dim")


def to_markdown(made: list[Table], utility: list[Price], notes: list[str]) -> str:
    """The same for a page."""
    parts = ["# S²MIA (arXiv 2406.19234), Tables 1 to 4", *(f"- {note}" for note in notes)]
    for one in made:
        parts += ["", f"## {one.title}", "", *_rows((*one.labels, *one.columns))]
        for row in one.rows:
            cells = [str(_ours(n, p)) for n, p in zip(row.ours, row.paper, strict=True)]
            parts.append(_line((*row.labels, *cells)))
    parts += ["", "## Utility: answers to plain questions", "", *_rows(("dataset", "arm", *UTILITY))]
    parts += [_line((p.dataset, p.arm, *(str(_ours(n, ())) for n in p.numbers))) for p in utility]
    return "\n".join(parts) + "\n"


def _rows(columns: tuple[str, ...]) -> Iterator[str]:
    yield _line(columns)
    yield _line(tuple("---" for _ in columns))


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(harmless(c).replace("|", "\\|") for c in cells) + " |"


def to_json(made: list[Table], utility: list[Price], notes: list[str]) -> str:
    """The same for a program: every number with its interval, whether it may be read and why."""

    def numbers(ours: tuple[Number, ...], paper: tuple[tuple[float, ...], ...]) -> list[dict[str, Any]]:
        return [{**n._asdict(), "paper": list(p)} for n, p in zip(ours, paper, strict=True)]

    return json.dumps(
        {
            "notes": notes,
            "tables": [
                {
                    "title": t.title,
                    "columns": list(t.columns),
                    "rows": [{"labels": list(r.labels), "values": numbers(r.ours, r.paper)} for r in t.rows],
                }
                for t in made
            ],
            "utility": [
                {"dataset": p.dataset, "arm": p.arm}
                | {metric: number._asdict() for metric, number in zip(UTILITY, p.numbers, strict=True)}
                for p in utility
            ],
        },
        indent=2,
    )  # fmt: skip


def figure_2(db: duckdb.DuckDBPyConnection, design: Design, file: Path) -> None:
    """Figure 2: how the two scores are distributed over members and non-members, as SVG.

    :raises UsageError: the extra ``papers`` is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError(
            'plots need matplotlib, which is not installed; install it with: pip install "ragtrace-audit[papers]"'
        ) from error
    cells = [c for c in design.cells() if 2 in c.tables]
    figure = Figure(figsize=(9, 3.2 * len(cells)), layout="constrained")
    axes = figure.subplots(len(cells), len(FEATURES), squeeze=False)
    for row, cell in zip(axes, cells, strict=True):
        for axis, (feature, label) in zip(row, FEATURES.items(), strict=True):
            for member, name in ((True, "members"), (False, "non-members")):
                values = [v for (v,) in db.execute(
                    "SELECT value FROM scores JOIN (SELECT DISTINCT run_id, probe_id, arm, is_member FROM probes) "
                    "USING (run_id, probe_id, arm) WHERE run_id = ? AND arm = 'none' AND metric = ? AND is_member = ? "
                    "AND isfinite(value)", [run_id(design, cell), feature, member],
                ).fetchall()]  # fmt: skip
                if values:
                    axis.hist(values, bins=30, density=True, alpha=0.55, label=f"{name} (n={len(values)})")
            axis.set(xlabel=label, ylabel="density", title=cell.name)
            if axis.get_legend_handles_labels()[0]:
                axis.legend()
    figure.savefig(file, format="svg", metadata={"Date": None})
