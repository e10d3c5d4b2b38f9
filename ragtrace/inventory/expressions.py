"""The data flow through expressions: each is evaluated to (value, state) pairs, one for each path through it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.values import (
    Attr,
    Condition,
    Const,
    Func,
    Made,
    Ref,
    Self,
    State,
    Sym,
    Vague,
    Value,
)

Paths = list[tuple[Value, State]]
MAX_STEPS = 12_000
MAX_PATHS = 256


class TooComplexError(Exception):
    """More paths than are followed."""


@dataclass
class Frame:
    """The function being followed."""

    module: Module
    owner: Class | None
    depth: int = 0


def source(node: ast.AST, limit: int = 70) -> str:
    """A node's source on one line, cut."""
    text: str | None = getattr(node, "_ragtrace_source", None)
    if text is None:
        text = " ".join(ast.unparse(node).split())
        node._ragtrace_source = text  # type: ignore[attr-defined]  # unparsing is what costs here
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Expressions:
    """Names and operators; lists are in :class:`~ragtrace.inventory.containers.Containers`."""

    def __init__(self, mro: list[Class | str], module: Module) -> None:
        self.mro = mro
        self.frame = Frame(module, next((c for c in mro if isinstance(c, Class)), None))
        self.steps = 0
        self._constants: dict[str, Const | None] = {}
        self.loop_ids = count(1)

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
            if len(paths) > MAX_PATHS:
                raise TooComplexError
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
        return isinstance(value, Made) and value.kind == "new"

    # -- names and attributes ---------------------------------------------------------------------

    def _Constant(self, node: ast.Constant, state: State) -> Paths:
        return [(Const(node.value), state)]

    def _Name(self, node: ast.Name, state: State) -> Paths:
        if node.id in state.env:
            return [(state.env[node.id], state)]
        return [(self.global_value(node.id), state)]

    def global_value(self, name: str) -> Value:
        """What a name of the module, or one it imports, stands for."""
        place = self.frame.module.look_up(name)
        if place is None:
            return Sym(name)
        module, original = place
        if function := module.functions.get(original):
            return Func(function, module)
        expr = module.constants.get(original)
        if isinstance(expr, ast.Lambda):
            return Func(expr, module)
        return _literal(expr, name) or Sym(name)

    def _Attribute(self, node: ast.Attribute, state: State) -> Paths:
        return [self.attribute(value, node, s) for value, s in self.eval(node.value, state)]

    def attribute(self, value: Value, node: ast.Attribute, state: State) -> tuple[Value, State]:
        """``value.attr``."""
        if isinstance(value, Self):
            if node.attr in state.attrs:
                return state.attrs[node.attr], state
            return self.member(node.attr) or Sym(f"self.{node.attr}"), state
        if isinstance(value, Ref):
            cell = state.cells[value.cell]
            if cell.kind == "element":
                origin = value.cell if cell.origin is None else cell.origin
                return state.dirt(value) or Attr(origin, node.attr), state
            return Made("cut", source(node), node.lineno), state
        if isinstance(value, Attr):
            return Made("cut", source(node), node.lineno), state
        if isinstance(value, Made | Vague):
            return value, state
        return Sym(source(node)), state

    def member(self, name: str) -> Value | None:
        """A method of the defense, or an attribute that is the same constant wherever its classes set it."""
        for cls in self.mro:
            if isinstance(cls, Class) and name in cls.methods:
                found = cls.methods[name]
                if isinstance(found, FunctionNode):
                    plain = {"staticmethod", "classmethod", "property"}
                    kinds = {source(d) for d in found.decorator_list}
                    if "property" in kinds or not kinds <= plain:
                        return None
                    return Func(found, cls.module, cls, bound="staticmethod" not in kinds)
                if isinstance(found, ast.Lambda):
                    return Func(found, cls.module, cls, bound=True)
                break
            if isinstance(cls, str) and not is_root(cls):
                return None
        if name not in self._constants:
            self._constants[name] = self._constant(name)
        return self._constants[name]

    def _constant(self, name: str) -> Const | None:
        values: list[Const | None] = []
        for cls in self.mro:
            if isinstance(cls, str):
                if not is_root(cls):
                    return None
                continue
            if cls.node.decorator_list:
                return None  # a dataclass's defaults are parameters
            if not values and name in cls.methods:
                found = cls.methods[name]
                values.append(_literal(found, f"self.{name}") if isinstance(found, ast.expr) else None)
            stores = 0
            for node in ast.walk(cls.node):
                if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store | ast.Del):
                    stores += 1
                elif isinstance(node, ast.Assign | ast.AnnAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if any(isinstance(t, ast.Attribute) and t.attr == name for t in targets):
                        stores -= 1
                        values.append(_literal(node.value, f"self.{name}"))
                elif isinstance(node, ast.Call) and source(node.func) == "setattr":
                    return None
            if stores:
                return None
        known = [v for v in values if v is not None]
        same = len(known) == len(values) and len({repr(v.value) for v in known}) == 1
        return known[0] if same else None

    # -- operators --------------------------------------------------------------------------------

    def _BinOp(self, node: ast.BinOp, state: State) -> Paths:
        return [(self.binary(a, b, node, node.op, s), s) for (a, b), s in self.eval_all((node.left, node.right), state)]

    def binary(self, a: Value, b: Value, node: ast.expr, op: ast.operator, state: State) -> Value:
        """``a op b``."""
        pair = (a, b)
        if not any(map(state.touches, pair)):
            return Sym(source(node))
        for constant, other in (pair, pair[::-1]):
            if isinstance(constant, Const):
                if isinstance(op, ast.Add) and constant.value == "":
                    return other
                if constant.value in (0, 1, "%s") and not isinstance(constant.value, bool):
                    return self.made("weak", pair, node, state)
            if isinstance(constant, Ref) and not state.touches(constant):  # an empty list, or one of other things
                return self.made("new" if state.cells[constant.cell].items else "weak", pair, node, state)
        kinds = {v.kind if isinstance(v, Made) else type(v).__name__ for v in pair}
        if kinds <= {"cut", "weak"} or (kinds & {"Vague"} and kinds <= {"Vague", "cut", "weak", "Ref", "Attr"}):
            return self.made("weak", pair, node, state)
        return self.made("new", pair, node, state)

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
        return [
            (self.made("new", values, node, s), s) for values, s in self.eval_all((node.left, *node.comparators), state)
        ]

    def _UnaryOp(self, node: ast.UnaryOp, state: State) -> Paths:
        found: Paths = []
        for value, s in self.eval(node.operand, state):
            if isinstance(node.op, ast.Not) and isinstance(value, Const):
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


def is_root(name: str) -> bool:
    """Whether a base class out of sight, by its dotted name, is a root that adds nothing: Defense or object."""
    return name in ("object", "Defense", "abc.ABC", "ABC", "typing.Generic", "Generic", "typing.Protocol") or (
        name.startswith("ragtrace") and name.endswith(".Defense")
    )


def _literal(expr: ast.expr | None, origin: str) -> Const | None:
    """A constant that a test may be decided by: a literal, or an empty container."""
    if isinstance(expr, ast.Constant):
        return Const(expr.value, origin)
    if isinstance(expr, ast.Tuple | ast.List) and not expr.elts:
        return Const((), origin)
    if isinstance(expr, ast.Dict) and not expr.keys:
        return Const((), origin)
    return None
