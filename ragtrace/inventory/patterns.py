"""Regular expressions that cannot match anything, and replacements that put back what they found."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from re import _parser  # type: ignore[attr-defined]  # isort: skip  # what `re` itself parses with

_REGEX = re.compile(r"\\[bdswBDSW](?![a-z]{2})|\[[\w.%+-]{3,}\][+*{]|\(\?[:i]")
_TEMPLATE = re.compile(r"\\g<(\w+)>|\\(\d)|(.)", re.DOTALL)
_LAID_OUT = re.compile(r"^\s*\n[ \t]+\S|\n[ \t]*[^\n]*[ \t]#[ \t]")
_BACKSPACE = 8  # what "\b" is without the r before it; no text has one
_CONSUMES = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "RANGE", "CATEGORY"}


@lru_cache(maxsize=512)
def impossible(pattern: str, flags: int = 0) -> bool:
    """Whether the pattern can match no text at all. ``False`` where that is not plain to see."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(pattern, flags)
    except (re.error, RecursionError, OverflowError):
        return False
    if "\n" in pattern and _LAID_OUT.search(pattern) and not tree.state.flags & re.VERBOSE:
        return True  # written over several lines, as only re.VERBOSE allows
    return _fails(tree, bool(tree.state.flags & re.MULTILINE))


def _fails(tree: Any, multiline: bool) -> bool:
    consumed, ended = False, False
    edges: set[str] = set()
    for op, value in tree:
        name = str(op)
        edges = edges | {str(value)} if name == "AT" else set()
        if {"AT_BOUNDARY", "AT_NON_BOUNDARY"} <= edges:
            return True
        if name == "LITERAL" and value == _BACKSPACE:
            return True
        if name == "FAILURE" or (name == "IN" and _empty(value)):
            return True
        if name == "AT" and not multiline:
            if str(value) in ("AT_BEGINNING", "AT_BEGINNING_STRING") and consumed:
                return True
            ended = ended or str(value) == "AT_END_STRING"
        if name == "AT" and str(value) == "AT_BEGINNING_STRING" and consumed:
            return True
        if name == "ASSERT_NOT" and not list(value[1]):
            return True
        if name == "ASSERT" and value[0] == 1 and _fails(value[1], multiline):
            return True
        if name == "SUBPATTERN" and _fails(value[-1], multiline or bool(value[1] & re.MULTILINE)):
            return True
        if name == "BRANCH" and all(_fails(b, multiline) for b in value[1]):
            return True
        if name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] > 0 and _fails(value[2], multiline):
            return True
        if name in _CONSUMES and ended:
            return True
        behind = name == "ASSERT" and value[0] == -1 and value[1].getwidth()[0] > 0
        consumed = consumed or behind or name in _CONSUMES or _least(name, value) > 0
    return _escaped_twice(tree) or _dollar_then_caret(tree, multiline) or _dollar_then_text(tree, multiline)


def _dollar_then_text(tree: Any, multiline: bool) -> bool:
    """``$a``: only a line end may follow an end."""
    after = False
    for op, value in tree:
        name = str(op)
        if after:
            name, value = _first(name, value)
            return name in _CONSUMES and not matches(name, value, "\n")
        after = name == "AT" and str(value) == "AT_END" and not multiline
    return False


def _first(name: str, value: Any) -> tuple[str, Any]:
    """The step that a step begins with; none where it may be left out."""
    while name in ("MAX_REPEAT", "MIN_REPEAT", "SUBPATTERN"):
        if not len(value[-1]) or (name != "SUBPATTERN" and not value[0]):
            return "", None
        op, value = value[-1][0]
        name = str(op)
    return name, value


def _escaped_twice(tree: Any) -> bool:
    """``\\\\d{3}``: a backslash, and three times the letter."""
    steps = [(str(op), *_first(str(op), value)) for op, value in tree] + [("", "", None)]
    for one, (op, name, value), after in zip(steps, steps[1:], steps[2:], strict=False):
        plain = op == "LITERAL" and after[0] == "LITERAL" and chr(after[2] or 0).isalpha()  # C:\\docs
        if one[1:] == ("LITERAL", 92) and name == "LITERAL" and chr(value) in "dwsb" and not plain:
            return True
    return False


def _dollar_then_caret(tree: Any, multiline: bool) -> bool:
    """``$^`` matches the empty text alone, where there is nothing to protect."""
    names = [str(value) for op, value in tree if str(op) == "AT"]
    return (
        not multiline
        and len(list(tree)) == len(names)
        and names[:2] in (["AT_END", "AT_BEGINNING"], ["AT_BEGINNING", "AT_END"])
    )


def _least(name: str, value: Any) -> int:
    if name == "SUBPATTERN":
        return int(value[-1].getwidth()[0])
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return int(value[0]) * int(value[2].getwidth()[0])
    if name == "BRANCH":
        return min(int(b.getwidth()[0]) for b in value[1])
    return 0


def _empty(items: Any) -> bool:
    """``[^\\s\\S]`` and the like: a class that leaves nothing."""
    found = [(str(op), str(value)) for op, value in items]
    if ("NEGATE", "None") not in found:
        return False
    kinds = {value for op, value in found if op == "CATEGORY"}
    return any({f"CATEGORY_{k}", f"CATEGORY_NOT_{k}"} <= kinds for k in ("SPACE", "WORD", "DIGIT"))


@lru_cache(maxsize=512)
def rebuilds(pattern: str, flags: int, template: str) -> bool:
    """Whether the groups of a pattern, which leave out nothing of the match, are put together in their order."""
    try:
        tree, known = _parser.parse(pattern, flags), re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError):
        return False
    matched: list[object] = []
    for op, value in tree:
        if str(op) == "SUBPATTERN" and value[0] is not None:
            matched.append(value[0])
        elif str(op) == "LITERAL" and not flags & re.IGNORECASE:
            matched.append(chr(value))
        elif str(op) != "AT":
            return False
    given = [
        int(n or name) if (n or name).isdigit() else known.groupindex.get(name, name) if name else letter
        for name, n, letter in _TEMPLATE.findall(template)
    ]
    return given == matched and any(isinstance(p, int) for p in given)


def literally(given: list[ast.expr]) -> bool:
    """Whether what ``str.replace`` is to look for is a regular expression, which no text holds as it is written."""
    first = given[0] if given else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and bool(_REGEX.search(first.value))


_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdigit, "SPACE": str.isspace, "WORD": lambda c: c.isalnum() or c == "_",
}  # fmt: skip


def matches(name: str, value: Any, letter: str) -> bool:
    """Whether a step of a pattern that consumes one character may consume this one."""
    if name == "LITERAL":
        return bool(value == ord(letter))
    if name == "NOT_LITERAL":
        return bool(value != ord(letter))
    if name == "ANY":
        return True
    if name == "RANGE":
        return bool(value[0] <= ord(letter) <= value[1])
    if name == "CATEGORY":
        kind = str(value).removeprefix("CATEGORY_")
        test = _CATEGORIES.get(kind.removeprefix("NOT_"))
        return test is not None and test(letter) is not kind.startswith("NOT_")
    if name == "IN":
        negated = any(str(op) == "NEGATE" for op, _ in value)
        return any(matches(str(op), v, letter) for op, v in value) is not negated
    return False


def puts_back(node: ast.AST | None) -> bool:
    """Whether a replacement is what was found: ``\\\\g<0>``, or ``lambda m: m.group()``."""
    if isinstance(node, ast.Constant):
        return node.value == r"\g<0>"
    if isinstance(node, ast.FunctionDef):
        bodies = [s.value for s in ast.walk(node) if isinstance(s, ast.Return)]
    else:
        bodies = [node.body] if isinstance(node, ast.Lambda) else []
    if not bodies or not isinstance(node, ast.Lambda | ast.FunctionDef) or not node.args.args:
        return False
    name = node.args.args[-1].arg
    whole = {f"{name}.group()", f"{name}.group(0)", f"{name}[0]"}
    return all(b is not None and ast.unparse(b) in whole for b in bodies)


def compiled(node: ast.expr | None) -> tuple[str, int] | None:
    """The pattern and flags of ``re.compile("…")``, where both are literal."""
    if not isinstance(node, ast.Call) or not node.args or not ast.unparse(node.func).endswith("compile"):
        return None
    return literal(node.args[0], [*node.args[1:], *(k.value for k in node.keywords)])


def literal(pattern: ast.expr, flags: list[ast.expr]) -> tuple[str, int] | None:
    """A pattern written out, with its flags."""
    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        return None
    value = 0
    for flag in flags:
        for part in ast.walk(flag):
            if isinstance(part, ast.Attribute):
                value |= int(getattr(re, part.attr, 0))
    return pattern.value, value
