"""The HTML page: rows arranged as they are read, in one file without network, scripts of others or style attributes."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from ragtrace.report.html import arranged as a
from ragtrace.report.html import plots as p
from ragtrace.report.terminal import harmless
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    from ragtrace.report.html.data import Report

Row = dict[str, Any]

_LONGEST = 2_000
_NAME = 100


def render(report: Report) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ragtrace.report.html"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    environment.filters |= {"nm": _name, "num": a.number, "ci": a.interval, "words": _words}
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    return environment.get_template("page.html.j2").render(
        report=report, hooks=HOOKS, style=Markup(style), script=Markup(script),  # noqa: S704 (files of ours)
        csp=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        alarms=a.alarms(report.sections["verdicts"]), matrix=a.matrix(report.sections["verdicts"]),
        counts=Counter(row["verdict"] for row in report.sections["verdicts"]), order=a.ORDER,
        by_path=a.by_path(report.sections["paths"]), flow=a.flow(report.sections["verdicts"]),
        readings=Counter(row["interpretable"] for row in report.sections["results"]),
        tables=a.tables(report), channels=a.split(report.sections["channels"]),
        families=a.families(report.sections["capabilities"]), plots=_plots(report, p.Drawn()),
    )  # fmt: skip


def _shown(value: Any) -> Any:
    """Every value that a template prints: foreign text becomes harmless, and never longer than a paragraph."""
    if isinstance(value, Markup | int | float):
        return value
    return "" if value is None else harmless(value, _LONGEST)


def _name(value: Any) -> str:
    return harmless(value, _NAME)


def _words(value: str | None) -> str:
    return (value or "unknown").replace("_", " ")


def _plots(report: Report, drawn: p.Drawn) -> dict[str, tuple[list[p.Plot], int]]:
    sections = report.sections
    scored = [r for r in sections["memberships"] if r["members"] and r["others"]]
    keys = ("run_id", "metric") if len(report.runs) > 1 else ("metric",)
    numbers = [r for r in sections["results"] if r["value"] is not None]
    numbers.sort(key=lambda r: (str(r["metric"]).startswith("utility"), "canary" not in str(r["metric"])))
    return {
        "roc": drawn.plots(p.by(scored, *keys), p.roc, 4),
        "roc_log": drawn.plots(p.by(scored, *keys), lambda axes, rows: p.roc(axes, rows, log=True), 4),
        "distributions": drawn.plots(p.by(p.first(scored), *keys, "arm"), p.distributions, 8, 2.4),
        "seeds": drawn.plots(p.by([r for r in sections["canaries"] if r["planted"]], *keys[:-1], "attack", "family"),
                             p.by_seed, 6),
        "coverage": drawn.plots(p.by(sections["curves"], *keys[:-1], "attack", "corpus"), p.coverage, 6),
        "forest": drawn.plots(p.by(numbers, "metric", "attack"), p.forest, 9),
        "trade": drawn.plots(p.by(a.trades(numbers), *keys[:-1], "leakage_metric"), p.trade_off, 4),
    }  # fmt: skip


def _asset(name: str) -> str:
    return files("ragtrace.report.html").joinpath("templates", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
