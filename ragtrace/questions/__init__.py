"""Named questions about traces: one ``.sql`` file each, asked with ``ragtrace ask NAME``.

A file begins with comments: the first line is the question, the next ones say what the answer's rows are, and a line
``:name TYPE default  meaning`` is a parameter, which the SQL has as ``$name``. What follows is one statement over the
views. A file of your own works by its path. Adding a question is adding one file, and its rows in and out to
``tests/test_questions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ragtrace.errors import UsageError

_SUFFIX = ".sql"
_PARAMETER = re.compile(r":(?P<name>[a-z_]+) +(?P<kind>TEXT|INTEGER|NUMBER) +(?P<default>\S+) +(?P<meaning>.+)")
Value = str | int | float | None
_KINDS: dict[str, Callable[[str], Value]] = {"TEXT": str, "INTEGER": int, "NUMBER": float}


class Parameter(NamedTuple):
    """``default`` is ``None`` (written NULL) where the question is then about everything."""

    kind: str
    default: Value
    meaning: str

    def read(self, name: str, given: str) -> Value:
        """:raises UsageError: not of this kind."""
        try:
            return _KINDS[self.kind](given)
        except ValueError:
            raise UsageError(f"{name}={given!r}; expected {name}=<{self.kind.lower()}>: {self.meaning}") from None


class Question(NamedTuple):
    """One question; ``title`` is a sentence, ``description`` says what the rows of its answer are."""

    name: str
    title: str
    description: str
    parameters: dict[str, Parameter]
    sql: str

    def bound(self, given: list[str]) -> dict[str, Value]:
        """The values of the parameters, from words such as ``limit=5``.

        :raises UsageError: a word that is not of this form, or names no parameter of this question.
        """
        values = {name: parameter.default for name, parameter in self.parameters.items()}
        for word in given:
            name, equals, value = word.partition("=")
            if not equals or name not in self.parameters:
                known = ", ".join(f"{n}=<{p.kind.lower()}>" for n, p in self.parameters.items()) or "none"
                raise UsageError(f"{word!r} is no parameter of {self.name!r}; expected some of: {known}")
            values[name] = self.parameters[name].read(name, value)
        return values


@cache
def load() -> dict[str, Question]:
    """Every question of the library, by name, in alphabetical order."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith(_SUFFIX))
    made = (parse(file.name.removesuffix(_SUFFIX), file.read_text("utf-8")) for file in found)
    return {question.name: question for question in sorted(made)}


def find(name: str) -> Question:
    """A question by its name, or a file of your own by its path.

    :raises UsageError: there is none.
    """
    if name in load():
        return load()[name]
    if name.endswith(_SUFFIX):
        path = Path(name).expanduser()
        try:
            return parse(path.stem, path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the question in {path}: {error}; expected an SQL file") from error
    near = get_close_matches(name, load(), 3)
    said = f"did you mean {', '.join(near)}?" if near else "`ragtrace ask list` names them"
    raise UsageError(f"no question is called {name!r}; {said}")


def parse(name: str, text: str) -> Question:
    """A question from the text of its file.

    :raises UsageError: it does not begin with a comment that asks it, or has no statement.
    """
    lines = text.strip().splitlines()
    head = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
    sql = "\n".join(line for line in lines if not line.startswith("--")).strip()
    if not head or not sql or not lines[0].startswith("--"):
        raise UsageError(f"question {name!r}: expected a first line '-- What is asked?', and a statement below")
    parameters = {}
    said = []
    for line in head[1:]:
        if found := _PARAMETER.fullmatch(line):
            parameter = Parameter(found["kind"], None, found["meaning"])
            if found["default"] != "NULL":
                parameter = parameter._replace(default=parameter.read(found["name"], found["default"]))
            parameters[found["name"]] = parameter
        else:
            said.append(line)
    return Question(name, head[0], " ".join(said), parameters, sql)
