"""What a function writes into documents, or how it chooses among them: read from its syntax alone."""

from __future__ import annotations

import ast

from ragtrace.inventory.members import source
from ragtrace.inventory.modules import FunctionNode

_FIELDS = frozenset({"page_content", "text", "content", "metadata"})
_BUILDERS = ("Document", "Node", "model_copy", "replace", "TextNode", "dict", "copy")
_SELECTS = frozenset(
    "sorted sort reversed reverse shuffle sample filter nlargest nsmallest heappush pop remove".split()
)


def writes(node: FunctionNode | ast.Lambda) -> bool:
    """Whether it sets a text or metadata of something, or builds a document with another text."""
    return any(_writes(part) for part in ast.walk(node))


def _writes(part: ast.AST) -> bool:
    if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
        return part.attr in _FIELDS
    if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
        key = part.slice.value if isinstance(part.slice, ast.Constant) else None
        return key in _FIELDS or (isinstance(part.value, ast.Attribute) and part.value.attr == "metadata")
    if isinstance(part, ast.Dict):
        return any(
            isinstance(k, ast.Constant) and k.value in _FIELDS and not _own(str(k.value), v)
            for k, v in zip(part.keys, part.values, strict=True)
        )
    if not isinstance(part, ast.Call):
        return False
    name = source(part.func).rpartition(".")[2]
    if name == "set_content" or (
        name == "setattr" and len(part.args) > 1 and source(part.args[1]).strip("'") in _FIELDS
    ):
        return True
    if (
        name in ("update", "pop")
        and isinstance(part.func, ast.Attribute)
        and source(part.func.value).endswith("metadata")
    ):
        return True
    if any(k.arg == "page_content" and not _own("page_content", k.value) for k in part.keywords):
        return True
    if not name.endswith(_BUILDERS):
        return False
    given = [("page_content", a) for a in part.args[:1] if name in ("Document", "TextNode")]
    given += [(k.arg, k.value) for k in part.keywords if k.arg in _FIELDS]
    return any(not _own(field, value) for field, value in given)


def _own(field: str, value: ast.expr) -> bool:
    """``x.field``, or a copy of it: what the document held before."""
    if isinstance(value, ast.Call):
        name = source(value.func).rpartition(".")[2]
        if name in ("get_content", "get_text"):
            return True
        inner = value.args[0] if value.args else value.func.value if isinstance(value.func, ast.Attribute) else None
        return name in ("deepcopy", "copy", "dict") and inner is not None and _own(field, inner)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return value.slice.value == field
    return isinstance(value, ast.Attribute) and (value.attr == field or {value.attr, field} <= _FIELDS - {"metadata"})


def _skips(loop: ast.For) -> bool:
    """Whether a loop puts only some of the items into a list, as they are."""
    target = source(loop.target)
    kept = [n for n in ast.walk(loop) if isinstance(n, ast.Call) and source(n.func).endswith(".append")
            and len(n.args) == 1 and source(n.args[0]) == target]  # fmt: skip
    asked = [n for n in ast.walk(loop) if isinstance(n, ast.If)]
    inside = any(n is k for a in asked for n in ast.walk(a) for k in kept)
    left = any(
        isinstance(n, ast.Break | ast.Continue) for a in asked for s in (*a.body, *a.orelse) for n in ast.walk(s)
    )
    return bool(kept) and (inside or left)


def selects(node: FunctionNode | ast.Lambda) -> bool:
    """Whether it sorts, drops, or slices."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and source(part.func).rpartition(".")[2] in _SELECTS:
            return True
        if isinstance(part, ast.comprehension) and part.ifs:
            return True
        if isinstance(part, ast.If) and any(isinstance(n, ast.Yield) for s in part.body for n in ast.walk(s)):
            return True
        if isinstance(part, ast.For) and _skips(part):
            return True
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Slice):
            return True
    return False
