"""Which classes and functions are defenses, of which kind, and by which of their methods.

``documents`` is the hook of a framework's part that is given documents: ``content`` where it may change a text or
metadata, ``retrieval`` where it may only choose, order or score, as the run-time ledger names them. A part that changes
nothing is at ``content``, unless what it tries in vain is to choose or to order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ragtrace.inventory.arguments import AMBIGUOUS, takes_text
from ragtrace.inventory.members import is_root, source
from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.names import Names
from ragtrace.inventory.roots import LANGCHAIN, LLAMA_INDEX, in_framework
from ragtrace.types import HOOKS, Hook

Kind = Literal["ragtrace", "langchain", "llama_index", "duck"]
Shape = Literal[
    "ragtrace", "documents", "text", "bundle", "update", "model", "tool", "answer", "duck", "any", "instruction"
]
ROOT = "ragtrace.Defense"
_CONTAINERS = frozenset({"DocumentCompressorPipeline", "TextSplitter"})  # they run other parts, or cut for an index


@dataclass(frozen=True)
class Entry:
    """A method that is a hook, and how it is given what it may change."""

    hook: Hook | Literal["documents", "model"]
    method: str
    shape: Shape
    argument: str = ""  # the parameter's name, where the shape does not say which


_METHODS: dict[str, tuple[Entry, ...]] = {
    "BaseDocumentCompressor": (Entry("documents", "compress_documents", "documents"),),
    "BaseDocumentTransformer": (Entry("documents", "transform_documents", "documents"),),
    "AgentMiddleware": (
        Entry("prompt", "before_agent", "update"),
        Entry("prompt", "before_model", "update"),
        Entry("model", "wrap_model_call", "model"),
        Entry("prompt", "wrap_tool_call", "tool"),
        Entry("response", "after_model", "update"),
        Entry("response", "after_agent", "update"),
    ),
    "BaseNodePostprocessor": (Entry("documents", "_postprocess_nodes", "documents"),),
    "TransformComponent": (Entry("documents", "__call__", "documents"),),
    "BaseQueryTransform": (Entry("query", "_run", "bundle"),),
    "BaseSynthesizer": (Entry("response", "get_response", "answer"),),
    "parser": (Entry("response", "parse", "text"),),
    "runnable": (Entry("response", "invoke", "any"),),
}
_PARSERS = frozenset(name for name in LANGCHAIN if name.endswith("Parser"))
_RUNNABLES = frozenset({"Runnable", "RunnableSerializable"})
_DECORATORS = {e.method: e for e in _METHODS["AgentMiddleware"]}


def variants(method: str) -> tuple[str, str]:
    """The sync and the async name of a framework's method."""
    return method, f"_a{method[1:]}" if method.startswith("_") else f"a{method}"


def root_of(cls: Class) -> str | None:
    """The framework's class, by its short name, that a class derives from."""
    for base in cls.mro[1:]:
        full = base if isinstance(base, str) else ""
        module, _, name = full.rpartition(".")
        if name in LANGCHAIN | LLAMA_INDEX and (module.startswith((".", "langchain", "llama_index")) or not module):
            return name if module else None
    return None


def kind_of(cls: Class, names: Names) -> tuple[Kind, tuple[Entry, ...]] | None:
    """What kind of defense a class is, and its hooks; ``None`` where it is none."""
    if _unfinished(cls):
        return None
    roots = [c for c in cls.mro[1:] if isinstance(c, str)]
    if any(c in ("Defense", ROOT) for c in roots):
        return "ragtrace", tuple(Entry(h, f"on_{h}", "ragtrace") for h in HOOKS)
    if any((c if isinstance(c, str) else c.name).rpartition(".")[2] in _CONTAINERS for c in cls.mro):
        return None
    root = root_of(cls)
    if root in _PARSERS:
        wanted = "parser" if root == "StrOutputParser" or names.protective(cls.name) else None
    elif root in _RUNNABLES:
        wanted = "runnable" if names.protective(cls.name) else None
    else:
        wanted = root
    if wanted == "TransformComponent" and _ingests(cls):
        return None
    if wanted is not None:
        entries = tuple(e for e in _METHODS[wanted] if any(defined(v, cls.mro) for v in variants(e.method)))
        return ("llama_index" if root in LLAMA_INDEX else "langchain", entries) if entries else None
    if root is not None or _is_protocol(cls):
        return None
    found = tuple(_duck(cls, names))
    return ("duck", found) if found else None


def _ingests(cls: Class) -> bool:
    """Whether it is one of LlamaIndex's own transformations, or derives from one: a parser, an embedding."""
    return any(in_framework(c.module.path) if isinstance(c, Class) else c.rpartition(".")[2].startswith("Base")
               or (c.startswith("llama_index") and not c.endswith(".TransformComponent")) for c in cls.mro
               if not isinstance(c, str) or not is_root(c))  # fmt: skip


def _duck(cls: Class, names: Names) -> Iterator[Entry]:
    seen: set[str] = set()
    for owner in cls.mro:
        if not isinstance(owner, Class):
            continue
        for name, node in owner.methods.items():
            plain, is_async = (name[1:], True) if name.startswith("a") and name[1:] in names.methods else (name, False)
            if plain not in names.methods or plain in seen or not _callable(node):
                continue
            if plain in AMBIGUOUS and isinstance(node, FunctionNode) and not takes_text(node):
                continue
            if isinstance(node, FunctionNode) and _abstract(node, owner.module):
                seen.add(plain)
                continue
            if is_async and plain in owner.methods:
                continue
            seen.add(plain)
            yield Entry(names.methods[plain], plain, "duck")


def _callable(node: ast.expr | FunctionNode) -> bool:
    return isinstance(node, FunctionNode | ast.Lambda | ast.Name) or wrapped(node) is not None


def wrapped(node: ast.expr | FunctionNode) -> ast.expr | None:
    """What is inside ``staticmethod(…)``, where a class's attribute is set to that."""
    made = isinstance(node, ast.Call) and source(node.func) == "staticmethod" and len(node.args) == 1
    return node.args[0] if made and isinstance(node, ast.Call) else None


def _abstract(node: FunctionNode, module: Module) -> bool:
    return any(
        module.full_name(d).rpartition(".")[2] in ("abstractmethod", "overload", "property")
        for d in node.decorator_list
    )


def _unfinished(cls: Class) -> bool:
    """Whether a method is abstract still, so that no object of it can be made."""
    seen: set[str] = set()
    for owner in cls.mro:
        for name, node in owner.methods.items() if isinstance(owner, Class) else ():
            marked = node.decorator_list if isinstance(node, FunctionNode) and name not in seen else []
            if any(source(d).rpartition(".")[2] == "abstractmethod" for d in marked):
                return True
        seen |= owner.methods.keys() if isinstance(owner, Class) else set()
    return False


def _is_protocol(cls: Class) -> bool:
    return any(
        source(b.value if isinstance(b, ast.Subscript) else b).rpartition(".")[2] == "Protocol" for b in cls.node.bases
    )


def defined(method: str, mro: list[Class | str]) -> tuple[Class, FunctionNode | ast.expr] | None:
    """The class that defines a method, and its definition; ``None`` where it is absent, abstract or out of sight."""
    for cls in mro:
        if isinstance(cls, Class) and method in cls.methods:
            node = cls.methods[method]
            if isinstance(node, FunctionNode) and _abstract(node, cls.module):
                return None
            return cls, node
        if isinstance(cls, str) and not is_root(cls) and cls.rpartition(".")[2] not in _HARMLESS:
            return None
    return None


_HARMLESS = frozenset(
    "BaseModel Generic BaseSettings ABCMeta Enum SerializationMixin BaseComponent DispatcherSpanMixin".split()
)


# -- functions ------------------------------------------------------------------------------------


def functions(module: Module, names: Names) -> Iterator[tuple[str, FunctionNode, Kind, Entry, str]]:
    """Functions that are defenses by a mark on them: (qualified name, node, kind, hook, name in the ledger)."""
    for owner, node in _all_functions(module):
        for decorator in node.decorator_list:
            full = module.full_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            package, _, short = full.rpartition(".")
            given = {k.arg: k.value for k in decorator.keywords} if isinstance(decorator, ast.Call) else {}
            label = f"{owner}.{node.name}" if owner else node.name
            name = given.get("name")
            said = str(name.value) if isinstance(name, ast.Constant) and isinstance(name.value, str) else node.name
            if short == "observe" and package.startswith("ragtrace"):
                hook = given.get("hook")
                arg = given.get("arg")
                if isinstance(hook, ast.Constant) and hook.value in HOOKS:
                    at = str(arg.value) if isinstance(arg, ast.Constant) else ""
                    yield label, node, "ragtrace", Entry(hook.value, node.name, "duck", at), said
            elif package.startswith("langchain") and short in _DECORATORS:
                yield label, node, "langchain", _DECORATORS[short], said
            elif package.startswith("langchain") and short == "dynamic_prompt":
                yield label, node, "langchain", Entry("prompt", node.name, "instruction"), said
            elif package.startswith("langchain") and short == "chain" and names.protective(node.name):
                yield label, node, "langchain", Entry(names.methods.get(node.name, "response"), node.name, "duck"), said
    yield from _lambdas(module, names)


def _lambdas(module: Module, names: Names) -> Iterator[tuple[str, FunctionNode, Kind, Entry, str]]:
    """``RunnableLambda(redact)``, for a function of this file whose name says what it is for."""
    seen: set[str] = set()
    if "RunnableLambda" not in module.imports:
        return
    for call in ast.walk(module.tree):
        if not isinstance(call, ast.Call) or not call.args or not isinstance(call.args[0], ast.Name):
            continue
        if (
            not module.full_name(call.func).startswith("langchain")
            or source(call.func).rpartition(".")[2] != "RunnableLambda"
        ):
            continue
        name = call.args[0].id
        node = module.functions.get(name)
        marked = node is not None and any("observe" in source(d) for d in node.decorator_list)
        if node is not None and names.protective(name) and name not in seen and not marked:
            seen.add(name)
            yield name, node, "langchain", Entry(names.methods.get(name, "response"), name, "duck"), name


def _all_functions(module: Module) -> Iterator[tuple[str, FunctionNode]]:
    methods: set[int] = set()
    for cls in module.classes.values():
        for method in cls.methods.values():
            if isinstance(method, FunctionNode) and method.decorator_list:
                methods.add(id(method))
                yield cls.name, method
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode) and node.decorator_list and id(node) not in methods:
            yield "", node
