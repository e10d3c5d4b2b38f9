"""The data flow through objects that can be changed in place, and through calls of code out of sight."""

from __future__ import annotations

import ast
from dataclasses import replace

from ragtrace.inventory.containers import Containers
from ragtrace.inventory.expressions import Paths, source
from ragtrace.inventory.values import Attr, Const, Made, Ref, Self, State, Sym, Vague, Value

_LIST_EDITS = frozenset("append extend insert remove pop clear sort reverse __setitem__ __delitem__".split())
FIELDS = {"Document": ("content", "id", "score", "metadata"), "Message": ("role", "content")}


class Objects(Containers):
    """Calls are in :class:`~ragtrace.inventory.calls.Calls`."""

    def _of_cell(self, node: ast.Call, ref: Ref, args: list[Value], kw: dict[str | None, Value], state: State) -> Value:
        assert isinstance(node.func, ast.Attribute)
        name, cell = node.func.attr, state.cells[ref.cell]
        if name == "copy":
            return self.copy(ref, state)
        if name in ("model_copy", "_replace") and cell.kind == "element":
            return self._replaced(
                ref, {"content": Vague(f"`{source(node)}`", node.lineno)} if kw or args else {}, node, state
            )
        if name in ("index", "count"):
            return Sym(source(node))
        if cell.kind == "built" and name in ("append", "insert") and args:
            loop = state.loops[-1] if state.loops and name == "append" else None
            state.cells[ref.cell] = replace(cell, items=(*cell.items, (args[-1], loop)))
            return Const(None)
        if cell.kind == "built" and name == "extend" and args:
            made = self.made("weak", args, node, state)
            state.cells[ref.cell] = replace(cell, items=(*cell.items, (made, None)))
            return Const(None)
        if name in _LIST_EDITS and cell.kind in ("list", "built"):
            state.mutate(ref, Made("new", source(node), node.lineno))
            return Sym(source(node)) if name == "pop" else Const(None)
        why = Vague(f"`{source(node)}` is a method whose code is not in sight", node.lineno)
        state.mutate(ref, why)
        return why

    def _in_place(self, args: list[Value], node: ast.Call, state: State) -> Value:
        for arg in args:
            if isinstance(arg, Ref):
                state.mutate(arg, Made("new", source(node), node.lineno))
        return Const(None)

    def _edited(self, value: Value, state: State) -> Value:
        if isinstance(value, Made):
            state.edits += ((value.line, value.text),)
        return value

    def _replaced(self, base: Value, kw: dict[str | None, Value], node: ast.Call, state: State) -> Value:
        """``dataclasses.replace(element, field=…)``: a copy, with its attributes set."""
        if not isinstance(base, Ref):
            return self.made("new" if kw else "weak", (base, *kw.values()), node, state)
        ref = self.copy(base, state)
        for name, value in kw.items():
            self.set_attribute(ref, name or "content", value, node, state)
        return ref

    def _construct(
        self, name: str, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State
    ) -> Value:
        """``Document(…)``: an element again where each field is that of one element."""
        fields = dict(zip(FIELDS.get(name, ()), args, strict=False)) | {k: v for k, v in kw.items() if k}
        values = list(fields.values()) if name in FIELDS else [*args, *kw.values()]
        if not any(map(state.touches, values)):
            return Sym(source(node))
        cells = {v.cell for v in values if isinstance(v, Attr)}
        ordinary = {k: v for k, v in fields.items() if not (isinstance(v, Attr) and v.name == k)}
        if name in FIELDS and not ordinary and len(cells) == 1 and set(fields) == set(FIELDS[name]):
            return self.copy(Ref(cells.pop()), state)
        if any(
            isinstance(v, Made | Const | Sym) for k, v in ordinary.items() if k in ("content", "score", "id", "role")
        ):
            kind = "weak" if all(isinstance(v, Made) and v.kind == "weak" for v in ordinary.values()) else "new"
            return self._edited(Made("new" if kind == "new" else "weak", source(node), node.lineno), state)
        return Vague(f"`{source(node)}` builds the element anew, perhaps as it was", node.lineno)

    def set_attribute(self, target: Value, name: str, value: Value, node: ast.expr | ast.stmt, state: State) -> None:
        """``target.name = value``, for an element of the input above all."""
        text = source(node)
        if isinstance(target, Self):
            state.attrs[name] = value
            state.forget("self")
        elif isinstance(target, Ref):
            cell = state.cells[target.cell]
            origin = target.cell if cell.origin is None else cell.origin
            if value == Attr(origin, name):
                return
            change: Made | Vague
            if name == "metadata":
                change = Vague(f"`{text}` changes metadata only", node.lineno)
            elif isinstance(value, Vague):
                change = value
            elif isinstance(value, Attr) or (isinstance(value, Made) and value.kind == "weak"):
                change = Made("weak", text, node.lineno)
            else:
                change = Made("new", text, node.lineno)
            state.mutate(target, change)
        elif isinstance(target, Made | Vague):
            state.spaces.setdefault(0, Vague(f"`{text}` may change an element of the input", node.lineno))

    def _out_of_sight(self, node: ast.Call, values: list[Value], state: State) -> Paths:
        """A call whose code cannot be followed: harmless unless the input is handed to it."""
        handed = [v for v in values if state.touches(v)]
        if not handed:
            return [(Sym(source(node)), state)]
        if all(self.is_new(v, state) for v in handed):
            return [(Made("new", source(node), node.lineno), state)]
        why = Vague(f"`{source(node)}` is given the input, and its code is not in sight", node.lineno)
        for value in handed:
            if isinstance(value, Ref):
                state.mutate(value, why)
        return [(why, state)]
