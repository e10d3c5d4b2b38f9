"""Span attributes, read from the source of ``ragtrace.record.attributes``: its comments are what is known of each."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from typing import NamedTuple

from from_code.writing import code, plain, table

CONVENTION = {
    "gen_ai.request.model": "the model that was asked for",
    "gen_ai.response.model": "the model that answered",
    "gen_ai.usage.input_tokens": "tokens of the prompt",
    "gen_ai.usage.output_tokens": "tokens of the response",
    "gen_ai.conversation.id": "the conversation that the request belongs to",
}
"""Names of the GenAI semantic conventions that mean there what they say; our source need not say it again."""
_TOOLING = re.compile(r"\s*noqa:.*$")


class Attribute(NamedTuple):
    """One name, and what the comment at its line (or above it) says."""

    constant: str
    name: str
    means: str
    section: str


def read() -> list[Attribute]:
    """In the order of the source."""
    from ragtrace.record import attributes

    source = inspect.getsource(attributes)
    comments = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines, found, section = source.splitlines(), [], ""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        at = node.lineno
        above: list[str] = []
        while comments.get(at - 1, ("", False))[1]:
            at -= 1
            above.insert(0, comments[at][0])
        own = _TOOLING.sub("", comments.get(node.lineno, ("", False))[0])
        headed = at > 1 and not lines[at - 2].strip()  # a comment after an empty line heads a section
        if above and headed:
            section, above = above[0], above[1:]
        name = ast.literal_eval(node.value) if node.value is not None else ""
        means = own or " ".join(above) or CONVENTION.get(name, "")
        found.append(Attribute(node.target.id, name, means, section))
    return found


def markdown() -> str:
    """A table a section."""
    made, sections = [], dict.fromkeys(a.section for a in read())
    for section in sections:
        rows = [(code(a.name), plain(a.means)) for a in read() if a.section == section]
        title = section[:1].upper() + section[1:] if section else "Instrumentation scope"
        made.append(f"## {title}\n\n{table(('name', 'is'), rows)}")
    return "\n".join(made)
