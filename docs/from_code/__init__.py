"""Sphinx extension: ``<!-- from the code: views -->`` in a page becomes what the code says of itself at that moment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from from_code import attributes, cards, commands, interface, questions, rules, views

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

MADE = {
    "attacks": cards.attacks,
    "attributes": attributes.markdown,
    "audit-file": interface.audit_file,
    "commands": commands.markdown,
    "corpora": cards.corpora,
    "defenses": cards.defenses,
    "errors": interface.errors,
    "metrics": cards.metrics,
    "policy": rules.policy,
    "python": interface.python,
    "python-analyst": interface.analyst,
    "questions": questions.markdown,
    "rules": rules.markdown,
    "views": views.markdown,
}
_FIELD = re.compile(r"(?<=\S) (?=:(?:param \w+|raises \w+):)")
MARK = re.compile(r"^<!-- from the code: ([\w-]+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """The page with every mark replaced. A mark that nobody makes is an error of the page's author."""
    return MARK.sub(lambda mark: MADE[mark[1]](), text)


def fields_apart(docstring: list[str]) -> list[str]:
    """Several fields of a docstring may stand in one line of source; reStructuredText wants one a line."""
    lines = []
    for line in docstring:
        indent = line[: len(line) - len(line.lstrip())]
        first, *others = _FIELD.split(line)
        lines += [first, *(indent + other for other in others)]
    return lines


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx. Pages with marks are read anew each time: Sphinx does not watch the code they are made from."""

    def read(_: Sphinx, __: str, source: list[str]) -> None:
        source[0] = filled(source[0])

    def process(_: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
        lines[:] = fields_apart(lines)

    def marked(_: Sphinx, env: BuildEnvironment, *__: object) -> list[str]:
        return [page for page in env.found_docs if MARK.search(Path(env.doc2path(page)).read_text("utf-8"))]

    app.connect("env-get-outdated", marked)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
