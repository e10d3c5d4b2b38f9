"""Expressions, evaluated to values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ragtrace.inventory.trial.natives import LOGS
from ragtrace.inventory.trial.objects import Objects
from ragtrace.inventory.trial.things import Function, Generator, GiveUpError, Later, Opaque, Scope, Super

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.MatMult: operator.matmul,
}  # fmt: skip
_IN_PLACE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.iadd, ast.BitOr: operator.ior, ast.BitAnd: operator.iand, ast.Sub: operator.isub,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
_WIDEST = 100_000
_ASKS = frozenset("len isinstance bool startswith endswith lower upper strip search match get isdigit count".split())


def _asks(node: ast.AST) -> bool:
    """Whether a part of an expression changes nothing."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in _ASKS
    return not isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)


class Expressions(Objects):
    """Statements are in :class:`~ragtrace.inventory.trial.statements.Statements`."""

    def eval(self, node: Any, scope: Scope) -> Any:
        """The value of an expression."""
        self.tick()
        return getattr(self, f"e_{type(node).__name__}", self._e_other)(node, scope)

    def _e_other(self, node: ast.expr, scope: Scope) -> Any:
        raise GiveUpError(type(node).__name__)

    def e_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def e_Name(self, node: ast.Name, scope: Scope) -> Any:
        return self.look_up(node.id, scope)

    def e_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self.attribute(self.eval(node.value, scope), node.attr)

    def e_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        holder = scope
        while not holder.function and holder.parent is not None and holder.owner is None:
            holder = holder.parent  # a comprehension has no names of its own for this
        self.bind(node.target.id, value, holder)
        return value

    def e_Tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self._items(node.elts, scope))

    def e_List(self, node: ast.List, scope: Scope) -> Any:
        return self._items(node.elts, scope)

    def e_Set(self, node: ast.Set, scope: Scope) -> Any:
        return set(self._items(node.elts, scope))

    def _items(self, nodes: Iterable[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.each(self.eval(node.value, scope))
            else:
                found.append(self.eval(node, scope))
        return found

    def e_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                made |= self.plain(self.eval(value, scope))
            else:
                made[self.eval(key, scope)] = self.eval(value, scope)
        return made

    def e_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        return self.binary(node.op, self.eval(node.left, scope), self.eval(node.right, scope))

    def binary(self, op: ast.operator, a: Any, b: Any, in_place: bool = False) -> Any:
        """``a op b``."""
        if isinstance(a, Opaque) or isinstance(b, Opaque):
            if isinstance(op, ast.Mod) and isinstance(a, str):
                raise GiveUpError("a text made of something out of sight")
            return Opaque("a number")
        for one, other in ((a, b), (b, a)):
            size = len(one) if isinstance(one, str | bytes | list | tuple) else 0
            if isinstance(one, list | tuple):
                size += sum(len(v) for v in one if isinstance(v, str | bytes | list | tuple))
            if isinstance(op, ast.Mult) and size and isinstance(other, int) and size * other > _WIDEST:
                raise GiveUpError("something large")
        if isinstance(op, ast.Pow | ast.LShift) and isinstance(b, int) and abs(b) > 512:
            raise GiveUpError("a large number")
        if isinstance(op, ast.Add) and isinstance(a, str | bytes | list | tuple) and len(a) > _WIDEST:
            raise GiveUpError("something large")
        if isinstance(op, ast.Mod) and isinstance(a, str):
            self.checked(a.format, (), {})
        if isinstance(op, ast.BitAnd):
            self.meets(a, b)
        if isinstance(a, int) and a.bit_length() > 4096:
            raise GiveUpError("a large number")
        return ((_IN_PLACE.get(type(op)) if in_place else None) or _BINARY[type(op)])(a, b)

    def e_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        if isinstance(node.op, ast.Not):
            return not self.truth(node.operand, scope)
        value = self.eval(node.operand, scope)
        return value if isinstance(value, Opaque) else _UNARY[type(node.op)](value)

    def e_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        value: Any = None
        for i, part in enumerate(node.values):
            value = self.eval(part, scope)
            if self.decided(part, value) is isinstance(node.op, ast.Or):
                self._rest(node.values[i + 1 :], scope)
                break
        return value

    def _rest(self, parts: list[ast.expr], scope: Scope) -> None:
        """What need not be asked any more is asked all the same, to know what it would say, if that does nothing."""
        for part in parts if self.testing is not None else ():
            if all(_asks(n) for n in ast.walk(part)):
                known = dict(self.open)
                try:
                    self.decided(part, self.eval(part, scope))
                except (Exception, GiveUpError):
                    return
                finally:
                    self.open = known

    def e_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        left = self.eval(node.left, scope)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.eval(comparator, scope)
            if not isinstance(op, ast.Is | ast.IsNot) and (isinstance(left, Opaque) or isinstance(right, Opaque)):
                return Opaque("a comparison")
            if isinstance(op, ast.Is | ast.IsNot) and isinstance(left, Opaque) and right is None:
                return Opaque("a comparison")
            self.compared(node, op, left, right)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def e_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.eval(node.body if self.test(node, node.test, scope) else node.orelse, scope)

    def truth(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression is true."""
        return self.decided(node, self.eval(node, scope))

    def test(self, at: ast.AST, node: ast.expr, scope: Scope) -> bool:
        """Whether a test is true; which way it went is kept, and what was searched for to tell."""
        outer, self.testing = self.testing, at
        try:
            found = self.truth(node, scope)
        finally:
            self.testing = outer
        if at in self.coins:
            found = self.coins[at]
        self.took.add((at, found))
        return found

    def e_Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return self.function(node, scope)

    def e_Await(self, node: ast.Await, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        if isinstance(value, Later):
            return value.run()
        if isinstance(value, Opaque):
            return value
        raise TypeError("object can't be used in 'await' expression")

    def e_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        return "".join(str(self.eval(part, scope)) for part in node.values)

    def e_FormattedValue(self, node: ast.FormattedValue, scope: Scope) -> Any:
        value = self.eval(node.value, scope)
        if node.conversion != -1:
            value = (
                str(value)
                if node.conversion == ord("s")
                else ascii(value)
                if node.conversion == ord("a")
                else repr(value)
            )
        spec = self.eval(node.format_spec, scope) if node.format_spec else ""
        self.checked(str(spec).format, (), {})
        return format(value, spec)

    def e_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        return self.item(self.eval(node.value, scope), self.eval(node.slice, scope))

    def e_Slice(self, node: ast.Slice, scope: Scope) -> Any:
        return slice(*(self.eval(p, scope) if p is not None else None for p in (node.lower, node.upper, node.step)))

    def e_Starred(self, node: ast.Starred, scope: Scope) -> Any:
        raise GiveUpError("a star")

    # -- comprehensions ---------------------------------------------------------------------------

    def _rounds(
        self, node: Any, generators: list[ast.comprehension], scope: Scope, first: Any = None
    ) -> Iterator[None]:
        generator, *rest = generators
        items = first if first is not None else self.eval(generator.iter, scope)
        went = False
        for item in self.each(items):
            went = True
            self.tick()
            self.assign(generator.target, item, scope)
            if all(self.test(test, test, scope) for test in generator.ifs):
                if rest:
                    yield from self._rounds(node, rest, scope)
                else:
                    yield
        self.took.add((generator, went))
        if hasattr(items, "__next__"):
            self.ended.append(items)

    def _inner(self, scope: Scope) -> Scope:
        return Scope(scope.module, scope)

    def e_ListComp(self, node: ast.ListComp, scope: Scope) -> Any:
        inner = self._inner(scope)
        return [self.eval(node.elt, inner) for _ in self._rounds(node, node.generators, inner)]

    def e_SetComp(self, node: ast.SetComp, scope: Scope) -> Any:
        inner = self._inner(scope)
        return {self.eval(node.elt, inner) for _ in self._rounds(node, node.generators, inner)}

    def e_DictComp(self, node: ast.DictComp, scope: Scope) -> Any:
        inner = self._inner(scope)
        rounds = self._rounds(node, node.generators, inner)
        return {self.eval(node.key, inner): self.eval(node.value, inner) for _ in rounds}

    def e_GeneratorExp(self, node: ast.GeneratorExp, scope: Scope) -> Any:
        inner = self._inner(scope)
        first = self.eval(node.generators[0].iter, inner)
        return (self.eval(node.elt, inner) for _ in self._rounds(node, node.generators, inner, first))

    def e_Yield(self, node: ast.Yield, scope: Scope) -> Any:
        self.yielded[-1].append(self.eval(node.value, scope) if node.value else None)

    def e_YieldFrom(self, node: ast.YieldFrom, scope: Scope) -> Any:
        self.yielded[-1] += self.each(self.eval(node.value, scope))

    # -- calls ------------------------------------------------------------------------------------

    def e_Call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super(node, scope)
        function = self.eval(node.func, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in LOGS:
            outer, self.testing = self.testing, node
            try:
                return self._called(function, node, scope)
            finally:
                self.testing = outer
        return self._called(function, node, scope)

    def _called(self, function: Any, node: ast.Call, scope: Scope) -> Any:
        args = self._items(node.args, scope)
        kw: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                kw |= self.plain(self.eval(keyword.value, scope))
            else:
                kw[keyword.arg] = self.eval(keyword.value, scope)
        return self.call(function, args, kw, node)

    def _super(self, node: ast.Call, scope: Scope) -> Super:
        at: Scope | None = scope
        while at is not None and at.first is None:
            at = at.parent
        if at is None or at.owner is None:
            raise GiveUpError("super()")
        return Super(at.owner, at.first)

    def function(self, node: Any, scope: Scope) -> Function:
        """A function, with its defaults evaluated where it is made."""
        made = Function(self, node, scope, scope.owner)
        spec = node.args
        made.defaults = (
            [self.eval(d, scope) for d in spec.defaults],
            [self.eval(d, scope) if d is not None else ... for d in spec.kw_defaults],
        )
        return made

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Binds a target."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, list(self.each(value)), scope)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.eval(target.value, scope), target.attr, value)
        elif isinstance(target, ast.Subscript):
            self.set_item(self.eval(target.value, scope), self.eval(target.slice, scope), value)
        else:
            raise GiveUpError(type(target).__name__)

    def _unpack(self, target: ast.Tuple | ast.List, values: list[Any], scope: Scope) -> None:
        star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        if star is None and len(values) != len(target.elts):
            raise ValueError("wrong number of values to unpack")
        if star is not None:
            after = len(target.elts) - star - 1
            end = len(values) - after
            if end < star:
                raise ValueError("not enough values to unpack")
            values = [*values[:star], values[star:end], *values[end:]]
        for part, value in zip(target.elts, values, strict=True):
            self.assign(part.value if isinstance(part, ast.Starred) else part, value, scope)

    def each(self, value: Any) -> Iterable[Any]:
        """The items of something, a few thousand at most."""
        if isinstance(value, Generator):
            return value
        if isinstance(value, range) and len(value) > _WIDEST:
            raise GiveUpError("a long range")
        return value  # type: ignore[no-any-return]
