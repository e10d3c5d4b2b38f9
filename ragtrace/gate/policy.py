"""Policies: TOML in, rules out; whatever is misspelt is told with the right word beside it."""

from __future__ import annotations

import math
import re
import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ragtrace.errors import InputError, UsageError
from ragtrace.gate.rules import load
from ragtrace.gate.rules.base import Rule, nearest
from ragtrace.gate.writing import write_whole

_NO_DATA = ("breach", "pass")
_NAMES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Listed:
    """A rule as it stands in a policy: its table, and the line of that in the file."""

    rule: Rule
    line: int | None = None


@dataclass(frozen=True)
class Policy:
    """Rules, and whether what cannot be judged is a breach. ``source`` is the file; ``None`` for the default."""

    rules: tuple[Listed, ...]
    no_data: str = "breach"
    source: Path | None = None

    def has(self, name: str) -> bool:
        """Whether a rule of this name is in it."""
        return any(listed.rule.name == name for listed in self.rules)


def template() -> str:
    """The default policy, with a comment on everything that a policy may say."""
    return files("ragtrace.gate").joinpath("policy.toml").read_text("utf-8")


def default(*, baseline: bool = False) -> Policy:
    """The policy where none is given; with a baseline, no verdict may be worse than there."""
    standing = _policy(template(), None)
    added = (Listed(load()["not_worse"]()),) if baseline else ()
    return Policy(standing.rules + added, standing.no_data)


def read(path: Path) -> Policy:
    """The policy in a TOML file.

    :raises InputError: no such file, or no TOML.
    :raises UsageError: a rule, key or value that is not known.
    """
    try:
        text = path.expanduser().read_text("utf-8")
        return _policy(text, path)
    except OSError as error:
        raise InputError(
            f"cannot read the policy {path}: {error.strerror}; write one with `ragtrace check --init --policy {path}`"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is no TOML ({error}); `ragtrace check --init` writes a policy to begin with"
        ) from error


def write_template(path: Path) -> None:
    """Writes the commented default policy, and never over a file that is there.

    :raises UsageError: there is one, or it cannot be written.
    """
    if path.expanduser().exists():
        raise UsageError(f"{path} is there already; give another file with --policy, or edit that one")
    write_whole(path, template())


def _policy(text: str, source: Path | None) -> Policy:
    return made(tomllib.loads(text), source, text)


def made(told: Mapping[str, Any], source: Path | None = None, text: str = "") -> Policy:
    """The policy in a mapping, as TOML gives one.

    :param text: the file, to find the lines of its tables in.
    :raises UsageError: a rule, key or value that is not known.
    """
    where = str(source) if source else "the policy"
    rules = load()
    standing = told.get("no_data", "breach")
    if standing not in _NO_DATA:
        raise UsageError(f'{where}: no_data is {standing!r}; expected "breach" or "pass"')
    listed: list[Listed] = []
    for name, given in told.items():
        if name == "no_data":
            continue
        if name not in rules:
            raise UsageError(f"{where}: there is no rule {name!r}; {nearest(name, [*rules, 'no_data'])}")
        heads = re.finditer(rf"(?m)^[ \t]*(\[+)[ \t]*{re.escape(name)}[ \t]*\]", text)
        lines = [text.count("\n", 0, head.start(1)) + 1 for head in heads]
        for number, table in enumerate(given if isinstance(given, list) else [given]):
            line = lines[number] if number < len(lines) else None
            listed.append(Listed(_made(rules[name], table, f"{where}, [{name}]"), line))
    if not listed:
        raise UsageError(f"{where} has no rule; expected some of [{'], ['.join(sorted(rules))}]")
    return Policy(tuple(listed), standing, source)


def _made(kind: type[Any], table: object, where: str) -> Any:
    """A rule or another dataclass from its table."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} is {table!r:.100}; expected a table of keys")
    hints = get_type_hints(kind)
    wanted = {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in wanted:
            raise UsageError(f"{where} has no key {key!r}; {nearest(key, wanted)}")
        values[key] = _value(hints[key], value, f"{where}: {key}")
    for name, field in wanted.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(f"{where} has no {name}; expected `{name} = …`")
    try:
        return kind(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _value(kind: Any, given: Any, where: str) -> Any:
    """``given`` as a field of type ``kind``."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (k for k in get_args(kind) if k is not type(None))
    if get_origin(kind) is Literal:
        if given not in get_args(kind):
            raise UsageError(f"{where} is {given!r:.100}; {nearest(given, get_args(kind))}")
        return given
    if get_origin(kind) is tuple:
        if not isinstance(given, list):
            raise UsageError(f"{where} is {given!r:.100}; expected a list")
        return tuple(_value(get_args(kind)[0], item, f"{where}[{n}]") for n, item in enumerate(given))
    if is_dataclass(kind) and isinstance(kind, type):
        return _made(kind, given, where)
    accepted = {float: (int, float)}.get(kind, (kind,))
    if not isinstance(given, accepted) or (isinstance(given, bool) and kind is not bool):
        raise UsageError(f"{where} is {given!r:.100}; expected {_NAMES[kind]}")
    if isinstance(given, float) and not math.isfinite(given):
        raise UsageError(f"{where} is {given}; expected a finite number")
    return given
