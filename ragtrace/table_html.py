"""Tables for a notebook: HTML with its style in it, whose colours are the notebook's own, dark or light.

What comes from a trace is text: shortened, without control characters, escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ragtrace.report.terminal import harmless

Row = dict[str, Any]
HOOKS = ("query", "retrieval", "content", "prompt", "response")
_LONGEST = 200  # characters of a cell
_SAID = 600  # of a sentence
_ROWS = 100
_COLUMNS = 24
# dots of at least 3:1 against white and against a dark notebook; the word beside them says the same
_GOOD, _BAD, _CARE = "#2da44e", "#e5534b", "#bf8700"
_DOTS = {
    "active": _GOOD, "interpretable": _GOOD,
    "silent_stub": _BAD, "bypassed": _BAD, "error": _BAD, "undeclared": _BAD,
    "pass_through": _CARE, "dormant": _CARE, "not_run": _CARE, "unknown": _CARE,
    "nuisance": _CARE, "indirect": _CARE, "entangled": _CARE, "reversal": _CARE, "no data": _CARE,
}  # fmt: skip
_CELL = "padding:.3em .8em;text-align:left;vertical-align:top;border-bottom:1px solid rgba(128,128,128,.4)"
_BREAK = "max-width:40em;overflow-wrap:anywhere;white-space:normal"


def verdicts(rows: list[Row]) -> str:
    """The matrix defense × hook; the evidence below, folded."""
    if not rows:
        return _framed(_said("No defense is declared, observed or inventoried in this database."))
    hooks = [*HOOKS, *dict.fromkeys(r["hook"] for r in rows if r["hook"] not in HOOKS)]
    cells = {(r["defense"], r["hook"]): r for r in rows}
    defenses = list(dict.fromkeys(r["defense"] for r in rows))
    body = [[_text(d), *(_verdict(cells.get((d, hook))) for hook in hooks)] for d in defenses[:_ROWS]]
    evidence = [
        f"<li><b>{_text(r['defense'])}</b> · {_text(r['hook'] or 'hook not known')} · {_text(r['verdict'])}: "
        f"{_text(r['evidence'], _SAID)}</li>"
        for r in rows[:_ROWS]
    ]
    heads = ["defense", *(_text(h if h is not None else "hook not known") for h in hooks)]
    return _framed(
        _grid("Where does each defense act?", heads, body), _more(len(defenses), "defenses"),
        _folded("Evidence", evidence),
    )  # fmt: skip


def results(rows: list[Row]) -> str:
    """Metrics × arms for each run, each number with its interval and reading; the reasons below, folded."""
    if not rows:
        return _framed(_said("No results in this database: nothing was scored."))
    parts = []
    for run in dict.fromkeys(r["run_id"] for r in rows):
        mine = [r for r in rows if r["run_id"] == run]
        arms = sorted({str(r["arm"]) for r in mine}, key=lambda arm: (arm != "none", arm))
        keys = list(dict.fromkeys((r["metric"], r["attack"], r["corpus"]) for r in mine))
        cells = {(r["metric"], r["attack"], r["corpus"], str(r["arm"])): r for r in mine}
        body = [
            [
                f"{_text(key[0])}<br><small>{_text(' · '.join(str(k) for k in key[1:] if k))}</small>",
                *(_number_cell(cells.get((*key, arm))) for arm in arms),
            ]
            for key in keys[:_ROWS]
        ]
        why = [
            f"<li><b>{_text(r['metric'])}</b> · {_text(r['arm'])} · {_text(r['interpretable'])}: "
            f"{_text(r['reason'], _SAID)}</li>"
            for r in mine if r["interpretable"] != "interpretable"
        ]  # fmt: skip
        title = f"What leaked in {_text(run)}, with 95 % intervals, and may the number be read?"
        parts += [_grid(title, ["metric", *map(_text, arms)], body), _more(len(keys), "metrics")]
        parts.append(_folded("Why numbers may not be read", why[:_ROWS]))
    return _framed(*parts)


def plain(columns: Sequence[str], rows: list[Row]) -> str:
    """Any rows."""
    names = list(columns)[:_COLUMNS]
    body = [[_text(row[name]) for name in names] for row in rows[:_ROWS]]
    return _framed(
        _grid(None, [_text(n) for n in names], body), _more(len(rows), "rows"),
        _more(len(columns), "columns", _COLUMNS),
    )  # fmt: skip


def _verdict(row: Row | None) -> str:
    if row is None:
        return "–"
    ran = f"<br><small>changed {_count(row['changed'])} of {_count(row['runs'])} runs</small>" if row["runs"] else ""
    return f"{_word(row['verdict'])}{ran}"


def _number_cell(row: Row | None) -> str:
    if row is None:
        return "–"
    interval = "" if row["ci_low"] is None else f" <small>[{_number(row['ci_low'])}, {_number(row['ci_high'])}]</small>"
    return f"{_number(row['value'])}{interval}<br><small>{_word(row['interpretable'])}</small>"


def _word(word: Any) -> str:
    dot = _DOTS.get(str(word))
    shown = _text(word)
    return f'<span style="color:{dot}" aria-hidden="true">●</span> {shown}' if dot else shown


def _number(value: float | None) -> str:
    return "–" if value is None else escape(f"{value:.3g}")


def _count(value: Any) -> str:
    return "?" if value is None else _text(value)


def _text(value: Any, longest: int = _LONGEST) -> str:
    if isinstance(value, float):
        return _number(value)
    return "–" if value is None else escape(harmless(value, longest))


def _grid(title: str | None, heads: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    caption = f'<caption style="text-align:left;font-weight:bold;color:inherit">{title}</caption>' if title else ""
    head = "".join(f'<th scope="col" style="{_CELL};color:inherit">{cell}</th>' for cell in heads)
    rows = "".join(
        "<tr>" + "".join(f'<td style="{_CELL};{_BREAK}"><bdi>{cell}</bdi></td>' for cell in row) + "</tr>"
        for row in body
    )
    return (
        '<table style="border-collapse:collapse;color:inherit;background:transparent;margin:.5em 0">'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _more(there: int, what: str, shown: int = _ROWS) -> str:
    return _said(f"… and {there - shown} more {what}") if there > shown else ""


def _said(sentence: str) -> str:
    return f"<p>{escape(sentence)}</p>"


def _folded(summary: str, items: list[str]) -> str:
    if not items:
        return ""
    return f'<details><summary>{escape(summary)}</summary><ul style="{_BREAK}">{"".join(items)}</ul></details>'


def _framed(*parts: str) -> str:
    return f'<div style="overflow-x:auto;max-width:100%;color:inherit">{"".join(parts)}</div>'
