"""What a hook that leaves all as it is would do if it were switched on: constructors, fields and constants turned."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ragtrace.inventory.modules import Class, FunctionNode
from ragtrace.inventory.trial.machine import Machine
from ragtrace.inventory.trial.things import FieldSpec

_MOST = 10
Turned = tuple[str, dict[str, Any], dict[str, Any], str]
"""What is turned, where it is held, the arguments of a constructor, and how to say it."""


def others(value: Any, words: list[str]) -> list[Any]:
    """What a switch that stands at a value could stand at; none for what is no switch."""
    named = [w for w in words if w.isidentifier()]
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [1, words[:10], dict.fromkeys(named, True)]
    if isinstance(value, int | float):
        return [1, 0.5] if value == 0 else []
    if isinstance(value, str):
        return [w for w in named if w != value][:5] if not value or value.isidentifier() else []
    if isinstance(value, list | tuple | set | frozenset) and not value:
        return [type(value)(words[:10])]
    if isinstance(value, dict) and len(value) <= 4 and all(v is False or v is None for v in value.values()):
        return [dict.fromkeys([*value, *named], True)]
    return []


def switches(machine: Machine, classes: list[Class], node: ast.AST, words: list[str]) -> Iterator[Turned]:
    """All there are: (what it is called, where its value is held, what a constructor is given)."""
    for name, value in _parameters(machine, classes):
        for other in others(value, words):
            yield name, {}, {name: other}, f"`{name}` is given"
    read = {n.attr for c in classes for n in ast.walk(c.node) if isinstance(n, ast.Attribute)}
    for cls in classes:
        held = machine.klass_of(cls).names
        for name, value in list(held.items()):
            for other in others(value, words) if name in read else ():
                yield name, held, {name: other}, f"`{name}` is another"
    seen: set[str] = set()
    for part, module in [(node, classes[0].module if classes else None), *((c.node, c.module) for c in classes)]:
        scope = machine.globals_of(module).names if module is not None else {}
        used = {n.id for n in ast.walk(part) if isinstance(n, ast.Name) and n.id in scope} - seen
        seen |= used
        for name in sorted(used):
            for other in others(scope[name], words):
                yield name, scope, {name: other}, f"`{name}` is another"


def _parameters(machine: Machine, classes: list[Class]) -> Iterator[tuple[str, Any]]:
    for cls in classes:
        init = cls.methods.get("__init__")
        if isinstance(init, FunctionNode):
            spec = init.args
            pairs = list(zip(reversed(spec.args), reversed(spec.defaults), strict=False))
            for arg, default in [*pairs, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]:
                if isinstance(default, ast.expr):
                    yield arg.arg, machine.eval(default, machine.globals_of(cls.module))
            return
    for cls in classes:
        names = machine.klass_of(cls).names
        for field in cls.node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id in names:
                value = names[field.target.id]
                yield field.target.id, value.default if isinstance(value, FieldSpec) else value


@contextmanager
def turned(held: dict[str, Any], told: dict[str, Any]) -> Iterator[None]:
    """Meanwhile, names stand for something else."""
    before = {k: held[k] for k in told if k in held}
    held.update({k: v for k, v in told.items() if k in before})
    try:
        yield
    finally:
        held.update(before)


def first(machine: Machine, found: Iterator[Turned], acts: Callable[[dict[str, Any]], bool]) -> str:
    """The first switch that makes the hook act; "" for none."""
    for i, (_, held, told, said) in enumerate(found):
        if i >= _MOST:
            break
        with turned(held, told):
            if acts({} if held else told):
                return said
    return ""
