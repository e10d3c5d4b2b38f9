"""Statements that are sure to raise: a name, an attribute or a module that is not there."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import lru_cache

from ragtrace.inventory.expressions import Expressions
from ragtrace.inventory.members import is_root, source
from ragtrace.inventory.modules import Class
from ragtrace.inventory.values import Ref, Self, State

_BUILT_IN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__path__", "__spec__", "self", "__class__"}


def doom(flow: Expressions, node: ast.stmt, state: State) -> str | None:
    """What the statement raises whatever the input is, if that is plain to see."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr) or node.value is None:
        return None
    module = flow.frame.module
    for part in _sure(node.value):
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
    return None


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
