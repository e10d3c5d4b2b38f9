"""What the data flow finds in sight: attributes of the defense and of its helpers, constants, settings."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from ragtrace.inventory.constants import literal, setting
from ragtrace.inventory.fields import LISTS
from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.roots import FRAMEWORKS, MODELS, is_framework_root
from ragtrace.inventory.values import (
    Attr,
    Cell,
    Const,
    Func,
    Made,
    Map,
    Obj,
    Ref,
    Self,
    State,
    Sym,
    Tup,
    Vague,
    Value,
    edits_on,
)

T = TypeVar("T")


Paths = list[tuple[Value, State]]


UNROLLED = 6  # items of a list of functions that are followed one by one
MAX_STEPS = 40_000
MAX_PATHS = 192
_LIMITS = ((6_000, MAX_PATHS), (12_000, 32), (20_000, 8), (1 << 60, 2))  # (up to so many steps, so many paths)


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


def is_root(name: str) -> bool:
    """Whether a base class out of sight, by its dotted name, is a root that adds nothing: Defense or object."""
    return name in ("object", "Defense", "abc.ABC", "ABC", "typing.Generic", "Generic", "typing.Protocol") or (
        name.startswith("ragtrace") and name.endswith(".Defense")
    )


class Members:
    """Names and attributes; operators are in :class:`~ragtrace.inventory.expressions.Expressions`."""

    def __init__(self, mro: list[Class | str], module: Module) -> None:
        self.mro = mro
        self.frame = Frame(module, next((c for c in mro if isinstance(c, Class)), None))
        self.steps = 0
        self.sampled = False
        self._constants: dict[str, Value | None] = {}
        self.loop_ids = count(1)
        self.needs: dict[str, str] = {}  # names that optional imports give, and the modules
        self.absent: list[tuple[int, str]] = []
        self.local_names: set[str] = set()  # all that the functions being followed bind

    def sample(self, found: list[T]) -> list[T]:
        """At most so many as are followed. What acts on one of them acts; that nothing acts cannot be told any more."""
        limit = next(paths for steps, paths in _LIMITS if self.steps < steps)
        if len(found) <= limit:
            return found
        self.sampled = True
        half = max(limit // 4, 1)
        edited = sorted(found, key=edits_on, reverse=True)[:half]
        rest = [f for f in found if all(f is not e for e in edited)]
        return edited + rest[:: -(-len(rest) // half) or 1]

    def global_value(self, name: str) -> Value:
        """What a name of the module, or one it imports, stands for."""
        origin, short = self.frame.module.imports.get(name, ("", None))
        framed = short and short[:1].isupper() and origin.startswith(FRAMEWORKS)
        place = None if framed else self.frame.module.look_up(name)
        if place is None:  # nothing in sight, or a framework's class, which is read where it matters
            return Sym(name)
        module, original = place
        if original in module.optional:
            return self._optional(name, original, module)
        if function := module.functions.get(original):
            return Func(function, module)
        expr = module.constants.get(original)
        if isinstance(expr, ast.Lambda):
            return Func(expr, module)
        if isinstance(expr, ast.List | ast.Tuple) and 0 < len(expr.elts) <= UNROLLED and original not in module.filled:
            parts = [self._written(e, module) for e in expr.elts]
            if None not in parts:
                return Tup(tuple(p for p in parts if p is not None))
        made = isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and module.look_up(expr.func.id)
        if made and (cls := made[0].classes.get(made[1])):
            return Obj(cls, name)
        if original not in module.filled and (table := self._table(expr, module)) is not None:
            return table
        return (literal(expr, name) if original not in module.filled else None) or Sym(name)

    def _optional(self, name: str, original: str, module: Module) -> Value:
        """What an import gives that may fail, or what stands in its place."""
        needs, instead = module.optional[original]
        if not module.library.missing(needs, module.path):
            self.needs[name] = needs
            return Sym(name)
        why = f"`{needs}` cannot be found, so `{name}` is what stands in its place"
        if isinstance(instead, FunctionNode | ast.Lambda):
            self.absent.append((instead.lineno, why))
            return Func(instead, module)
        known = literal(instead, f"{name}` (without `{needs}`)")
        return known or Sym(name)

    def attribute(self, value: Value, node: ast.Attribute, state: State) -> tuple[Value, State]:
        """``value.attr``."""
        if isinstance(value, Self):
            if node.attr in state.attrs:
                return state.attrs[node.attr], state
            return self.member(node.attr) or self._property(node, state) or Sym(f"self.{node.attr}"), state
        if isinstance(value, Obj):
            stored = state.attrs.get(f"{value.text}.{node.attr}")
            return stored or self.method_of(value, node.attr) or Sym(source(node)), state
        if isinstance(value, Ref):
            cell = state.cells[value.cell]
            if cell.kind != "element":
                return Made("cut", source(node), node.lineno), state
            if node.attr in LISTS:
                return self.part(value, node.attr, state), state
            origin = value.cell if cell.origin is None else cell.origin
            dirt = state.dirt(value)
            return dirt or Attr(origin, f"{cell.part}.{node.attr}" if cell.part else node.attr), state
        if isinstance(value, Attr):
            return Attr(value.cell, f"{value.name}.{node.attr}"), state
        if isinstance(value, Map):
            return dict(value.items).get(node.attr) or Sym(source(node)), state
        if isinstance(value, Made | Vague):
            return value, state
        return self._setting(node) or Sym(source(node)), state

    def _property(self, node: ast.Attribute, state: State) -> Value | None:
        """What a property in sight gives, where that is one value that has nothing to do with the input."""
        for cls in self.mro:
            if isinstance(cls, str):
                if not is_root(cls) and not is_framework_root(cls, self.frame.module.path):
                    return None
                continue
            if isinstance(found := cls.methods.get(node.attr), FunctionNode):
                kinds = {source(d).rpartition(".")[2] for d in found.decorator_list}
                if not kinds & {"property", "cached_property"}:
                    return None
                getter = Func(found, cls.module, cls, bound=True, plain=True)
                call = ast.copy_location(ast.Call(node, [], []), node)
                paths = self.call(getter, [], {}, state.fork(), call)
                given = paths[0][0] if len(paths) == 1 else None
                return Const(given.value, f"self.{node.attr}") if isinstance(given, Const) else None
        return None

    def call(
        self, function: Func, args: list[Value], kw: dict[str | None, Value], state: State, node: ast.Call
    ) -> Paths:
        """Follows a call. See :class:`~ragtrace.inventory.calls.Calls`."""
        raise NotImplementedError

    def _setting(self, node: ast.Attribute) -> Const | None:
        """``Config.FLAG``, ``Mode.OFF``, ``settings.FLAG``: a constant of a class or module in sight."""
        if not isinstance(node.value, ast.Name):
            return None
        return setting(node, self.frame.module)

    def table_entry(self, node: ast.expr, key: object) -> Value | None:
        """What a dict written out in the module holds under a key."""
        if not isinstance(node, ast.Name) or (place := self.frame.module.look_up(node.id)) is None:
            return None
        module, name = place
        table = module.constants.get(name)
        if not isinstance(table, ast.Dict) or name in module.filled:
            return None
        for k, v in zip(table.keys, table.values, strict=True):
            if isinstance(k, ast.Constant) and k.value == key:
                if isinstance(v, ast.Lambda):
                    return Func(v, module)
                if isinstance(v, ast.Name) and (at := module.look_up(v.id)) and (f := at[0].functions.get(at[1])):
                    return Func(f, at[0])
                return literal(v, f"{source(node)}[{key!r}]")
        return None

    def part(self, owner: Ref, name: str, state: State) -> Ref:
        """The list that is an attribute of an element, or held under a key of it."""
        key = (owner.cell, name)
        if key not in state.parts:
            origin = state.cells[owner.cell].origin
            known = state.parts.get((origin, name)) if origin is not None else None
            cell = state.cells[known] if known is not None else Cell("list")
            ref = state.new(cell)
            if known is None:
                state.cells[ref.cell] = Cell("list", space=-1 - ref.cell)
            state.parts[key] = ref.cell
        return Ref(state.parts[key])

    def member(self, name: str) -> Value | None:
        """A method of the defense, or an attribute that is the same constant wherever its classes set it."""
        for cls in self.mro:
            if isinstance(cls, Class) and name in cls.methods:
                found = cls.methods[name]
                if isinstance(found, ast.Name) and isinstance(cls.methods.get(found.id), FunctionNode):
                    found = cls.methods[found.id]
                static = (
                    isinstance(found, ast.Call) and source(found.func) in ("staticmethod", "classmethod") and found.args
                )
                if isinstance(found, ast.Call) and static:
                    inner, bound = found.args[0], source(found.func) == "classmethod"
                    if isinstance(inner, ast.Lambda):
                        return Func(inner, cls.module, cls, bound=bound)
                    place = cls.module.look_up(inner.id) if isinstance(inner, ast.Name) else None
                    function = place[0].functions.get(place[1]) if place else None
                    return Func(function, place[0], bound=bound) if place and function else None
                if isinstance(found, FunctionNode):
                    kinds = {source(d).rpartition(".")[2] for d in found.decorator_list}
                    if kinds & {"property", "cached_property", "setter"}:
                        return None
                    return Func(found, cls.module, cls, bound="staticmethod" not in kinds)
                if isinstance(found, ast.Lambda):
                    return Func(found, cls.module, cls, bound=True)
                break
            if isinstance(cls, str) and not is_root(cls):
                return None
        if name not in self._constants:
            self._constants[name] = self._constant(name) or self._object(name)
        return self._constants[name]

    def method_of(self, value: Obj, name: str) -> Func | None:
        """A method of an object that the defense uses."""
        for cls in value.cls.mro:
            if isinstance(cls, Class) and isinstance(found := cls.methods.get(name), FunctionNode):
                kinds = {source(d) for d in found.decorator_list}
                if "property" in kinds:
                    return None
                return Func(found, cls.module, cls, bound="staticmethod" not in kinds, receiver=value)
            if isinstance(cls, str) and not is_root(cls):
                return None
        return None

    def definition(self, name: str) -> ast.expr | None:
        """What ``self.name`` is set to, where its classes set it once."""
        found: list[ast.expr] = []
        for cls in self.mro:
            if not isinstance(cls, Class):
                continue
            if isinstance(value := cls.methods.get(name), ast.expr):
                found.append(value)
            for node in ast.walk(cls.node):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if node.value and any(isinstance(t, ast.Attribute) and t.attr == name for t in targets):
                        found.append(node.value)
        if len(found) > 1 and isinstance(found[0], ast.Constant) and found[0].value is None:
            declared = any(isinstance(c, Class) and c.methods.get(name) is found[0] for c in self.mro)
            found = found[1:] if declared else found
        return found[0] if len(found) == 1 else None

    def _object(self, name: str) -> Value | None:
        """``self.name = Helper(…)``, for a helper in sight."""
        made = self.definition(name)
        owner = next((c for c in self.mro if isinstance(c, Class) and any(n is made for n in ast.walk(c.node))), None)
        if owner is None or name in owner.module.filled:
            return None
        if isinstance(made, ast.List | ast.Tuple) and made.elts and len(made.elts) <= UNROLLED:
            parts = [self._written(e, owner.module) for e in made.elts]
            return Tup(tuple(p for p in parts if p is not None)) if None not in parts else None
        if (table := self._table(made, owner.module)) is not None:
            return table
        if isinstance(made, ast.BoolOp) and isinstance(made.op, ast.Or):  # `given or Helper()`
            made = made.values[-1]
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
            return None
        place = owner.module.look_up(made.func.id)
        found = place[0].classes.get(place[1]) if place else None
        if found is not None:
            return Obj(found, f"self.{name}")
        function = place[0].functions.get(place[1]) if place else None
        given = [self._written(a, owner.module) for a in made.args]
        if place is None or function is None or None in given or made.keywords or not given:
            return None
        values = [v for v in given if v is not None]
        paths = self.call(Func(function, place[0]), values, {}, State(), made)
        return paths[0][0] if len(paths) == 1 and isinstance(paths[0][0], Func) else None

    def _written(self, node: ast.expr, module: Module) -> Value | None:
        """A function that is named, or written, where it is put into a list or handed to another."""
        if isinstance(node, ast.Lambda):
            return Func(node, module)
        if isinstance(node, ast.Name) and (place := module.look_up(node.id)):
            function = place[0].functions.get(place[1])
            return Func(function, place[0]) if function else None
        if isinstance(node, ast.Attribute) and source(node.value) == "str":
            return Sym(source(node))
        if isinstance(node, ast.Attribute) and source(node.value) == "self":
            return found if isinstance(found := self.member(node.attr), Func) else None
        return None

    def _table(self, node: ast.expr | None, module: Module) -> Map | None:
        """A dict of functions, written out."""
        if not isinstance(node, ast.Dict) or not node.keys or len(node.keys) > UNROLLED:
            return None
        parts = [(k.value, self._written(v, module)) for k, v in zip(node.keys, node.values, strict=True)
                 if isinstance(k, ast.Constant)]  # fmt: skip
        whole = len(parts) == len(node.keys) and all(v is not None for _, v in parts)
        return Map(tuple((str(k), v) for k, v in parts if v is not None)) if whole else None

    def _constant(self, name: str) -> Const | None:
        values: list[Const | None] = []
        for cls in self.mro:
            if isinstance(cls, str):
                if not is_root(cls) and not is_framework_root(cls, self.frame.module.path):
                    return None
                continue
            if cls.node.decorator_list or self._is_field(cls, name):
                return _off(cls.methods.get(name), name)  # the defaults of a dataclass or model are parameters
            if name in cls.module.filled:
                return None
            if not values and name in cls.methods:
                found = cls.methods[name]
                values.append(self._known_literal(found, name, cls) if isinstance(found, ast.expr) else None)
            stores = 0
            for node in ast.walk(cls.node):
                if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store | ast.Del):
                    stores += 1
                elif isinstance(node, ast.Assign | ast.AnnAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if any(isinstance(t, ast.Attribute) and t.attr == name for t in targets):
                        stores -= 1
                        values.append(self._known_literal(node.value, name, cls))
                elif isinstance(node, ast.Call) and source(node.func) == "setattr":
                    return None
            if stores:
                return None
        known = [v for v in values if v is not None]
        same = len(known) == len(values) and len({repr(v.value) for v in known}) == 1
        return known[0] if same else None

    def _known_literal(self, node: ast.expr | None, name: str, cls: Class) -> Const | None:
        found = literal(node, f"self.{name}")
        if found is None and isinstance(node, ast.Name) and (off := _off(_default(cls, node.id), name)) is not None:
            return off
        if found is None and isinstance(node, ast.Attribute) and (known := setting(node, cls.module)):
            return Const(known.value, f"self.{name}")
        if found is None and isinstance(node, ast.Name) and (place := cls.module.look_up(node.id)):
            known = literal(place[0].constants.get(place[1]), f"self.{name}")
            return known if place[1] not in place[0].filled else None
        return found

    def _is_field(self, cls: Class, name: str) -> bool:
        """Whether an annotated attribute is a model's field, which its constructor sets."""
        modelled = any(isinstance(c, str) and c.rpartition(".")[2] in MODELS for c in self.mro)
        return modelled and any(
            isinstance(n, ast.AnnAssign) and source(n.target) == name and "ClassVar" not in source(n.annotation)
            for n in cls.node.body
        )


def _default(cls: Class, parameter: str) -> ast.expr | None:
    """What the class's own constructor takes where it is not given ``parameter``."""
    made = cls.methods.get("__init__")
    if not isinstance(made, ast.FunctionDef):
        return None
    named = [*made.args.posonlyargs, *made.args.args]
    defaults = dict(zip([a.arg for a in reversed(named)], reversed(made.args.defaults), strict=False))
    defaults |= {a.arg: d for a, d in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True) if d is not None}
    return defaults.get(parameter)


def _off(default: object, name: str) -> Const | None:
    """A switch that is off unless somebody turns it on: who makes the object without a word has no defense."""
    is_off = isinstance(default, ast.Constant) and default.value is False
    return Const(False, f"self.{name}, off by default,") if is_off else None
