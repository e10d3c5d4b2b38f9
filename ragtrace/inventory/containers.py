"""The data flow through lists, items and comprehensions."""

from __future__ import annotations

import ast
from dataclasses import replace

from ragtrace.inventory.expressions import Expressions
from ragtrace.inventory.members import Paths, source
from ragtrace.inventory.values import Attr, Cell, Const, Made, Map, Ref, State, Sym, Tup, Vague, Value, judge

BUILT = Cell("built")


def cut(value: Made | Vague, node: ast.expr) -> Made | Vague:
    """A part of a value that is made from the input already."""
    if isinstance(value, Made) and value.kind == "weak":
        return Made("cut", source(node), node.lineno)
    return value


class Containers(Expressions):
    """Calls are in :class:`~ragtrace.inventory.calls.Calls`."""

    def _Tuple(self, node: ast.Tuple, state: State) -> Paths:
        return [(Tup(values), s) for values, s in self.eval_all(node.elts, state)]

    def _List(self, node: ast.List, state: State) -> Paths:
        found: Paths = []
        for values, s in self.eval_all(node.elts, state):
            if len(values) == 1 and isinstance(node.elts[0], ast.Starred):
                found.append((self.copy(values[0], s), s))
                continue
            items: list[tuple[Value, int | None]] = []
            for elt, value in zip(node.elts, values, strict=True):
                starred = isinstance(elt, ast.Starred) and s.touches(value)
                items.append((self.made("weak", (value,), elt, s) if starred else value, None))
            found.append((s.new(replace(BUILT, items=tuple(items))), s))
        return found

    def copy(self, value: Value, state: State, deep: bool = False) -> Value:
        """An equal object: changing the copy leaves the original as it is, but for shared elements."""
        if isinstance(value, Attr) and deep:
            ref = state.new(Cell("element", origin=value.cell, part=value.name))
            state.cells[ref.cell] = replace(state.cells[ref.cell], space=-1 - ref.cell)
            return ref
        if not isinstance(value, Ref):
            return value
        cell = state.cells[value.cell]
        if cell.kind == "text":
            return value
        if cell.kind == "element":
            origin = value.cell if cell.origin is None else cell.origin
            ref = state.new(replace(cell, space=None, origin=origin, dirty=state.dirt(value)))
            state.cells[ref.cell] = replace(state.cells[ref.cell], space=-1 - ref.cell)
            for (owner, name), part in list(state.parts.items()):
                if owner == value.cell:
                    state.parts[ref.cell, name] = state.new(state.cells[part]).cell
            return ref
        ref = state.new(replace(cell, dirty=state.dirt(value) if deep else cell.dirty))
        if deep and cell.kind == "list":
            state.cells[ref.cell] = replace(state.cells[ref.cell], space=-1 - ref.cell)
        return ref

    def _Subscript(self, node: ast.Subscript, state: State) -> Paths:
        bounds = [b for b in (node.slice.lower, node.slice.upper, node.slice.step) if b] if isinstance(
            node.slice, ast.Slice
        ) else [node.slice]  # fmt: skip
        return [
            (self.item(base, index, node, s), s) for (base, *index), s in self.eval_all((node.value, *bounds), state)
        ]

    def item(self, base: Value, index: list[Value], node: ast.Subscript, state: State) -> Value:
        """``base[index]``."""
        if isinstance(node.slice, ast.Slice):
            if not state.touches(base):
                return self.made("new", (base, *index), node, state)
            step = node.slice.step
            if step is not None and source(step) != "1":
                return self.made("new", (base,), node, state)
            whole = (node.slice.lower is None or source(node.slice.lower) == "0") and (
                node.slice.upper is None or source(node.slice.upper) == f"len({source(node.value)})"
            )
            if whole:
                return self.copy(base, state)
            return (
                base if isinstance(base, Vague) or self.is_new(base, state) else Made("cut", source(node), node.lineno)
            )
        if isinstance(base, Tup) and index and isinstance(index[0], Const) and isinstance(index[0].value, int):
            position = index[0].value
            return base.items[position] if -len(base.items) <= position < len(base.items) else Sym(source(node))
        key = index[0].value if len(index) == 1 and isinstance(index[0], Const) else None
        if key is not None and isinstance(base, Sym) and (entry := self.table_entry(node.value, key)) is not None:
            return entry
        if isinstance(key, str) and isinstance(base, Map):
            return dict(base.items).get(key) or Sym(source(node))
        if isinstance(base, Map) and key is None and (choice := self.chosen(base, source(node.slice))):
            return choice
        if isinstance(base, Tup):
            return self.made("weak", (base, *index), node, state)
        if isinstance(base, Ref) and state.cells[base.cell].kind == "element" and isinstance(key, str | int):
            return self.attribute(
                base, ast.copy_location(ast.Attribute(node.value, str(key), ast.Load()), node), state
            )[0]
        if isinstance(base, Attr) and isinstance(key, str):
            return Attr(base.cell, f"{base.name}.{key}")
        if isinstance(base, Ref) and state.cells[base.cell].kind == "list":
            return self.element(base, state, None)
        if isinstance(base, Ref) and state.cells[base.cell].kind == "built":
            items, dirt = state.cells[base.cell].items, state.dirt(base)
            if len(items) == 1 and dirt is None:
                item, loop = items[0]
                if loop is None and not isinstance(item, Made):
                    return item
                if loop is not None:
                    return cut(item, node) if isinstance(item, Made) else self._again(item, loop, 0, state)
            return self.made("weak", [v for v, _ in items], node, state) if dirt is None else dirt
        if isinstance(base, Made) and base.kind == "weak" and base.text.startswith("{"):
            return self.made("weak", (base,), node, state)  # what a dict of the input's elements holds
        if isinstance(base, Vague | Made):
            return cut(base, node)
        if state.touches(base):
            return Made("cut", source(node), node.lineno)
        if any(map(state.touches, index)):
            return Made("new", source(node), node.lineno)  # what a table holds under a key made of the input
        return Sym(source(node))

    def chosen(self, table: Map, key: str, default: Value | None = None) -> Value | None:
        """An entry of a table of functions. See :class:`~ragtrace.inventory.lookups.Lookups`."""
        raise NotImplementedError

    def element(self, base: Ref, state: State, loop: int | None) -> Ref:
        """One element of the input list or a copy of it."""
        cell = state.cells[base.cell]
        return state.new(replace(cell, kind="element", loop=None if cell.dirty else loop))

    def elements(self, value: Value, node: ast.expr, state: State, loop: int) -> Value:
        """What a loop over ``value`` binds, each time round."""
        if isinstance(value, Ref):
            cell = state.cells[value.cell]
            if cell.kind == "list":
                return self.element(value, state, loop)
            if cell.kind == "built" and judge(value, state)[0] == "same" and isinstance(cell.items[0][0], Ref):
                return state.new(replace(state.cells[cell.items[0][0].cell], loop=loop))
            if cell.kind == "built" and state.dirt(value) is None and len(cell.items) == 1:
                item, made_in = cell.items[0]
                return self._again(item, made_in, loop, state)
            if cell.kind == "built":
                return self.made("weak", (value,), node, state)
            return Made("weak", source(node), node.lineno)
        if isinstance(value, Tup):
            if value.each:
                return Tup(tuple(self.elements(v, node, state, loop) for v in value.items))
            return self.made("weak", value.items, node, state)
        if isinstance(value, Vague):
            return value
        if isinstance(value, Made):
            return Made("weak" if value.kind == "weak" else value.kind, value.text, value.line)
        return Made("weak", source(node), node.lineno) if state.touches(value) else Sym(f"an item of {source(node)}")

    def _again(self, item: Value, made_in: int | None, loop: int, state: State) -> Value:
        """An item of a list that one loop has built, in another loop over it."""
        if isinstance(item, Tup) and not item.each:
            return Tup(tuple(self._again(v, made_in, loop, state) for v in item.items))
        if isinstance(item, Ref) and made_in is not None and state.cells[item.cell].loop == made_in:
            return state.new(replace(state.cells[item.cell], loop=loop))
        return item

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp, state: State) -> Paths:
        found: Paths = []
        first = node.generators[0]
        for iterable, s in self.eval(first.iter, state):
            outer = dict(s.env)
            loop = next(self.loop_ids)
            value = self.elements(iterable, first.iter, s, loop)
            self.assign(first.target, value, s)
            paths: list[tuple[bool, State]] = [(False, s)]
            for test in first.ifs:
                paths = [(kept or filtered, after) for kept, p in paths for filtered, after in self._filter(test, p)]
            for filtered, p in paths:
                if len(node.generators) > 1:
                    results: Paths = [(self.made("weak", (iterable,), node, p), p)]
                    if any(g.ifs for g in node.generators[1:]) or not isinstance(node.elt, ast.Name):
                        results = [(self.made("new", (iterable,), node, p), p)]
                else:
                    results = self.eval(node.elt, p)
                for elt, after in results:
                    whole = self._collected(elt, iterable, loop, filtered, node, after)
                    after.env = dict(outer)
                    found.append((whole, after))
        return found

    _GeneratorExp = _ListComp

    def _DictComp(self, node: ast.DictComp, state: State) -> Paths:
        pairs = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
        items = ast.copy_location(ast.ListComp(pairs, node.generators), node)
        return [(self.made("weak", (v,), node, s), s) for v, s in self.eval(items, state)]

    def _filter(self, test: ast.expr, state: State) -> list[tuple[bool, State]]:
        """Whether a comprehension's ``if`` may leave something out."""
        found: list[tuple[bool, State]] = []
        if self._always(test, state):
            state.unreachable += ((test.lineno, f"`{source(test)}` is always True"),)
            return [(False, state)]
        for value, s in self.eval(test, state):
            known = isinstance(value, Const)
            if isinstance(value, Const) and bool(value.value):
                s.unreachable += ((test.lineno, f"`{source(test)}` is always True"),)
            found.append((not (known and bool(value.value)), s) if isinstance(value, Const) else (True, s))
        return found

    def _always(self, node: ast.expr, state: State) -> bool | None:
        """What any input makes of a test. See :class:`~ragtrace.inventory.branches.Branches`."""
        raise NotImplementedError

    def _collected(
        self,
        elt: Value,
        iterable: Value,
        loop: int,
        filtered: bool,
        node: ast.expr,
        state: State,
    ) -> Value:
        if filtered and (state.touches(iterable) or state.touches(elt)):
            return Made("new", source(node), node.lineno)
        if isinstance(elt, Ref | Made | Vague | Attr):
            if isinstance(elt, Ref) and state.cells[elt.cell].kind == "element":
                return state.new(replace(BUILT, items=((elt, loop),)))
            chosen = isinstance(node, ast.ListComp | ast.GeneratorExp) and isinstance(node.elt, ast.Subscript)
            if (
                isinstance(elt, Made)
                and elt.kind == "cut"
                and chosen
                and isinstance(node, ast.ListComp | ast.GeneratorExp)
            ):
                counted = source(node.generators[0].iter).startswith(("range(", "enumerate("))
                if not counted:  # chosen by numbers from elsewhere
                    return Made("new", source(node), node.lineno)
            if isinstance(elt, Attr):
                return Made("weak", source(node), node.lineno)
            return elt if isinstance(elt, Vague) else self.made("weak", (elt,), node, state)
        if isinstance(elt, Tup | Map) and state.touches(elt):
            return state.new(replace(BUILT, items=((elt, loop),)))
        if not state.touches(iterable):
            return Sym(source(node))
        return Made("new", source(node), node.lineno)

    def assign(self, target: ast.expr, value: Value, state: State) -> None:
        """Binds a target. See :class:`~ragtrace.inventory.flow.Flow`."""
        raise NotImplementedError
