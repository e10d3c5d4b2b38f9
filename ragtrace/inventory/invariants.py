"""Tests that always go one way for a reason that lies in what they ask, told by what the samples had them compare."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ragtrace.inventory.branches import exclusive
from ragtrace.inventory.members import source
from ragtrace.inventory.modules import Class, FunctionNode
from ragtrace.inventory.patterns import impossible
from ragtrace.inventory.trial import Trial

_ENOUGH = 3  # values that were alike each time
_DEEP = 6
_ROLES = frozenset("system user assistant tool".split())
Place = FunctionNode | ast.Lambda


def unchanging(test: ast.Compare) -> bool | None:
    """What a comparison of a length, a count or a distance with a constant says of any input."""
    right = test.comparators[0]
    if isinstance(right, ast.UnaryOp) and isinstance(right.op, ast.USub) and isinstance(right.operand, ast.Constant):
        bound: Any = -right.operand.value if isinstance(right.operand.value, int | float) else None
    else:
        bound = right.value if isinstance(right, ast.Constant) else None
    left = test.left
    name = source(left.func).rpartition(".")[2] if isinstance(left, ast.Call) else ""
    if name not in ("len", "abs", "count") or not isinstance(bound, int | float) or bound > 0:
        return None
    op = test.ops[0]
    if isinstance(op, ast.Lt) or (bound < 0 and isinstance(op, ast.LtE | ast.Eq)):
        return False
    return True if isinstance(op, ast.GtE) or (bound < 0 and isinstance(op, ast.Gt | ast.NotEq)) else None


class Invariants:
    """For the tests of one hook, after a trial."""

    def __init__(self, mro: list[Class], trial: Trial, ours: bool = False) -> None:
        self.mro = mro
        self.ours = ours  # whether messages are ragtrace's own
        self.trial = trial
        self.ways = trial.ways()

    def never(self, test: ast.expr, way: bool, function: Place | None, at: ast.AST, depth: int = 0) -> str:
        """Why a test that went one way never goes the other; "" where it may."""
        if depth > _DEEP or any(n in self.trial.open for n in ast.walk(test)):
            return ""
        told = f"`{source(test)}` (line {test.lineno})"
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.never(test.operand, not way, function, at, depth + 1)
        if isinstance(test, ast.BoolOp) and (found := self._joined(test, way, function, depth)):
            return found
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            plain = ast.Compare(self._value(test.left, function), test.ops, test.comparators)
            if unchanging(plain) is way or self._alike(test) or (not way and self._no_role(test)):
                return f"{told} is always {way}"
            if self._in_nothing(test):
                return f"{told} is always {way}: `{source(test.comparators[0])}` is empty"
        if isinstance(test, ast.Call) and (helper := self._helper(test, function)) is not None:
            inner, returned = helper
            if found := self.never(returned, way, inner, returned, depth + 1):
                return found
        if isinstance(test, ast.Name) and function is not None and (found := self._set(test.id, way, function, depth)):
            return found
        if self._vain(at) and not _optional(test, function):
            return f"{told} never finds what it looks for"
        if way and self._nullable(test, at):
            return f"{told} is true of any text"
        return ""

    def _joined(self, test: ast.BoolOp, way: bool, function: Place | None, depth: int) -> str:
        told = f"`{source(test)}` (line {test.lineno}) is always {way}"
        if exclusive(test) is way or (_contradicts(test) and isinstance(test.op, ast.Or) is way):
            return told
        went = [{w for n, w in self.trial.parts if n is v} for v in test.values]
        if all(len(w) == 2 for w in went):
            return told
        why = [self.never(v, way, function, v, depth + 1) if w == {way} else "" for v, w in zip(test.values, went,
                                                                                         strict=True)]  # fmt: skip
        one = isinstance(test.op, ast.And) is not way
        return next(filter(None, why), "") if one or all(why) else ""

    def _value(self, side: ast.expr, function: Place | None) -> ast.expr:
        """What a helper returns, or a variable is set to, where that is one expression."""
        if isinstance(side, ast.Call):
            helper = self._helper(side, function)
            return helper[1] if helper is not None else side
        if isinstance(side, ast.Name) and function is not None:
            stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == side.id
                      and isinstance(n.ctx, ast.Store)]  # fmt: skip
            made = [n.value for n in ast.walk(function) if isinstance(n, ast.Assign) and n.targets == stores]
            return made[0] if len(made) == 1 else side
        return side

    def _no_role(self, test: ast.Compare) -> bool:
        """Whether a test asks a message of ours for a role that none has, or a document for a text that all have."""
        right = test.comparators[0]
        asked = self.ours and isinstance(test.left, ast.Attribute) and test.left.attr == "role"
        if self.ours and isinstance(test.left, ast.Attribute) and test.left.attr in ("content", "id"):
            return isinstance(test.ops[0], ast.Is) and isinstance(right, ast.Constant) and right.value is None
        return (
            asked and isinstance(test.ops[0], ast.Eq) and isinstance(right, ast.Constant) and right.value not in _ROLES
        )

    def _in_nothing(self, test: ast.Compare) -> bool:
        """``word in self.words``, where these are none unless the constructor is given some."""
        right = test.comparators[0]
        values, empty = self.trial.alike.get(right, (set(), [False]))
        own = isinstance(right, ast.Attribute) and source(right.value) == "self"
        filled = any(right.attr in c.module.filled for c in self.mro) if isinstance(right, ast.Attribute) else True
        return own and not filled and empty[0] and bool(values) and isinstance(test.ops[0], ast.In | ast.NotIn)

    def _alike(self, test: ast.Compare) -> bool:
        """Whether two values, of which neither is a constant, were the same for any input."""
        if isinstance(test.left, ast.Constant) or isinstance(test.comparators[0], ast.Constant):
            return False
        values, same = self.trial.alike.get(test, (set(), [False]))
        return same[0] and len(values) >= _ENOUGH

    def _helper(self, call: ast.Call, function: Place | None) -> tuple[FunctionNode, ast.expr] | None:
        """A function in sight that does nothing but return an expression."""
        name = source(call.func)
        node: Any = None
        if name.startswith(("self.", "cls.")):
            name = name.partition(".")[2]
            node = next((c.methods[name] for c in self.mro if name in c.methods), None)
        else:
            node = next((m.functions[name] for m in {c.module for c in self.mro} if name in m.functions), None)
        body = node.body[1 if ast.get_docstring(node) else 0 :] if isinstance(node, FunctionNode) else []
        if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None and node is not function:
            return node, body[0].value
        return None

    def _set(self, name: str, way: bool, function: Place, depth: int) -> str:
        """Whether a variable is always so: wherever it is set to something else, that never happens."""
        if any(a.arg == name for a in (*function.args.args, *function.args.kwonlyargs)):
            return ""
        found = ""
        for node in ast.walk(function):
            if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)):
                continue
            place = next((s for s in ast.walk(function) if isinstance(s, ast.Assign | ast.AugAssign) and node in
                          (s.targets if isinstance(s, ast.Assign) else [s.target])), None)  # fmt: skip
            if place is None:
                return ""
            if isinstance(place, ast.Assign) and isinstance(place.value, ast.Constant):
                if bool(place.value.value) is way:
                    continue
            elif isinstance(place, ast.Assign) and (why := self.never(place.value, way, function, place, depth + 1)):
                found = why
                continue
            if not (why := self._unreached(place, function, depth)):
                return ""
            found = why
        return found

    def _unreached(self, statement: ast.stmt, function: Place, depth: int) -> str:
        """Why a statement never runs: an ``if`` around it never goes that way."""
        for node in ast.walk(function):
            if not isinstance(node, ast.If) or len(self.ways.get(node, ())) != 1:
                continue
            (way,) = self.ways[node]
            lost = node.orelse if way else node.body
            if any(s is statement for part in lost for s in ast.walk(part)) and (
                why := self.never(node.test, way, function, node, depth + 1)
            ):
                return why
        return ""

    def _vain(self, at: ast.AST) -> bool:
        """Whether nothing that was searched for can be found, though samples hold it."""
        sought = self.trial.sought.get(at, set())
        vain = [s for s in sought if s in self.trial.held or (isinstance(s, str) and impossible(s))]
        rest = sought - set(vain)
        return bool(vain) and all(isinstance(s, tuple) and not self.trial.looked.get(s, False) for s in rest)

    def _nullable(self, test: ast.expr, at: ast.AST) -> bool:
        sought = self.trial.sought.get(at, set())
        name = source(test.func).rpartition(".")[2] if isinstance(test, ast.Call) else ""
        return name in ("search", "match") and bool(sought) and all(isinstance(s, str) and _empty(s) for s in sought)


def _contradicts(test: ast.BoolOp) -> bool:
    """``x and not x``."""
    said = {source(v) for v in test.values}
    return any(
        isinstance(v, ast.UnaryOp) and isinstance(v.op, ast.Not) and source(v.operand) in said for v in test.values
    )


def _empty(pattern: str) -> bool:
    try:
        return re.match(pattern, "") is not None
    except re.error:
        return False


def _optional(test: ast.expr, function: Place | None) -> bool:
    """Whether a test asks of an argument that samples leave out, or of what the object holds."""
    left_out = {a.arg for a in _optionals(function)} if function is not None else set()
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id in left_out:
            return True
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(isinstance(s, ast.Attribute) and source(s.value) == "self" for s in sides[:1]):
            return True
    return False


def _optionals(function: Place) -> Iterator[ast.arg]:
    spec = function.args
    yield from spec.args[len(spec.args) - len(spec.defaults) :]
    yield from (a for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None)
