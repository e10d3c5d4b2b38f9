"""The data flow through objects that can be changed in place, and through calls of code out of sight."""

from __future__ import annotations

import ast
from dataclasses import replace

from ragtrace.inventory.containers import Containers
from ragtrace.inventory.fields import FIELDS, NEEDED, WRITES, canonical, reads_text
from ragtrace.inventory.members import Paths, source
from ragtrace.inventory.values import Attr, Const, Made, Map, Obj, Ref, Self, State, Sym, Vague, Value, judge

_LIST_EDITS = frozenset("append extend insert remove pop clear sort reverse __setitem__ __delitem__".split())
_DICT_EDITS = frozenset("update setdefault pop clear popitem".split())
_TEXT_FIELDS = ("content", "score", "id", "role", "result", "node", "update", "response")


class Objects(Containers):
    """Calls are in :class:`~ragtrace.inventory.calls.Calls`."""

    def _of_cell(self, node: ast.Call, ref: Ref, args: list[Value], kw: dict[str | None, Value], state: State) -> Value:
        assert isinstance(node.func, ast.Attribute)
        name, cell = node.func.attr, state.cells[ref.cell]
        if name == "copy" and not kw:
            return self.copy(ref, state)
        if cell.kind == "element":
            return self._of_element(name, node, ref, args, kw, state)
        if name in ("index", "count"):
            return Sym(source(node))
        if cell.kind == "built" and name in ("append", "insert") and args:
            loop = state.loops[-1] if state.loops and name == "append" else None
            state.cells[ref.cell] = replace(cell, items=(*cell.items, (args[-1], loop)))
            return Const(None)
        if cell.kind == "built" and name == "extend" and args:
            whole = isinstance(args[0], Ref) and judge(args[0], state)[0] == "same" and not cell.items
            if whole and isinstance(args[0], Ref) and state.cells[args[0].cell].kind == "list" and not state.loops:
                state.cells[ref.cell] = state.cells[args[0].cell]
                return Const(None)
            made = self.made("weak", args, node, state)
            state.cells[ref.cell] = replace(cell, items=(*cell.items, (made, None)))
            return Const(None)
        if name in _LIST_EDITS and cell.kind in ("list", "built"):
            state.mutate(ref, Made("new", source(node), node.lineno))
            return Sym(source(node)) if name == "pop" else Const(None)
        why = Vague(f"`{source(node)}` is a method whose code is not in sight", node.lineno)
        state.mutate(ref, why)
        return why

    def _of_element(
        self, name: str, node: ast.Call, ref: Ref, args: list[Value], kw: dict[str | None, Value], state: State
    ) -> Value:
        """A method of a document, a message, a request, or a dict that stands for one."""
        fields = ast.copy_location(ast.Attribute(node.func, "content", ast.Load()), node)
        if name in ("model_copy", "_replace", "override", "copy", "with_content", "replace"):
            update = kw.get("update")
            given: dict[str | None, Value] = dict(update.items) if isinstance(update, Map) else dict(kw)
            given.pop("deep", None)
            if isinstance(update, Map) or (update is None and not args):
                return self._replaced(ref, given, node, state)
            return self._replaced(ref, {"content": Vague(f"`{source(node)}`", node.lineno)}, node, state)
        if reads_text(name):
            return self.attribute(ref, fields, state)[0]
        if name in WRITES and args:
            self.set_attribute(ref, "content", args[0], node, state)
            return Const(None)
        if name == "get" and args and isinstance(args[0], Const) and isinstance(args[0].value, str):
            return self.attribute(ref, ast.copy_location(ast.Attribute(node, args[0].value, ast.Load()), node), state)[
                0
            ]
        if name == "update" and args and isinstance(args[0], Map):
            for key, value in args[0].items:
                self.set_attribute(ref, key, value, node, state)
            return Const(None)
        if name in _DICT_EDITS:
            change: Value = Made("new", source(node), node.lineno)
            if name == "setdefault":
                change = Vague(f"`{source(node)}` may add a key", node.lineno)
            assert isinstance(change, Made | Vague)
            state.mutate(ref, change)
            return Sym(source(node))
        if name in ("items", "keys", "values", "dict", "model_dump", "to_dict", "lower", "strip", "join"):
            return state.dirt(ref) or Made("weak", source(node), node.lineno)
        if name in ("startswith", "endswith", "find", "index", "count"):
            return Made("new", source(node), node.lineno)
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

    def replaced(self, base: Ref, fields: dict[str, Value], node: ast.expr, state: State) -> Value:
        """``{**element, "field": …}``."""
        ref = self.copy(base, state)
        for name, value in fields.items():
            self.set_attribute(ref, name, value, node, state)
        return ref

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
        positional = dict(zip(FIELDS.get(name, ()), args, strict=False))
        fields = positional | {canonical(k): v for k, v in kw.items() if k}
        values = list(fields.values()) if name in FIELDS else [*args, *kw.values()]
        spread = kw.get(None)
        if isinstance(spread, Map):
            fields |= {canonical(k): v for k, v in spread.items}
        if not any(map(state.touches, values)):
            return Sym(source(node))
        if spread is not None and any(isinstance(v, Made) and v.kind == "weak" for v in values):
            return Vague(f"`{source(node)}` builds the element anew, perhaps as it was", node.lineno)
        cells = {c for k, v in fields.items() if (c := self._owner(v, k, state)) is not None}
        ordinary = {k: v for k, v in fields.items() if self._owner(v, k, state) is None}
        if not ordinary and len(cells) == 1 and self._whole(name, node, set(fields)):
            return self.copy(Ref(cells.pop()), state)
        for key, value in ordinary.items():
            if key not in _TEXT_FIELDS:
                continue
            if isinstance(value, Ref) and isinstance(state.dirt(value), Made):
                return self._edited(Made("new", source(node), node.lineno), state)
            if isinstance(value, Made | Const | Sym):
                weak = all(isinstance(v, Made) and v.kind == "weak" for v in ordinary.values())
                return self._edited(Made("weak" if weak else "new", source(node), node.lineno), state)
            if isinstance(value, Map | Ref) and judge(value, state)[0] == "changed":
                return self._edited(Made("new", source(node), node.lineno), state)
        for value in ordinary.values():
            if isinstance(value, Vague):
                return value
        return Vague(f"`{source(node)}` builds the element anew, perhaps as it was", node.lineno)

    def _whole(self, name: str, node: ast.Call, fields: set[str]) -> bool:
        if name == "Document":  # ours has four fields, LangChain's two that matter
            ours = self.frame.module.full_name(node.func).startswith("ragtrace")
            return fields >= set(FIELDS[name]) if ours or "score" in fields else fields >= NEEDED[name]
        return name in NEEDED and fields >= NEEDED[name]

    def _owner(self, value: Value, field: str, state: State) -> int | None:
        """The element whose unchanged ``field`` the value is."""
        if isinstance(value, Attr) and canonical(value.name) == canonical(field):
            return value.cell
        if isinstance(value, Ref):
            cell = state.cells[value.cell]
            if cell.part == field and cell.origin is not None and state.dirt(value) is None:
                return cell.origin
        return None

    def set_attribute(self, target: Value, name: str, value: Value, node: ast.expr | ast.stmt, state: State) -> None:
        """``target.name = value``, for an element of the input above all."""
        text = source(node)
        if isinstance(target, Self):
            state.attrs[name] = value
            state.forget("self")
        elif isinstance(target, Obj):
            state.attrs[f"{target.text}.{name}"] = value
        elif isinstance(target, Attr):
            self._set_part(Ref(target.cell), f"{target.name}.{name}", value, node, state)
        elif isinstance(target, Ref) and state.cells[target.cell].kind != "text":
            self._set_part(target, name, value, node, state)
        elif isinstance(target, Made | Vague):
            self.may_change(text, node.lineno, state)

    def may_change(self, text: str, line: int, state: State) -> None:
        """Something made from the input is changed in place, and may share elements with it."""
        spaces = {c.space for c in state.cells.values() if c.kind == "list" and c.space is not None}
        for space in spaces | {0}:
            state.spaces.setdefault(space, Vague(f"`{text}` may change an element of the input", line))

    def _set_part(self, target: Ref, name: str, value: Value, node: ast.expr | ast.stmt, state: State) -> None:
        text, cell = source(node), state.cells[target.cell]
        origin = target.cell if cell.origin is None else cell.origin
        full = f"{cell.part}.{name}" if cell.part else name
        if isinstance(value, Attr) and value.cell == origin and canonical(value.name) == canonical(full):
            return
        part = state.parts.get((target.cell, name))
        change: Made | Vague
        if isinstance(value, Ref) and (part == value.cell or state.cells[value.cell].kind in ("list", "built")):
            told, why, line = judge(value, state)
            if told == "same":
                return
            change = Vague(why, line) if told == "vague" else Made("new", text, node.lineno)
        elif isinstance(value, Vague):
            change = value
        elif isinstance(value, Attr) or (isinstance(value, Made) and value.kind == "weak"):
            change = Made("weak", text, node.lineno)
        elif isinstance(value, Ref) and state.cells[value.cell].part == name and state.dirt(value) is None:
            return
        else:
            change = Made("new", text, node.lineno)
        state.mutate(target, change)

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
