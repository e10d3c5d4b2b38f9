"""The data flow through expressions: each is evaluated to (value, state) pairs, one for each path through it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable

from ragtrace.inventory.members import MAX_STEPS, Members, Paths, TooComplexError, source
from ragtrace.inventory.values import Attr, Condition, Const, Func, Lazy, Made, Map, Ref, State, Sym, Tup, Vague, Value


class Expressions(Members):
    """Names and operators; lists are in :class:`~ragtrace.inventory.containers.Containers`."""

    # -- plumbing ---------------------------------------------------------------------------------

    def eval(self, node: ast.expr, state: State) -> Paths:
        """All values the expression may have, each with the state after it."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooComplexError
        handler: Callable[[ast.expr, State], Paths] = getattr(self, f"_{type(node).__name__}", self._other)
        return handler(node, state)

    def eval_all(self, nodes: Iterable[ast.expr], state: State) -> list[tuple[tuple[Value, ...], State]]:
        """Several expressions, one after the other."""
        paths: list[tuple[tuple[Value, ...], State]] = [((), state)]
        for node in nodes:
            paths = [((*before, value), after) for before, s in paths for value, after in self.eval(node, s)]
            paths = self.sample(paths)
        return paths

    def _other(self, node: ast.expr, state: State) -> Paths:
        children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        return [(self.made("weak", values, node, s), s) for values, s in self.eval_all(children, state)]

    def made(self, kind: str, values: Iterable[Value], node: ast.expr, state: State) -> Value:
        """What an operation makes of operands: nothing of the input where none of them touches it."""
        values = list(values)
        if not any(map(state.touches, values)):
            return Sym(source(node))
        if kind == "weak":
            for value in values:
                if isinstance(value, Vague):
                    return value
            if any(self.is_new(v, state) for v in values):
                kind = "new"
        return Made("new" if kind == "new" else "cut" if kind == "cut" else "weak", source(node), node.lineno)

    def is_new(self, value: Value, state: State) -> bool:
        """Whether something surely different from the input is in the value."""
        if isinstance(value, Ref):
            cell, dirt = state.cells[value.cell], state.dirt(value)
            return (isinstance(dirt, Made) and dirt.kind != "weak") or any(
                isinstance(v, Const | Sym) or self.is_new(v, state) for v, _ in cell.items
            )
        if isinstance(value, Tup):
            return any(self.is_new(v, state) for v in value.items)
        return isinstance(value, Made) and value.kind == "new"

    # -- names and attributes ---------------------------------------------------------------------

    def _Constant(self, node: ast.Constant, state: State) -> Paths:
        return [(Const(node.value), state)]

    def _Name(self, node: ast.Name, state: State) -> Paths:
        if node.id in state.env:
            value = state.env[node.id]
            return self.run_lazy(value, state, node.id) if isinstance(value, Lazy) else [(value, state)]
        return [(self.global_value(node.id), state)]

    def _Attribute(self, node: ast.Attribute, state: State) -> Paths:
        return [self.attribute(value, node, s) for value, s in self.eval(node.value, state)]

    def run_lazy(self, value: Lazy, state: State, name: str | None = None) -> Paths:
        """A generator or coroutine is asked for what it makes, here."""
        outer = state.env
        state.env = dict(value.env)
        found = self.eval(value.node, state)
        for made, s in found:
            s.env = dict(outer)
            if name is not None:
                s.bind(name, made)
        return found

    # -- operators --------------------------------------------------------------------------------

    def _BinOp(self, node: ast.BinOp, state: State) -> Paths:
        return [(self.binary(a, b, node, node.op, s), s) for (a, b), s in self.eval_all((node.left, node.right), state)]

    def binary(self, a: Value, b: Value, node: ast.expr, op: ast.operator, state: State) -> Value:
        """``a op b``."""
        pair = (a, b)
        counted = isinstance(a, Const) and isinstance(b, Const) and type(a.value) is type(b.value) is int
        if counted and isinstance(a, Const) and isinstance(b, Const) and isinstance(op, ast.Add | ast.Sub):
            return Const(a.value + b.value if isinstance(op, ast.Add) else a.value - b.value)
        nought = next((v for v in pair if isinstance(v, Const) and type(v.value) in (int, float) and not v.value), None)
        if nought is not None and isinstance(op, ast.Mult):  # noise of no size
            self._without(nought, node, state)
            return nought
        if not any(map(state.touches, pair)):
            return Sym(source(node))
        for constant, other in (pair, pair[::-1]):
            if isinstance(constant, Const):
                if isinstance(op, ast.Add) and constant.value == "":
                    return other
                whole = constant is a and constant.value == "%s" and isinstance(op, ast.Mod)
                if whole and isinstance(other, Ref) and state.cells[other.cell].kind == "text":
                    return other
                if (idle := self._idle_number(constant, other, op, constant is a, node, state)) is not None:
                    return idle
                if constant.value in (0, 1, "%s") and not isinstance(constant.value, bool):
                    return self.made("weak", pair, node, state)
            if isinstance(constant, Ref) and not state.touches(constant):  # an empty list, or one of other things
                if isinstance(other, Ref) and isinstance(op, ast.Add) and not state.cells[constant.cell].items:
                    return self.copy(other, state)
                return self.made("new" if state.cells[constant.cell].items else "weak", pair, node, state)
        kinds = {v.kind if isinstance(v, Made) else type(v).__name__ for v in pair}
        if kinds <= {"cut", "weak"} or (kinds & {"Vague"} and kinds <= {"Vague", "cut", "weak", "Ref", "Attr"}):
            return self.made("weak", pair, node, state)
        return self.made("new", pair, node, state)

    def _idle_number(
        self, constant: Const, other: Value, op: ast.operator, first: bool, node: ast.expr, state: State
    ) -> Value | None:
        """What adding nothing to a number, or taking it once, gives: the number."""
        if type(constant.value) not in (int, float) or not isinstance(other, Attr | Ref):
            return None
        adds = isinstance(op, ast.Add) or (isinstance(op, ast.Sub) and not first)
        if adds and constant.value == 0:
            self._without(constant, node, state)
            return other
        times = isinstance(op, ast.Mult) or (isinstance(op, ast.Div) and not first)
        return other if times and constant.value == 1 else None

    def _without(self, constant: Const, node: ast.expr, state: State) -> None:
        if constant.origin:
            state.unreachable += ((node.lineno, f"`{constant.origin}` is {constant.value}"),)

    def copy(self, value: Value, state: State, deep: bool = False) -> Value:
        """An equal object. See :class:`~ragtrace.inventory.containers.Containers`."""
        raise NotImplementedError

    def _BoolOp(self, node: ast.BoolOp, state: State) -> Paths:
        """``x or default`` is x, and ``x and f(x)`` is f(x), but for an empty x; else the operands are branches."""
        paths: Paths = []
        pending = self.eval(node.values[0], state)
        for i, operand in enumerate(node.values):
            following: Paths = []
            last = i == len(node.values) - 1
            for value, s in pending:
                stop: bool | None = None
                if last:
                    stop = True
                elif isinstance(value, Const):
                    stop = bool(value.value) == isinstance(node.op, ast.Or)
                elif (s.touches(value) and not isinstance(value, Made)) or isinstance(value, Made):
                    stop = isinstance(node.op, ast.Or)
                if stop is not False:
                    ended = s.fork() if stop is None else s
                    if stop is None:
                        ended.conditions += (Condition(source(operand), isinstance(node.op, ast.Or), operand.lineno),)
                    paths.append((value, ended))
                if not stop:
                    if stop is None:
                        s.conditions += (Condition(source(operand), isinstance(node.op, ast.And), operand.lineno),)
                    following += self.eval(node.values[i + 1], s)
            pending = following
        return paths

    def _Compare(self, node: ast.Compare, state: State) -> Paths:
        found: Paths = []
        for values, s in self.eval_all((node.left, *node.comparators), state):
            known = _compared(values, node.ops)
            found.append((self.made("new", values, node, s) if known is None else known, s))
        return found

    def _UnaryOp(self, node: ast.UnaryOp, state: State) -> Paths:
        found: Paths = []
        for value, s in self.eval(node.operand, state):
            if isinstance(node.op, ast.USub) and isinstance(value, Const) and isinstance(value.value, int | float):
                found.append((Const(-value.value, value.origin), s))
            elif isinstance(node.op, ast.Not) and isinstance(value, Const):
                found.append((Const(not value.value, value.origin), s))
            else:
                found.append((self.made("new", (value,), node, s), s))
        return found

    def _IfExp(self, node: ast.IfExp, state: State) -> Paths:
        return [
            path
            for truth, s in self.test(node.test, state, (node.body, node.orelse))
            for path in self.eval(node.body if truth else node.orelse, s)
        ]

    def test(self, node: ast.expr, state: State, branches: tuple[object, object]) -> list[tuple[bool, State]]:
        """Both ways a test may go, or the only one. See :class:`~ragtrace.inventory.flow.Flow`."""
        raise NotImplementedError

    def _NamedExpr(self, node: ast.NamedExpr, state: State) -> Paths:
        paths = self.eval(node.value, state)
        for value, s in paths:
            s.bind(node.target.id, value)
        return paths

    def _Await(self, node: ast.Await, state: State) -> Paths:
        return self.eval(node.value, state)

    def _Starred(self, node: ast.Starred, state: State) -> Paths:
        return self.eval(node.value, state)

    def _Dict(self, node: ast.Dict, state: State) -> Paths:
        found: Paths = []
        nodes = [*(k for k in node.keys if k is not None), *node.values]
        for values, s in self.eval_all(nodes, state):
            found.append((self._dict(node, list(values[-len(node.values) :]) if node.values else [], s), s))
        return found

    def _dict(self, node: ast.Dict, values: list[Value], state: State) -> Value:
        spread = [v for k, v in zip(node.keys, values, strict=True) if k is None]
        plain = all(k is None or (isinstance(k, ast.Constant) and isinstance(k.value, str)) for k in node.keys)
        pairs = [(str(k.value), v) for k, v in zip(node.keys, values, strict=True) if isinstance(k, ast.Constant)]
        first = spread[0] if spread else None
        if isinstance(first, Ref) and state.cells[first.cell].kind == "element" and len(spread) == 1 and plain:
            return self.replaced(first, dict(pairs), node, state)
        if isinstance(first, Attr) and len(spread) == 1 and plain:  # {**document.metadata, key: value}
            return Made("new", source(node), node.lineno) if pairs else first
        maps = [v.items for v in spread if isinstance(v, Map)]
        if plain and len(maps) == len(spread):
            return Map(tuple({k: v for items in (*maps, pairs) for k, v in items}.items()))
        return self.made("weak", values, node, state)

    def replaced(self, base: Ref, fields: dict[str, Value], node: ast.expr, state: State) -> Value:
        """A copy of an element with fields set. See :class:`~ragtrace.inventory.objects.Objects`."""
        raise NotImplementedError

    def _Lambda(self, node: ast.Lambda, state: State) -> Paths:
        return [(Func(node, self.frame.module, self.frame.owner, tuple(state.env.items())), state)]

    def _JoinedStr(self, node: ast.JoinedStr, state: State) -> Paths:
        parts = [v for v in node.values if not (isinstance(v, ast.Constant) and v.value == "")]
        inner = [v.value for v in parts if isinstance(v, ast.FormattedValue)]
        found: Paths = []
        for values, s in self.eval_all(inner, state):
            only = parts[0] if len(parts) == 1 else None
            if isinstance(only, ast.FormattedValue) and not only.format_spec and only.conversion in (-1, ord("s")):
                found.append((values[0] if s.touches(values[0]) else Sym(source(node)), s))
            else:
                kind = "weak" if len(inner) == len(parts) else "new"
                found.append((self.made(kind, values, node, s), s))
        return found


def _compared(values: tuple[Value, ...], ops: list[ast.cmpop]) -> Const | None:
    """A comparison of two constants, one of which has a name; whether something is in what is empty."""
    left, right, op = values[0], values[-1], ops[0]
    if len(values) != 2 or not isinstance(right, Const):
        return None
    if right.value == () and right.origin and isinstance(op, ast.In | ast.NotIn):
        return Const(isinstance(op, ast.NotIn), right.origin)
    if not isinstance(left, Const):
        return None
    origin = left.origin or right.origin
    if isinstance(op, ast.Is | ast.Eq):
        return Const(left.value == right.value, origin)
    if isinstance(op, ast.IsNot | ast.NotEq):
        return Const(left.value != right.value, origin)
    if not isinstance(left.value, int | float) or not isinstance(right.value, int | float):
        return None
    order = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}.get(type(op))
    return Const(order(left.value, right.value), origin) if order else None
