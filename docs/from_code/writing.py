"""Markdown by program: tables, and text that means no more than it says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\*_<>|\[\]$#~])")


def plain(text: object) -> str:
    """Text in which only code between backticks is marked up."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(str(text).split()))
    return "".join(p.replace("|", "\\|") if p.startswith("`") else _SPECIAL.sub(r"\\\1", p) for p in parts)


def code(text: object) -> str:
    """As code; nothing where there is no text."""
    shown = str(text).replace("|", "\\|")
    return f"`{shown}`" if shown else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def rest(text: str) -> str:
    """A block of reStructuredText, as docstrings are."""
    return f"```````{{eval-rst}}\n{text.strip()}\n```````\n"


def doc(thing: object) -> str:
    """The docstring that a class has of its own (or a module, or a function), without its indentation."""
    own = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    return inspect.cleandoc(own or "")
