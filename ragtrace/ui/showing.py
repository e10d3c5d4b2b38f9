"""How values get into pages: escaped, without control characters, never longer than a paragraph."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from ragtrace.report.html import arranged
from ragtrace.report.html.words import fit
from ragtrace.report.terminal import harmless
from ragtrace.types import HOOKS
from ragtrace.ui.index import NAME
from ragtrace.ui.searching import STATUSES

_LONGEST, _LINE = 2_000, 140
_TEMPLATES = "ragtrace.report.html"
ASSETS = {
    "page.css": (_TEMPLATES, "templates", "text/css"),
    "ui.css": ("ragtrace.ui", "static", "text/css"),
    "ui.js": ("ragtrace.ui", "static", "text/javascript"),
    "enter.js": ("ragtrace.ui", "static", "text/javascript"),
    "icon.svg": ("ragtrace.ui", "static", "image/svg+xml"),
}


class Pages:
    """The templates."""

    def __init__(self, database: str, show: bool) -> None:
        environment = jinja2.Environment(
            loader=jinja2.ChoiceLoader([
                jinja2.PackageLoader("ragtrace.ui"), jinja2.PrefixLoader({"report": jinja2.PackageLoader(_TEMPLATES)}),
            ]),
            autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown,
        )  # fmt: skip
        environment.filters |= {
            "nm": lambda value: harmless(value, NAME),
            "words": lambda value: (value or "unknown").replace("_", " "),
            "num": lambda value: "–" if value is None else f"{value:.3g}" if abs(value) < 1 else f"{value:,.1f}",
            "count": lambda value: f"{value:,}",
            "when": _when,
            "fitted": lambda value: fit(value, show, _LINE),
        }
        environment.globals |= {
            "database": database, "show": show, "hooks": HOOKS, "statuses": STATUSES, "link": link, "raw": raw,
            "bad": (*arranged.GRAVE, "late"),
        }  # fmt: skip
        self._environment = environment

    def render(self, name: str, **values: Any) -> str:
        """A page."""
        return self._environment.get_template(f"{name}.html.j2").render(values)


def link(path: str, *parts: str, **query: Any) -> Markup:
    """An address for ``href``: never cut, since half an address leads elsewhere."""
    told = {k: v for k, v in query.items() if v not in (None, "")}
    address = path + "/".join(quote(part, safe="") for part in parts) + (f"?{urlencode(told)}" if told else "")
    return escape(address)


def raw(value: str) -> Markup:
    """A value for a form's field as it is, apart from what HTML needs."""
    return escape(value)


def asset(name: str) -> tuple[str, str] | None:
    """Text and media type of a file that pages use."""
    if name not in ASSETS:
        return None
    package, folder, media = ASSETS[name]
    return files(package).joinpath(folder, name).read_text("utf-8"), media


def numbered(form: Mapping[str, str]) -> dict[str, str]:
    """What a question's form said: ``value.NAME`` → NAME."""
    return {k.removeprefix("value."): v for k, v in form.items() if k.startswith("value.")}


def _when(value: Any) -> str:
    """A time to the millisecond; one that no calendar holds comes as text."""
    return f"{value:%Y-%m-%d %H:%M:%S.%f}"[:-3] if isinstance(value, datetime) else harmless(value, NAME)


def _shown(value: Any) -> Any:
    if isinstance(value, Markup | int | float):
        return value
    return "" if value is None else harmless(value, _LONGEST)
