"""Constants that a test may be decided by: literals, and settings of a class or a module in sight."""

from __future__ import annotations

import ast

from ragtrace.inventory.modules import Module
from ragtrace.inventory.values import Const


def setting(node: ast.Attribute, module: Module) -> Const | None:
    """The constant that ``X.name`` is, for a class or module ``X`` in sight that sets it once."""
    if not isinstance(node.value, ast.Name):
        return None
    text = ast.unparse(node)
    place = module.look_up(node.value.id)
    if place is not None and (cls := place[0].classes.get(place[1])):
        found = cls.methods.get(node.attr)
        if text in module.overwritten or text in cls.module.overwritten or not isinstance(found, ast.expr):
            return None
        if any((b if isinstance(b, str) else b.name).rpartition(".")[2].endswith(("Enum", "Flag")) for b in cls.bases):
            return Const(f"{cls.name}.{node.attr}", text)
        return literal(found, text) if not cls.node.decorator_list and not cls.bases else None
    if place is not None or node.value.id not in module.imports or text in module.overwritten:
        return None
    origin, original = module.imports[node.value.id]
    dotted = f"{origin}.{original}" if original and not origin.endswith(".") else f"{origin}{original or ''}"
    other = module.library.find(dotted, module.path)
    if other is None or node.attr in other.filled:
        return None
    return literal(other.constants.get(node.attr), text)


def literal(expr: ast.expr | None, origin: str) -> Const | None:
    """A constant that a test may be decided by: a literal, or an empty container."""
    if isinstance(expr, ast.Constant):
        return Const(expr.value, origin)
    if isinstance(expr, ast.Tuple | ast.List) and not expr.elts:
        return Const((), origin)
    if isinstance(expr, ast.Dict) and not expr.keys:
        return Const((), origin)
    if isinstance(expr, ast.Call) and not expr.args and not expr.keywords:
        return Const((), origin) if ast.unparse(expr.func) in ("set", "list", "dict", "tuple", "frozenset") else None
    return None
