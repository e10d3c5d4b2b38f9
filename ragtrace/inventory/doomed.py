"""Statements that are sure to raise: a name, an attribute or a module that is not there."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import lru_cache

from ragtrace.inventory.expressions import Expressions
from ragtrace.inventory.members import is_root, source
from ragtrace.inventory.modules import Class
from ragtrace.inventory.patterns import compiled
from ragtrace.inventory.values import Const, Made, Ref, Self, State, Value

_TEXT = re.compile(r"[\w.\[\]'\"]+\.(?:sub|lower|upper|strip|title|casefold|swapcase|translate)\([^()]*\)$")
_BUILT_IN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__path__", "__spec__", "self", "__class__"}


def doom(flow: Expressions, node: ast.stmt, state: State) -> str | None:
    """What the statement raises whatever the input is, if that is plain to see."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr) or node.value is None:
        return None
    module = flow.frame.module
    for part in _sure(node.value):
        divides = isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div | ast.FloorDiv | ast.Mod)
        if divides and isinstance(part, ast.BinOp) and source(part.right) == "0":
            return "ZeroDivisionError: division by zero"
        if isinstance(part, ast.Call) and (short := _too_few(flow, part)):
            return f"TypeError: `{source(part)}` lacks {short}"
        if isinstance(part, ast.Attribute) and _is_none(flow, part.value, state) and not hasattr(None, part.attr):
            return f"AttributeError: `{source(part.value)}` is None"
        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and isinstance(part.ctx, ast.Load):
            given = state.env.get(part.value.id)
            text = isinstance(given, Ref) and state.cells[given.cell].kind == "text" and state.cells[given.cell].sure
            if text and isinstance(part.slice, ast.Constant) and isinstance(part.slice.value, str):
                return f"TypeError: a text has no {part.slice.value!r}"
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            known = part.id in state.env or part.id in module.stored or part.id in _BUILT_IN or module.starred
            if not known and part.id not in flow.local_names:
                return f"NameError: name '{part.id}' is not defined"
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load) and isinstance(part.value, ast.Name):
            base = state.env.get(part.value.id)
            if isinstance(base, Self) and not _has(flow, part.attr, state):
                return f"AttributeError: nothing sets `self.{part.attr}`"
            if isinstance(base, Ref):
                cell = state.cells[base.cell]
                if cell.kind == "text" and cell.sure and not hasattr(str, part.attr):
                    return f"AttributeError: a text has no `{part.attr}`"
            if isinstance(base, Made) and _TEXT.match(base.text) and not hasattr(str, part.attr):
                return f"AttributeError: a text has no `{part.attr}`"
    return None


def _too_few(flow: Expressions, node: ast.Call) -> str | None:
    """What a call of ``sub`` lacks: its replacement, or its text."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("sub", "subn"):
        return None
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return None
    given = len(node.args) + sum(k.arg in ("pattern", "repl", "string") for k in node.keywords)
    if flow.frame.module.full_name(node.func) in ("re.sub", "re.subn"):
        return "an argument" if given < 3 else None
    place = flow.frame.module.look_up(node.func.value.id) if isinstance(node.func.value, ast.Name) else None
    known = place is not None and compiled(place[0].constants.get(place[1])) is not None
    return "an argument" if known and given < 2 else None


def _is_none(flow: Expressions, node: ast.expr, state: State) -> bool:
    """Whether an attribute of the defense, or a name, holds None and nothing else."""
    value: Value | None = None
    if isinstance(node, ast.Name):
        value = state.env.get(node.id) or (None if node.id in flow.local_names else flow.global_value(node.id))
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        own = isinstance(state.env.get(node.value.id), Self)
        value = (state.attrs.get(node.attr) or flow.member(node.attr)) if own else None
    return isinstance(value, Const) and value.value is None and value.origin is not None


def _sure(node: ast.expr) -> Iterator[ast.AST]:
    """The parts of an expression that are evaluated in any case."""
    yield node
    if isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return
    if isinstance(node, ast.IfExp):
        yield from _sure(node.test)
        return
    children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr | ast.keyword)]
    for child in children[:1] if isinstance(node, ast.BoolOp) else children:
        yield from _sure(child.value if isinstance(child, ast.keyword) else child)


def _has(flow: Expressions, name: str, state: State) -> bool:
    """Whether an object of the defense may have the attribute; ``True`` where a class is out of sight."""
    if name in state.attrs or name.startswith("__"):
        return True
    for cls in flow.mro:
        if isinstance(cls, str):
            if not is_root(cls) or name in ("name", "on_error", "hooks", "constants"):
                return True
            continue
        if name in _attributes(cls):
            return True
    return False


@lru_cache(maxsize=4096)
def _attributes(cls: Class) -> frozenset[str]:
    """All that a class's body defines, annotates or sets on anything; everything, where it may set any name."""
    found: set[str] = set()
    for node in ast.walk(cls.node):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            if node.name in ("__getattr__", "__getattribute__"):
                return _Everything()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Call) and (
            source(node.func).rpartition(".")[2] in ("setattr", "__setattr__", "update", "__dict__", "vars")
        ):
            return _Everything()
    return _Everything() if cls.node.keywords else frozenset(found)


class _Everything(frozenset[str]):
    def __contains__(self, name: object) -> bool:
        return True
