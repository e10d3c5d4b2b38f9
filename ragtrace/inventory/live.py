"""From live objects to their source: the classes Python uses, and whether their hooks are still the written ones."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from ragtrace.defense import Defense
from ragtrace.inventory.entries import ROOT, Entry, defined, functions, kind_of, variants
from ragtrace.inventory.hook import examine
from ragtrace.inventory.modules import Class, FunctionNode, Library, Module, UnreadableError
from ragtrace.inventory.reading import Reader
from ragtrace.inventory.roots import is_framework_root
from ragtrace.inventory.values import Const, Value
from ragtrace.types import HOOKS, Hook

if TYPE_CHECKING:
    from ragtrace.inventory.source import DefenseFinding, HookFinding


def module_file(target: Any) -> Path | None:
    """The file of a live module."""
    file = getattr(target, "__file__", None) if isinstance(target, ModuleType) else None
    return Path(file) if file else None


def findings(target: Any, reader: Reader) -> list[DefenseFinding] | None:
    """What a live object is as a defense; ``None`` where it is none."""
    if isinstance(target, Defense) or (isinstance(target, type) and issubclass(target, Defense)):
        return [_defense(target, reader)]
    if isinstance(inner := getattr(target, "func", None), FunctionType) and type(target).__name__ == "RunnableLambda":
        return _function(inner, reader, Entry("response", inner.__name__, "duck"))
    if isinstance(target, FunctionType):
        return _function(target, reader, None)
    cls = target if isinstance(target, type) else type(target)
    mro = order(cls, reader.library)
    first = mro[0]
    if not isinstance(first, Class):
        made = _decorated(cls)
        return _function(made, reader, None) if made is not None else None
    static, known = first.mro, kind_of(first, reader.names)
    if known is None:
        return None
    kind, entries = known
    seen = mro if any(isinstance(c, str) and c in static for c in mro) or kind == "duck" else static
    hooks = []
    for entry in entries:
        found = reader.hooks(seen, kind, [entry], flags_of(target, seen))
        exchanged = [h for h in found if _exchanged(target, entry, seen)]
        hooks += [_unknown(h.hook, h.file, h.line, "its method was exchanged at run time") for h in exchanged] or found
    merged = reader.merged(hooks)
    if not merged:
        return None
    name = f"{cls.__module__}.{cls.__qualname__}"
    return [reader.finding(first.module, name, cls.__name__, first.node.lineno, kind, merged)]


def _exchanged(target: Any, entry: Entry, mro: list[Class | str]) -> bool:
    for method in variants(entry.method):
        found = inspect.getattr_static(target, method, None)
        place = defined(method, mro)
        function = inspect.unwrap(getattr(found, "__func__", found)) if found is not None else None
        if place is None or not isinstance(function, FunctionType):
            continue
        if (
            isinstance(place[1], FunctionNode)
            and not place[1].decorator_list
            and (_first_line(place[1]) != function.__code__.co_firstlineno or not _same_file(function, place[0].module))
        ):
            return True
    return False


def _unknown(hook: str, file: str, line: int, why: str) -> HookFinding:
    from ragtrace.inventory.source import HookFinding

    return HookFinding(hook, "unknown", file, line, f"cannot tell: {why}")


def flags_of(target: Any, mro: list[Class | str]) -> dict[str, Value]:
    """Switches that a live object holds and that no method of it turns: ``True``, ``False`` or ``None``."""
    held = getattr(target, "__dict__", None)
    if isinstance(target, type) or not isinstance(held, dict):
        return {}
    turned: set[str] = set()
    for cls in mro:
        if isinstance(cls, Class):
            for name, method in cls.methods.items():
                if name not in ("__init__", "__post_init__", "model_post_init"):
                    turned |= {
                        n.attr
                        for n in ast.walk(method)
                        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                    }
    return {k: Const(v, f"self.{k}") for k, v in held.items() if (v is None or isinstance(v, bool)) and k not in turned}


def _function(function: FunctionType, reader: Reader, entry: Entry | None) -> list[DefenseFinding] | None:
    """A function with a mark on it; with an entry, any function."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        return None
    try:
        module = reader.library.load(Path(plain.__code__.co_filename))
    except UnreadableError:
        return None
    for label, node, kind, own, name in functions(module, reader.names):
        if _first_line(node) == plain.__code__.co_firstlineno:
            return [reader.function(module, label, node, kind, own, name)]
    for part in ast.walk(module.tree):
        if entry and isinstance(part, FunctionNode) and _first_line(part) == plain.__code__.co_firstlineno:
            own = Entry(reader.names.methods.get(part.name, "response"), part.name, "duck")
            return [reader.function(module, part.name, part, "langchain", own, part.name)]
    return None


def _decorated(cls: type) -> FunctionType | None:
    """The function that LangChain's ``@before_model`` and the like made a class of."""
    for value in vars(cls).values():
        for cell in getattr(value, "__closure__", None) or ():
            inner = getattr(cell, "cell_contents", None)
            if isinstance(inner, FunctionType) and inner.__module__ != getattr(value, "__module__", None):
                return inner
    return None


def order(cls: type, library: Library) -> list[Class | str]:
    """The method resolution order, each class by its source, or by its name where it has none."""
    found: list[Class | str] = []
    rooted = False
    for c in cls.__mro__:
        name = f"{c.__module__}.{c.__qualname__}"
        rooted = rooted or is_framework_root(name, Path())
        found.append(name if rooted and c is not object else _locate(c, library))
    return found


def file_of(cls: type) -> str:
    """The file a class is said to come from, or "" """
    try:
        return inspect.getsourcefile(cls) or ""
    except (TypeError, OSError):
        return ""


def _defense(target: Defense | type[Defense], reader: Reader) -> DefenseFinding:
    from ragtrace.inventory.source import DefenseFinding

    cls = target if isinstance(target, type) else type(target)
    mro = order(cls, reader.library)
    first = mro[0]
    file, line = (str(first.module.path), first.node.lineno) if isinstance(first, Class) else (file_of(cls), 0)
    flags = flags_of(target, mro)
    found: list[HookFinding] = []
    for hook in hooks(target):
        entry = Entry(hook, f"on_{hook}", "ragtrace")
        problem = replaced(target, hook, mro)
        if isinstance(problem, str):
            found.append(_unknown(hook, file, line, problem))
        elif problem is not None:
            owner, node = problem
            told = examine(entry, owner, node, owner.module, mro, flags)
            found += (reader.at(h, verdict, owner.module, node) for h, verdict in told)
        else:
            found += reader.hooks(mro, "ragtrace", [entry], flags)
    return DefenseFinding(f"{cls.__module__}.{cls.__qualname__}", target.name, file, line, "ragtrace", tuple(found))


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
    place = defined(f"on_{hook}", mro)
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
