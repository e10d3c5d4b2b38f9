"""Texts and documents to try a hook on: with and without something to protect, and with what its code looks for."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from re import _parser  # type: ignore[attr-defined]  # isort: skip  # what `re` itself parses with

from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.patterns import impossible, matches
from ragtrace.inventory.roots import FRAMEWORKS, in_framework
from ragtrace.inventory.trial.natives import patience
from ragtrace.inventory.trial.things import GiveUpError

RICH = (
    "Dear Dr. Alice Smith, write to jo.doe@mail.org or call +1 555-010-9999 or (212) 555-0147. SSN 123-45-6789, card "
    "4111 1111 1111 1111, IBAN DE89370400440532013000, ip 10.20.30.40, born 1980-02-29, 12 Main Street, id EMP-12345, "
    "password: hunter2, key sk-abcdef1234567890abcdef. Bob Jones lives in Paris. See https://example.com/x?y=1. "
    "Caf\u00e9 \u201cZo\u00eb\u201d & <b>\ufb01ne</b>\u200b."
)
PLAIN = "Nothing here that anybody would want to hide."
LONG = " ".join(f"word{i} of a long and quite ordinary text." for i in range(150))
_SPECIAL = re.compile(r"\\[bdswBDSWAZ]|[\[(]\S*[\])]|[.\w\])][+*?{]|\||^\^|\$$")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")  # no text has one
_MOST = 40
_ALPHABET = "a5 A-.@_:/,#xz\n"


def texts(words: list[str], structured: bool) -> list[str]:
    """The texts: all words in one, then the first ones each alone and in front; a JSON one for who reads JSON."""
    found = [f"{RICH} {' '.join(words)}", PLAIN]
    for word in words[:10]:
        found += [word, f"{word} {PLAIN}"]
    if structured:
        found.append(json.dumps({"answer": RICH, "text": PLAIN} | {w: RICH for w in words if w.isidentifier()}))
    return [*dict.fromkeys(found), f"  {PLAIN}\n\n {PLAIN} \n", LONG]


def words_of(mro: list[Class | str], node: ast.AST, module: Module) -> list[str]:
    """Texts that the code of a hook may look for: its literals, and matches of its patterns."""
    found: dict[str, None] = {}
    for text in literals(mro, node, module):
        for made in () if impossible(text) else samples(text) if _SPECIAL.search(text) else [text]:
            if 0 < len(made) <= 80 and not _CONTROL.search(made):
                found.setdefault(made)
        if len(found) >= _MOST:
            break
    return list(found)[:_MOST]


def literals(mro: list[Class | str], node: ast.AST, module: Module) -> Iterator[str]:
    """The texts in the code of a hook, and in what it names."""
    pending: list[tuple[ast.AST, Module]] = [(node, module)]
    pending += [(c.node, c.module) for c in mro if isinstance(c, Class)]
    seen: set[int] = set()
    while pending and len(seen) < 60:
        at, where = pending.pop(0)
        if id(at) in seen:
            continue
        seen.add(id(at))
        names: dict[str, None] = {}
        for part in _walk(at):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.strip():
                yield part.value
            elif isinstance(part, ast.Name):
                names.setdefault(part.id)
        for name in names:
            if where.imports.get(name, ("", None))[0].startswith(FRAMEWORKS):
                continue
            place = where.look_up(name)
            if place is not None and not in_framework(place[0].path):
                other = place[0].functions.get(place[1]) or place[0].constants.get(place[1])
                cls = place[0].classes.get(place[1])
                target = other if other is not None else cls.node if cls is not None else None
                if target is not None:
                    pending.append((target, place[0]))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but docstrings and annotations."""
    pending: list[ast.AST] = [node]
    while pending:
        at = pending.pop(0)
        yield at
        for field, value in ast.iter_fields(at):
            if field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    continue
                if isinstance(child, ast.AST) and not (isinstance(at, ast.Module) and isinstance(child, FunctionNode)):
                    pending.append(child)


@lru_cache(maxsize=1024)
def samples(pattern: str) -> list[str]:
    """Texts that a regular expression matches, one for each of its first branches; none where that is not plain."""
    found: list[str] = []
    for branch in range(4):
        try:
            patience(pattern, 0, 80)
            tree = _parser.parse(pattern)
            made = _made(list(tree), branch, {})
            if re.search(pattern, made) and made not in found:
                found.append(made)
        except (re.error, RecursionError, OverflowError, GiveUpError, LookupError):
            return found
    return found


def _made(items: list[Any], branch: int, groups: dict[int, str]) -> str:
    text = ""
    for op, value in items:
        name = str(op)
        if name == "LITERAL":
            text += chr(value)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            times = max(value[0], min(value[1], 1 if branch == 0 else 3))
            text += "".join(_made(list(value[2]), branch, groups) for _ in range(min(times, 40)))
        elif name == "SUBPATTERN":
            inner = _made(list(value[-1]), branch, groups)
            groups[value[0] or 0] = inner
            text += inner
        elif name == "BRANCH":
            text += _made(list(value[1][branch % len(value[1])]), branch, groups)
        elif name == "GROUPREF":
            text += groups[value]
        elif name == "ASSERT":
            text += _made(list(value[1]), branch, groups)
        elif name in ("IN", "ANY", "NOT_LITERAL", "CATEGORY", "RANGE"):
            text += next(c for c in _letters(branch) if matches(name, value, c))
    return text


def _letters(branch: int) -> Iterator[str]:
    yield from _ALPHABET[branch:]
    yield from map(chr, range(33, 127))
    raise LookupError("no letter")
