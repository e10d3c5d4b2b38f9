"""What a call's callee is, where its source is in sight: classes, functions of modules, tables of functions."""

from __future__ import annotations

import ast
import re

from ragtrace.inventory.members import Paths, source
from ragtrace.inventory.modules import Class, FunctionNode
from ragtrace.inventory.undone import Undone
from ragtrace.inventory.values import Choice, Condition, Const, Func, Map, Partial, Ref, Self, State, Sym, Value


class Lookups(Undone):
    """Calls themselves are in :class:`~ragtrace.inventory.calls.Calls`."""

    def apply(
        self, callee: Value, args: list[Value], kw: dict[str | None, Value], state: State, node: ast.Call
    ) -> Paths:
        """A call of a value. See :class:`~ragtrace.inventory.calls.Calls`."""
        raise NotImplementedError

    def one_of(
        self, callee: Choice, args: list[Value], kw: dict[str | None, Value], state: State, node: ast.Call
    ) -> Paths:
        """A call of a table's entry: each that it may be, as the branches of a test."""
        found: Paths = []
        for key, option in callee.options:
            s = state.fork()
            s.conditions += (Condition(f"{callee.text} is {key!r}", True, node.lineno),)
            found += self.apply(option, args, kw, s, node)
        return found

    def chosen(self, table: Map, key: str, default: Value | None = None) -> Choice | None:
        """An entry of a table of functions under a key that is not known."""
        options = [*table.items, *([("anything else", default)] if default is not None else [])]
        if not options or not all(isinstance(v, Func | Partial) for _, v in options):
            return None
        return Choice(tuple(options), key)

    def empty_by_default(self, node: ast.expr) -> bool:
        """Whether ``self.name`` is a list or table that holds nothing unless the constructor is given something."""
        if not isinstance(node, ast.Attribute) or source(node.value) != "self" or node.attr in self.frame.module.filled:
            return False
        made = self.definition(node.attr)
        if isinstance(made, ast.BoolOp) and isinstance(made.op, ast.Or):
            made = made.values[-1]
        elif isinstance(made, ast.Call):
            kinds = [k.value for k in made.keywords if k.arg == "default_factory"]
            return bool(kinds) and source(kinds[0]) in ("list", "dict", "tuple", "set")
        else:
            return False
        return isinstance(made, ast.List | ast.Tuple | ast.Dict) and source(made) in ("[]", "()", "{}")

    def by_name(self, node: ast.Call, args: list[Value]) -> Choice | None:
        """``getattr(self, f"_mask_{kind}")``: any method that may have such a name."""
        if len(node.args) < 2 or not isinstance(args[0], Self) or not isinstance(node.args[1], ast.JoinedStr):
            return None
        parts = node.args[1].values
        if not isinstance(parts[0], ast.Constant):
            return None
        wanted = re.compile("".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else "\\w+" for p in parts))
        names = dict.fromkeys(n for c in self.mro if isinstance(c, Class) for n in c.methods if wanted.fullmatch(n))
        found = [(n, v) for n in names if isinstance(v := self.member(n), Func)]
        if len(args) > 2 and isinstance(args[2], Func):
            found.append(("anything else", args[2]))
        return Choice(tuple(found), source(node.args[1])) if found else None

    def record(self, cls: Class, args: list[Value], kw: dict[str | None, Value]) -> Map | None:
        """An object of a dataclass that only holds what it is given, by the names of its fields."""
        plain = any("dataclass" in source(d) for d in cls.node.decorator_list) and not cls.bases
        if not plain or {"__init__", "__post_init__", "__new__", "__getattr__"} & cls.methods.keys() or None in kw:
            return None
        fields = [n for n in cls.node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        held: dict[str, Value] = {
            source(n.target): Const(n.value.value) if isinstance(n.value, ast.Constant) else Sym(source(n.target))
            for n in fields
        }
        held |= dict(zip(list(held), args, strict=False)) | {str(k): v for k, v in kw.items()}
        return Map(tuple(held.items()))

    def _kind_of(self, node: ast.Call, value: Value, state: State) -> bool | None:
        """Whether the input is of a type, where its hook says what it is."""
        wanted = source(node.args[1])
        cell = state.cells[value.cell] if isinstance(value, Ref) else None
        if cell is not None and cell.kind == "text" and wanted in ("bytes", "bytearray", "(bytes, bytearray)"):
            return False
        if cell is None or cell.sure is False:
            return None
        if cell.kind == "text":
            return wanted in ("str", "(str,)", "str | bytes", "(str, bytes)")
        return True if cell.kind == "list" and wanted in ("list", "(list, tuple)", "Sequence") else None

    def as_lambda(self, function: ast.expr, state: State) -> Func:
        """``lambda item: function(item)``, for a function of a module or type out of sight."""
        spec = ast.arguments([], [ast.arg("_item")], None, [], [], None, [])
        made = ast.Lambda(spec, ast.Call(function, [ast.Name("_item", ast.Load())], []))
        whole = ast.fix_missing_locations(ast.copy_location(made, function))
        return Func(whole, self.frame.module, self.frame.owner, tuple(state.env.items()))

    def inlined(self, node: ast.Call, name: str) -> ast.Call | None:
        """``self.clean(x)`` where ``self.clean = PATTERN.sub``, or a ``partial`` of something: the call meant."""
        made = self.definition(name)
        if isinstance(made, ast.Call) and source(made.func) == "staticmethod" and made.args:
            made = made.args[0]
        if isinstance(made, ast.BoolOp) and isinstance(made.op, ast.Or):  # `given or something`
            made = made.values[-1]
        if isinstance(made, ast.Attribute | ast.Lambda):
            return ast.copy_location(ast.Call(made, node.args, node.keywords), node)
        if isinstance(made, ast.Call) and source(made.func) in ("partial", "functools.partial") and made.args:
            given, keywords = [*made.args[1:], *node.args], [*made.keywords, *node.keywords]
            return ast.copy_location(ast.Call(made.args[0], given, keywords), node)
        return None

    def _class_of(self, func: ast.expr) -> Class | None:
        if not isinstance(func, ast.Name):
            return None
        place = self.frame.module.look_up(func.id)
        return place[0].classes.get(place[1]) if place else None

    def _imports(self) -> str:
        return " ".join(origin for origin, _ in self.frame.module.imports.values())

    def _class_in(self, func: ast.Attribute) -> Class | None:
        """``module.Class``, for a module in sight."""
        if not isinstance(func.value, ast.Name) or func.value.id not in self.frame.module.imports:
            return None
        origin, original = self.frame.module.imports[func.value.id]
        dotted = f"{origin}.{original}" if original and not origin.endswith(".") else f"{origin}{original or ''}"
        if not func.attr[:1].isupper():
            return None
        other = self.frame.module.library.find(dotted, self.frame.module.path)
        place = other.look_up(func.attr) if other else None
        return place[0].classes.get(place[1]) if place else None

    def _in_module(self, alias: str, name: str) -> Func | None:
        module = self.frame.module
        origin, original = module.imports[alias]
        dotted = f"{origin}.{original}" if original and not origin.endswith(".") else f"{origin}{original or ''}"
        other = module.library.find(dotted, module.path)
        place = other.look_up(name) if other else None
        function = place[0].functions.get(place[1]) if place else None
        return Func(function, place[0]) if place and function else None

    def _of_class(self, receiver: ast.expr, name: str) -> Func | None:
        """``Base.method(self, …)``."""
        if not isinstance(receiver, ast.Name):
            return None
        place = self.frame.module.look_up(receiver.id)
        cls = place[0].classes.get(place[1]) if place else None
        for c in cls.mro if cls else ():
            if isinstance(c, Class) and isinstance(method := c.methods.get(name), FunctionNode):
                static = any(source(d) == "staticmethod" for d in method.decorator_list)
                bound = any(source(d) == "classmethod" for d in method.decorator_list) and not static
                return Func(method, c.module, c, bound=bound)
        return None
