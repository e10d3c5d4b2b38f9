"""The data flow through lists, items and comprehensions."""

from __future__ import annotations

import ast
from dataclasses import replace

from ragtrace.inventory.expressions import Expressions, Paths, source
from ragtrace.inventory.values import Attr, Cell, Const, Made, Ref, State, Sym, Tup, Vague, Value, judge

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
        if not isinstance(value, Ref):
            return value
        cell = state.cells[value.cell]
        if cell.kind == "text":
            return value
        if cell.kind == "element":
            origin = value.cell if cell.origin is None else cell.origin
            return state.new(replace(cell, space=None, origin=origin, dirty=state.dirt(value)))
        ref = state.new(replace(cell, dirty=state.dirt(value) if deep else cell.dirty))
        if deep and cell.kind == "list":
            state.cells[ref.cell] = replace(state.cells[ref.cell], space=-ref.cell)
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
        if isinstance(base, Ref) and state.cells[base.cell].kind == "list":
            return self.element(base, state, None)
        if isinstance(base, Ref) and state.cells[base.cell].kind == "built":
            items, dirt = state.cells[base.cell].items, state.dirt(base)
            if len(items) == 1 and items[0][1] is None and dirt is None and not isinstance(items[0][0], Made):
                return items[0][0]
            return self.made("weak", [v for v, _ in items], node, state) if dirt is None else dirt
        if isinstance(base, Vague | Made):
            return cut(base, node)
        if state.touches(base):
            return Made("cut", source(node), node.lineno)
        if any(map(state.touches, index)):
            return Made("new", source(node), node.lineno)  # what a table holds under a key made of the input
        return Sym(source(node))

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
            if cell.kind == "built":
                return cell.items[0][0] if len(cell.items) == 1 else self.made("weak", (value,), node, state)
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

    def _filter(self, test: ast.expr, state: State) -> list[tuple[bool, State]]:
        """Whether a comprehension's ``if`` may leave something out."""
        return [(not (isinstance(v, Const) and bool(v.value)), s) for v, s in self.eval(test, state)]

    def _collected(self, elt: Value, iterable: Value, loop: int, filtered: bool, node: ast.expr, state: State) -> Value:
        if filtered and (state.touches(iterable) or state.touches(elt)):
            return Made("new", source(node), node.lineno)
        if isinstance(elt, Ref | Made | Vague | Attr):
            if isinstance(elt, Ref) and state.cells[elt.cell].kind == "element":
                return state.new(replace(BUILT, items=((elt, loop),)))
            if isinstance(elt, Attr):
                return Made("weak", source(node), node.lineno)
            return elt if isinstance(elt, Vague) else self.made("weak", (elt,), node, state)
        if isinstance(elt, Tup) and state.touches(elt):
            return self.made("weak", elt.items, node, state)
        if not state.touches(iterable):
            return Sym(source(node))
        return Made("new", source(node), node.lineno)

    def assign(self, target: ast.expr, value: Value, state: State) -> None:
        """Binds a target. See :class:`~ragtrace.inventory.flow.Flow`."""
        raise NotImplementedError
