"""The table of names by which the app's own code says that it protects data: ``names.toml``, or a user's."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from ragtrace.errors import UsageError
from ragtrace.types import HOOKS, Hook

_OWN = Path(__file__).with_name("names.toml")


@dataclass(frozen=True)
class Names:
    """``methods``: method name → hook. ``words``: what a name of a runnable or parser that protects has in it."""

    methods: Mapping[str, Hook]
    words: frozenset[str]

    def protective(self, name: str) -> bool:
        """Whether a name, in camel or snake case, says that what it names protects data."""
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
        return name in self.methods or any(part.lower() in self.words for part in parts)


Given = Mapping[str, str] | str | os.PathLike[str] | None


def table(given: Given = None) -> Names:
    """The package's table, with ``given`` added: method name → hook, or a TOML file with such a ``[methods]`` table.

    :raises UsageError: for a file that cannot be read, or a hook that is none.
    """
    own = _own()
    if given is None:
        return own
    if isinstance(given, Mapping):
        extra, words, where = dict(given), frozenset[str](), "names"
    else:
        where = str(given)
        extra, words = _read(Path(given))
    for name, hook in extra.items():
        if hook not in HOOKS:
            raise UsageError(f"{where}: method {name!r} is at hook {hook!r}; expected one of {', '.join(HOOKS)}")
    return Names({**own.methods, **cast("dict[str, Hook]", extra)}, own.words | words)


@lru_cache(maxsize=1)
def _own() -> Names:
    methods, words = _read(_OWN)
    return Names(cast("dict[str, Hook]", methods), words)


def _read(path: Path) -> tuple[dict[str, str], frozenset[str]]:
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f'--names {path}: {error}; expected a TOML file with a [methods] table, as in: redact_all = "response"'
        ) from error
    methods, words = found.get("methods", {}), found.get("words", {})
    if not isinstance(methods, dict) or not isinstance(words, dict):
        raise UsageError(f"--names {path}: [methods] and [words] must be tables; found something else")
    return methods, frozenset(str(w) for w in words.get("list", ()))
