"""The data flow through assignments."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Literal

from ragtrace.inventory.calls import Calls
from ragtrace.inventory.members import Paths, source
from ragtrace.inventory.values import Attr, Const, Lazy, Made, Map, Packed, Ref, State, Sym, Tup, Vague, Value

Signal = Literal["next", "return", "raise", "break", "continue"]
Outcome = tuple[Signal, State, Value, int]
NOTHING = Const(None)


class Assignments(Calls):
    """Other statements are in :class:`~ragtrace.inventory.flow.Flow`."""

    statement_at: ast.stmt | None = None

    def _next(self, paths: Paths) -> list[Outcome]:
        return [("next", s, NOTHING, 0) for _, s in paths]

    def _later(self, node: ast.expr, state: State) -> Paths | None:
        """A generator or coroutine that is made, but not run yet: nothing of it has happened."""
        what = self.lazy(node, state)
        if what is None:
            return None
        state.edits += ((node.lineno, f"{source(node)}` (a {what} that is never run)`"),)
        return [(Lazy(node, tuple(state.env.items())), state)]

    def lazy(self, node: ast.expr, state: State) -> str | None:
        """What kind of lazy thing an expression makes, if it does. See :class:`~ragtrace.inventory.flow.Flow`."""
        raise NotImplementedError

    def _Assign(self, node: ast.Assign, state: State) -> list[Outcome]:
        paths = self._later(node.value, state) or self.eval(node.value, state)
        for value, s in paths:
            for target in node.targets:
                self.statement_at = node
                self.assign(target, value, s)
        return self._next(paths)

    def _AnnAssign(self, node: ast.AnnAssign, state: State) -> list[Outcome]:
        if node.value is None:
            return [("next", state, NOTHING, 0)]
        paths = self.eval(node.value, state)
        for value, s in paths:
            self.statement_at = node
            self.assign(node.target, value, s)
        return self._next(paths)

    def _AugAssign(self, node: ast.AugAssign, state: State) -> list[Outcome]:
        load = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        ast.fix_missing_locations(load)
        paths = self.eval_all((load, node.value), state)
        for (before, operand), s in paths:
            empty = isinstance(operand, Ref) and not s.cells[operand.cell].items and s.dirt(operand) is None
            if isinstance(before, Ref) and s.cells[before.cell].kind in ("list", "built"):
                if not (empty and isinstance(operand, Ref) and s.cells[operand.cell].kind == "built"):
                    self._extend(before, operand, node, s)
            else:
                self.statement_at = node
                self.assign(node.target, self.binary(before, operand, load, node.op, s), s)
        return [("next", s, NOTHING, 0) for _, s in paths]

    def _extend(self, ref: Ref, operand: Value, node: ast.AugAssign, state: State) -> None:
        cell = state.cells[ref.cell]
        if cell.kind == "list":
            state.mutate(ref, Made("new", source(node), node.lineno))
            return
        added = state.cells[operand.cell] if isinstance(operand, Ref) else None
        loop = state.loops[-1] if state.loops else None
        if added and added.kind == "built":
            items = tuple((v, loop) for v, _ in added.items)
        elif isinstance(operand, Tup) and not operand.each:
            items = tuple((v, loop) for v in operand.items)
        else:
            items = ((self.made("weak", (operand,), node.value, state), None),)
        state.cells[ref.cell] = replace(cell, items=cell.items + items)

    def assign(self, target: ast.expr, value: Value, state: State) -> None:
        """Binds one target."""
        if isinstance(target, ast.Name):
            state.bind(target.id, value)
        elif isinstance(target, ast.Tuple) and isinstance(value, Tup) and self._swapped(target, state):
            pass
        elif isinstance(target, ast.Tuple | ast.List):
            for i, part in enumerate(target.elts):
                if isinstance(value, Tup) and len(value.items) == len(target.elts):
                    self.assign(part, value.items[i], state)
                elif isinstance(value, Ref) and state.cells[value.cell].kind == "element" and state.dirt(value) is None:
                    self.assign(part, Attr(value.cell, str(i)), state)
                else:
                    one = self.made("weak", (value,), target, state)
                    self.assign(part.value if isinstance(part, ast.Starred) else part, one, state)
        elif isinstance(target, ast.Attribute):
            base = self._only(target.value, state)
            if isinstance(base, Map) and isinstance(target.value, ast.Name):
                state.bind(target.value.id, Map(tuple({**dict(base.items), target.attr: value}.items())))
            elif base is not None:
                self.set_attribute(base, target.attr, value, self._site(target), state)
        elif isinstance(target, ast.Subscript):
            self._assign_item(target, value, state)

    def _swapped(self, target: ast.Tuple, state: State) -> bool:
        """``items[i], items[j] = items[j], items[i]``: another order."""
        parts = [t for t in target.elts if isinstance(t, ast.Subscript)]
        if len(parts) != len(target.elts) or len({source(t.value) for t in parts}) != 1:
            return False
        base = self._only(parts[0].value, state)
        if not isinstance(base, Ref) or state.cells[base.cell].kind not in ("list", "built"):
            return False
        state.mutate(base, Made("new", source(self._site(target)), target.lineno))
        return True

    def _only(self, node: ast.expr, state: State) -> Value | None:
        """The object that is assigned into, if there is one; else the input may be what is changed."""
        paths = self.eval(node, state)
        if len(paths) == 1 and paths[0][1] is state:
            return paths[0][0]
        why = Vague(f"`{source(node)}` may be one object or another", node.lineno)
        for number, cell in list(state.cells.items()):
            state.mutate(Ref(number), why)
            if cell.space is not None:
                state.spaces.setdefault(cell.space, why)
        return None

    def _site(self, target: ast.expr) -> ast.expr | ast.stmt:
        """The statement that assigns to ``target``, to be quoted; the target itself in a ``for`` or ``with``."""
        at = self.statement_at
        return at if at is not None and any(n is target for n in ast.walk(at)) else target

    def _assign_item(self, target: ast.Subscript, value: Value, state: State) -> None:
        base, site = self._only(target.value, state), self._site(target)
        if self._assign_key(base, target, value, site, state):
            return
        whole = isinstance(target.slice, ast.Slice) and not (target.slice.lower or target.slice.upper)
        if isinstance(base, Attr):
            self.set_attribute(Ref(base.cell), base.name, Sym(source(target)), site, state)
        elif isinstance(base, Ref) and state.cells[base.cell].kind in ("list", "built", "element"):
            change: Made | Vague = Made("new", source(site), target.lineno)
            same = isinstance(value, Ref) and state.dirt(value) is None
            if isinstance(value, Vague):
                change = value
            elif same or (isinstance(value, Made) and value.kind == "weak"):
                change = Made("weak", source(site), target.lineno)
            elif whole and isinstance(value, Ref):
                change = state.dirt(value) or change
            state.mutate(base, change)
        elif isinstance(base, Packed) and isinstance(target.value, ast.Name) and self._differs(value, state):
            state.edits += ((target.lineno, source(site)),)
            state.bind(target.value.id, Made("new", source(site), target.lineno))
        elif isinstance(base, Made | Vague):
            self.set_attribute(base, "content", value, site, state)
        elif isinstance(target.value, ast.Name) and state.touches(value):
            # a dict that now holds something of the input
            state.bind(target.value.id, self.made("weak", (value,), target, state))

    def _differs(self, value: Value, state: State) -> bool:
        return isinstance(value, Const | Sym) or self.is_new(value, state)

    def _assign_key(
        self, base: Value | None, target: ast.Subscript, value: Value, site: ast.expr | ast.stmt, state: State
    ) -> bool:
        """``element["text"] = …`` and the like for a dict that is being written."""
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if isinstance(base, Map) and isinstance(target.value, ast.Name):
            items = {**dict(base.items), key: value} if isinstance(key, str) else None
            made = Map(tuple(items.items())) if items else self.made("weak", (base, value), target, state)
            state.bind(target.value.id, made)
            return True
        if isinstance(key, str) and isinstance(base, Ref) and state.cells[base.cell].kind == "element":
            self.set_attribute(base, key, value, site, state)
            return True
        if isinstance(base, Attr) and isinstance(key, str):
            self.set_attribute(base, key, value, site, state)
            return True
        return False

    def _Delete(self, node: ast.Delete, state: State) -> list[Outcome]:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                base = self._only(target.value, state)
                if isinstance(base, Ref):
                    state.mutate(base, Made("new", source(node), node.lineno))
        return [("next", state, NOTHING, 0)]
