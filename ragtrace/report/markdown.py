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
    parts += [*_tradeoffs(report), *_replications(report)]
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


def _tradeoffs(report: Report) -> list[str]:
    """For every run and arm what it lowers and raises; a row without a direction shows no difference."""
    found = report.sections["tradeoffs"]
    if not found:
        return []
    several = len({row["run_id"] for row in found}) > 1
    head = (*(["run"] if several else []),
            "arm", "what", "channel", "without", "with", "change", "difference", "direction", "reading")  # fmt: skip
    lines = ["", "## What does each defense trade?", ""]
    flagged = dict.fromkeys((r["run_id"], r["arm"], r["channel"]) for r in found if r["trade_off"])
    for run, arm, channel in flagged:
        own = [r for r in found if (r["run_id"], r["arm"], r["channel"]) == (run, arm, channel) and r["trade_off"]]
        told = (f"{verb} {', '.join(dict.fromkeys(said(r['type']) for r in own if r['direction'] == verb))}"
                for verb in ("lowers", "raises"))  # fmt: skip
        lines.append(f"- **trade-off**: {said(arm)} {' and '.join(told)} in the {said(channel)} channel")
    rows = (
        (*([said(r["run_id"])] if several else []), said(r["arm"]), f"{said(r['kind'])} {said(r['type'])}",
         said(r["channel"]), number(r["before"]), number(r["after"]), _share(r),
         f"{r['difference']:+.2f} ({interval(r)})", said(r["direction"] or "no difference shown"),
         said(", ".join(filter(None, (r["interpretable"], r["certified"] and f"certified: {r['certified']}")))))
        for r in found
    )  # fmt: skip
    return [*lines, "", *_table(head, rows)]


def _share(row: dict[str, Any]) -> str:
    if row["change"] is None:
        return "nothing before"
    ends = "" if row["change_low"] is None else f" ({100 * row['change_low']:+.0f} to {100 * row['change_high']:+.0f})"
    return f"{100 * row['change']:+.0f} %{ends}"


def _replications(report: Report) -> list[str]:
    """One seed is said once; with more, each number with its intervals and what it may be called."""
    found = report.sections["replications"]
    if not found:
        return []
    lines = ["", "## Would the numbers come out again?", ""]
    several = [r for r in found if len(r["seeds"]) > 1]
    if len(several) < len(found):
        lines.append(f"{len(found) - len(several)} numbers rest on one seed: a case study, no findings.")
    lines += [
        f"- {said(arm)} answers as {said(other)} throughout ({said(attack)}): one observation, not two"
        for arm, other, attack in dict.fromkeys((r["arm"], r["repeats"], r["attack"]) for r in found if r["repeats"])
    ]
    if not several:
        return lines
    ends = ("within", "between", "document")
    rows = (
        (said(r["run_id"]), f"{said(r['metric'])} ({said(r['attack'])})", said(r["arm"]), number(r["value"]),
         *(interval({"ci_low": r[f"{e}_low"], "ci_high": r[f"{e}_high"]}) for e in ends),
         f"{r['replicates']} of {len(r['seeds'])}", said(r["standing"]))
        for r in several
    )  # fmt: skip
    head = ("run", "metric", "arm", "number", "within the run", "between seeds", "over documents", "seeds", "standing")
    return [*lines, "", *_table(head, rows)]


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not asked"
    if row["value"] is None:
        return said(row["interpretable"])
    return f"{number(row['value'])} ({interval(row)}) {said(row['interpretable'])}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
