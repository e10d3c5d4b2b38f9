"""From a live defense to its source: the classes Python uses, and whether their hooks are still the written ones."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from types import FunctionType
from typing import Any

from ragtrace.defense import Defense
from ragtrace.inventory.hook import find_hook
from ragtrace.inventory.modules import Class, FunctionNode, Library, Module, UnreadableError
from ragtrace.types import HOOKS, Hook

ROOT = "ragtrace.Defense"


def order(cls: type[Defense], library: Library) -> list[Class | str]:
    """The method resolution order, each class by its source, or by its name where it has none."""
    return [_locate(c, library) for c in cls.__mro__]


def file_of(cls: type) -> str:
    """The file a class is said to come from, or "" """
    try:
        return inspect.getsourcefile(cls) or ""
    except (TypeError, OSError):
        return ""


def hooks(target: Defense | type[Defense]) -> tuple[Hook, ...]:
    """The hooks an instance says it has, or those its class overrides."""
    if isinstance(target, Defense):
        return target.hooks
    return tuple(h for h in HOOKS if not hasattr(getattr(target, f"on_{h}"), "__ragtrace_absent__"))


def replaced(
    target: Defense | type[Defense], hook: Hook, mro: list[Class | str]
) -> tuple[Class, FunctionNode | ast.expr] | str | None:
    """``None`` where the hook is what its class's source says; else what stands in its place, or why nothing does."""
    found = getattr(target, f"on_{hook}")
    function = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(function, FunctionType):
        return f"it is a {type(function).__name__}, not a function"
    first = function.__code__.co_firstlineno
    place = find_hook(hook, mro)
    if place and _first_line(place[1]) == first and _same_file(function, place[0].module):
        return None
    if place and isinstance(place[1], ast.Name | ast.Lambda) and _same_file(function, place[0].module):
        return None
    for cls in mro:
        if isinstance(cls, Class) and _same_file(function, cls.module):
            method = cls.methods.get(function.__name__)
            if isinstance(method, FunctionNode) and _first_line(method) == first:
                return cls, method
    return (
        f"it is {function.__qualname__} of {function.__module__}, whose source is not in sight or not the one that runs"
    )


def _first_line(node: FunctionNode | ast.expr) -> int:
    decorators = node.decorator_list if isinstance(node, FunctionNode) else []
    return min([node.lineno, *(d.lineno for d in decorators)])


def _same_file(function: FunctionType, module: Module) -> bool:
    name = function.__code__.co_filename
    return name == str(module.path) or Path(name).resolve() == module.path.resolve()


def _locate(cls: type, library: Library) -> Class | str:
    if cls is Defense:
        return ROOT
    name = f"{cls.__module__}.{cls.__qualname__}" if cls is not object else "object"
    try:
        path = Path(inspect.getsourcefile(cls) or "")
        module: Any = library.load(path) if path.is_file() else _from_text(cls, path, library)
    except (TypeError, OSError, SyntaxError, UnreadableError):
        return name
    return module.classes.get(cls.__qualname__) or module.classes.get(cls.__name__) or name


def _from_text(cls: type, path: Path, library: Library) -> Module:
    """A class of a notebook or prompt: its text is kept by ``linecache`` alone."""
    lines, first = inspect.getsourcelines(cls)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, max(first - 1, 0))
    return Module(path, tree, [""] * max(first - 1, 0) + lines, library)
