"""A hook that hands its input to something out of sight: what can be told from what is done with the answer."""

from __future__ import annotations

import ast
import re

from ragtrace.inventory.members import source
from ragtrace.inventory.modules import FunctionNode

_HANDED = re.compile(r"cannot tell: `(.+)` is given the input, and its code is not in sight \(line (\d+)\)$")
_SAME = re.compile(
    r"(?i)cop(?:y|ies)|clone|dump|load|serial|wrap|trace|record|log|audit|observe|notify|publish|emit|send|store|save|valid"
    r"|convert|cast|^(?:to|from|as)_|parse|count|token|embed|^get|pack|ensure|check"
)
"""Methods whose answer may be what they were given, in another form."""


def used(reason: str, functions: list[FunctionNode | ast.Lambda]) -> str:
    """Why a hook acts although the code that it asks is not in sight; "" where it may not.

    It does where the answer becomes a part of what it returns. Where the answer is all that it returns, and nothing
    else is known of it, the hook may do anything.
    """
    told = _HANDED.match(reason)
    if told is None:
        return ""
    for function in functions:
        above = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.lineno == int(told[2]) and source(node) == told[1]:
                name = source(node.func).rpartition(".")[2]
                if not _SAME.search(name) and _part(node, above, function):
                    return f"what `{told[1]}` answers becomes a part of it (line {told[2]})"
    return ""


def _part(node: ast.AST, above: dict[int, ast.AST], function: ast.AST, deep: int = 0) -> bool:
    """Whether a value is built into another one, and not just returned, tested or dropped."""
    parent = above.get(id(node))
    if isinstance(parent, ast.Await | ast.NamedExpr):
        return _part(parent, above, function, deep)
    if isinstance(parent, ast.Attribute | ast.Subscript | ast.FormattedValue | ast.BinOp):
        return _kept(parent, above)
    if isinstance(parent, ast.keyword | ast.Dict | ast.DictComp):
        return True
    if isinstance(parent, ast.Assign):
        if any(isinstance(t, ast.Attribute | ast.Subscript) for t in parent.targets):
            return True
        names = {t.id for t in parent.targets if isinstance(t, ast.Name)}
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id in names
                and isinstance(n.ctx, ast.Load)]  # fmt: skip
        return deep < 2 and any(_part(n, above, function, deep + 1) for n in uses)
    return False


def _kept(node: ast.AST, above: dict[int, ast.AST]) -> bool:
    """Whether an expression ends up in something other than a test or a statement of its own."""
    while (parent := above.get(id(node))) is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, ast.Compare | ast.BoolOp | ast.IfExp) and node is not getattr(parent, "body", None):
            return False
        node = parent
    return isinstance(parent, ast.Return | ast.Assign)
