"""The report as Markdown: verdicts, results, what is missing. For a pull request or a chat, where no plot fits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ragtrace.report.html.arranged import alarms, interval, matrix, number, tables
from ragtrace.report.terminal import harmless
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    from ragtrace.report.html.data import Report

_NAME = 100


def render(report: Report) -> str:
    """The whole report as text."""
    parts = [f"# Privacy defenses of {said(report.database)}", "", *_verdicts(report), *_results(report)]
    if report.sections["losses"]:
        parts += ["", "## What is missing", "", f"{report.facts['lost']} spans are lost."]
    parts += ["", *(f"- {name}: left out: {why}" for name, why in report.missing.items())]
    return "\n".join(parts).rstrip() + "\n"


def said(value: Any, longest: int = _NAME) -> str:
    """Foreign text as text: nothing in it is Markdown or HTML."""
    text = harmless("" if value is None else value, longest).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]()#!|~>@-])", r"\\\1", text)


def _verdicts(report: Report) -> list[str]:
    found = report.sections["verdicts"]
    if not found:
        return ["## Where does each defense act?", "", f"Nothing to show: {report.missing['verdicts']}."]
    hooks: list[str | None] = [*HOOKS, *([None] if any(row["hook"] is None for row in found) else [])]
    lines = ["## Where does each defense act?", ""]
    lines += [
        f"- **{row['verdict'].replace('_', ' ')}**: {said(row['defense'])} at {row['hook'] or 'an unknown hook'}: "
        f"{said(row['evidence'], 2_000)}"
        for row in alarms(found)
    ]
    head = ("defense", *(h or "hook not known" for h in hooks))
    cells = (
        (said(d), *(said(row["verdict"].replace("_", " ")) if (row := own.get(h)) else "" for h in hooks))
        for d, own in matrix(found)
    )
    return [*lines, "", *_table(head, cells)]


def _results(report: Report) -> list[str]:
    lines = ["", "## What leaked, and may the number be read?", ""]
    if report.weak_model:
        lines += ["The embedded model is tiny: instrument checks, not findings about any model.", ""]
    for table in tables(report):
        rows = (
            (f"{said(line['metric'])} ({said(line['attack'])})",
             *(_cell(line["cells"].get(arm)) for arm in table["arms"]))
            for line in table["lines"]
        )  # fmt: skip
        lines += [f"### {said(table['run'])}", "", *_table(("metric", *map(said, table["arms"])), rows)]
        if table["empty"]:
            lines += ["", f"{len(table['empty'])} metrics have no number."]
        lines.append("")
    if not report.sections["results"]:
        lines.append(f"Nothing to show: {report.missing['results']}.")
    return lines


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not asked"
    if row["value"] is None:
        return said(row["interpretable"])
    return f"{number(row['value'])} ({interval(row)}) {said(row['interpretable'])}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
