"""What a hook of each kind is given."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ragtrace.inventory.arguments import LISTS, SCORES
from ragtrace.inventory.entries import Entry
from ragtrace.inventory.modules import FunctionNode, Module
from ragtrace.inventory.starts import guarded
from ragtrace.inventory.trial.machine import Machine
from ragtrace.inventory.trial.outcomes import Case
from ragtrace.inventory.trial.samples import LONG, PLAIN, RICH
from ragtrace.inventory.trial.things import (
    FieldSpec,
    Instance,
    Klass,
    Later,
    Opaque,
    Record,
    own,
)

_TEXT = frozenset("text content page_content body passage chunk snippet value document answer response output".split())
_FIXED = frozenset({"score", "id", "text", "content", "page_content", "metadata"})
_JOINT = 10  # words of a second argument that are tried with the text that has all
_ENDLESS = 1 << 30
_KEYS = ("source", "title", "author", "score", "label", "tenant", "role")


Maker = Callable[[str, int, dict[str, Any]], Any]
Form = Callable[[], Iterator[Case]]


def cases(
    machine: Machine, entry: Entry, hook: str, node: FunctionNode | ast.Lambda, static: bool, told: list[str],
    words: list[str], module: Module,
) -> Iterator[Form]:  # fmt: skip
    """The calls to try, for each form that the input may have."""
    if entry.shape == "ragtrace":
        yield lambda: _ragtrace(machine, hook, told, words)
    elif entry.shape == "documents":
        makers = {"_postprocess_nodes": _node, "__call__": _bare}
        make = makers.get(entry.method, _document)(machine)
        yield lambda: (
            _documents(entry, node, d, told[(i * 2 + 1) % len(told)] if i % 2 else told[0], machine)
            for i, d in enumerate(lists(make, told, words))
        )
    elif entry.shape == "text":
        yield lambda: (Case([t], t, "text", t) for t in told)
    elif entry.shape == "answer":
        yield lambda: (Case(["the query", [t]], t, "text", t) for t in told)
    elif entry.shape == "bundle":
        bundle = Record(machine, "QueryBundle")
        arguments = len(node.args.args) - (not static)
        yield lambda: (Case([b := bundle(t), {}][:arguments], b, "value", t) for t in told)
    elif entry.shape == "update":
        yield lambda: (_update(machine, hook, t, times) for t, times in [*((t, 1) for t in told), (told[0], 12)])
    elif entry.shape in ("model", "tool"):
        yield lambda: (_model(machine, entry.shape, hook, t, isinstance(node, ast.AsyncFunctionDef)) for t in told)
    elif entry.shape in ("duck", "any"):
        yield from _duck(machine, entry, hook, node, static, told, words, module)


def lists(make: Maker, told: list[str], words: list[str]) -> Iterator[list[Any]]:
    """Lists of documents: few and many, ordered and not, with the words in their texts and metadata."""
    rest = dict.fromkeys(_KEYS, "s")
    yield [make(told[0], 2, rest), make(told[1], 0, rest), make(f"2 {told[0]}", 1, rest)]
    yield [make(f"{i} {PLAIN}", i, rest) for i in range(3)]
    keys = [w for w in words if w.isidentifier()]
    many = [make(t, (i * 7) % 12, dict.fromkeys([*_KEYS, *keys], (words or ["s"])[i % max(len(words), 1)]))
            for i, t in enumerate(told[:24]) if t != LONG]  # fmt: skip
    yield [*many, make(told[0], 5, rest)]
    yield [make(LONG, i, rest) for i in range(2)]
    yield [make(RICH, i, dict.fromkeys([*_KEYS, *keys], i)) for i in range(3)]
    yield [make(RICH, i, dict.fromkeys([*_KEYS, *keys], bool(i % 2))) for i in range(4)]


def score(i: int) -> float:
    """Scores from high to below nought, in no order."""
    return round(0.97 - i * 0.11, 3)


def _ragtrace(machine: Machine, hook: str, told: list[str], words: list[str]) -> Iterator[Case]:
    document, message = Record(machine, "ragtrace.Document"), Record(machine, "ragtrace.Message")

    def make(text: str, i: int, metadata: dict[str, Any]) -> Any:
        return document(text, f"d{machine.number(i)}", score(i), dict(metadata))

    keys = [*_KEYS, *(w for w in words if w.isidentifier())]
    some = [make(RICH, 1, {}), make(PLAIN, 0, {})]
    keys = [*_KEYS, *(w for w in words if w.isidentifier())]
    all_words = [make(f"{w} {RICH}", i, dict.fromkeys(keys, w)) for i, w in enumerate([PLAIN, *words[:_JOINT], RICH])]
    if hook == "query":
        yield from (Case([t], t, "strict", t) for t in told)
    elif hook == "prompt":
        for t, times in [*((t, 1) for t in told), (told[0], 12)]:
            rounds = [message(role, t) for _ in range(times) for role in ("tool", "user", "assistant")]
            given = [message("system", PLAIN), *rounds]
            yield Case([given], given, "strict", t)
        asked = [message("system", PLAIN), message("user", told[0])]
        yield Case([asked], asked, "strict", told[0])
    elif hook == "response":
        for i, t in enumerate(told):
            yield Case([told[(i * 5) % len(told)], some, t], t, "strict", t)
        for question in (told[0], *words[:_JOINT]):
            yield Case([question, some, told[0]], told[0], "strict", told[0])
        yield Case([told[0], all_words, told[0]], told[0], "strict", told[0])
    else:
        for i, found in enumerate(lists(make, told, words)):
            yield Case([told[i % 2], found], found, "strict")


def _document(machine: Machine) -> Maker:
    made = Record(machine, "Document")
    return lambda text, i, metadata: made(page_content=text, metadata={**metadata, "score": score(i)})


def _node(machine: Machine) -> Maker:
    node, scored = Record(machine, "TextNode"), Record(machine, "NodeWithScore")
    return lambda t, i, m: scored(node=node(text=t, id_=f"n{machine.number(i)}", metadata=dict(m)), score=score(i))


def _bare(machine: Machine) -> Maker:
    node = Record(machine, "TextNode")
    return lambda t, i, m: node(text=t, id_=f"n{machine.number(i)}", metadata=dict(m))


def _documents(entry: Entry, node: Any, given: list[Any], query: str, machine: Machine) -> Case:
    second: list[Any] = [query] if entry.method == "compress_documents" else []
    if entry.method == "_postprocess_nodes" and len(node.args.args) > 2:
        second = [Record(machine, "QueryBundle")(query)]
    return Case([given, *second], given, "value")


def _update(machine: Machine, hook: str, text: str, times: int) -> Case:
    human, ai = Record(machine, "HumanMessage"), Record(machine, "AIMessage")
    messages = [m for i in range(times) for m in (human(text, id=f"{i} h"), ai(text, id=f"{i} a"))]
    if hook == "prompt":
        messages.append(human(text, id="last"))
    state = {"messages": messages}
    return Case([state, Opaque("runtime")], state, "update", text)


def _model(machine: Machine, shape: str, hook: str, text: str, later: bool) -> Case:
    """A middleware round the model, or a tool."""
    human, ai, system = (Record(machine, n) for n in ("HumanMessage", "AIMessage", "SystemMessage"))
    messages = [human(text, id="0"), ai(text, id="1"), human(text, id="2")]
    request: Any = Record(machine, "ModelRequest")(messages=messages,
                                                   system_message=system(PLAIN), runtime=Opaque("runtime"))  # fmt: skip
    answer = Record(machine, "ModelResponse")(result=[ai(text, id="3")])
    if shape == "tool":
        request, answer = Opaque("a tool call"), Record(machine, "ToolMessage")(text, id="4")
    case = Case([request], request if hook == "prompt" and shape == "model" else answer, "asked", text)

    def handler(given: Any) -> Any:
        case.asked.append(copy.deepcopy(given))
        return Later(lambda: copy.deepcopy(answer)) if later else copy.deepcopy(answer)

    if hook == "response" or shape == "tool":
        case.shape = "value"
    case.args.append(own(handler))
    return case


# -- duck-typed -----------------------------------------------------------------------------------


def certain(entry: Entry, hook: str, node: FunctionNode | ast.Lambda, static: bool) -> bool:
    """Whether it is known what the hook is given, and not guessed."""
    if entry.shape not in ("duck", "any"):
        return True
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][0 if static else 1 :]
    cells = list(guarded(entry, hook, node, names, [*names, *(a.arg for a in node.args.kwonlyargs)]).values())
    return bool(cells) and (cells[0].kind == "text" or cells[0].sure)


def _duck(
    machine: Machine, entry: Entry, hook: str, node: FunctionNode | ast.Lambda, static: bool, told: list[str],
    words: list[str], module: Module,
) -> Iterator[Form]:  # fmt: skip
    spec = node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)][0 if static else 1 :]
    every = [*names, *(a.arg for a in spec.kwonlyargs)]
    if not every and spec.vararg:
        yield lambda: (Case([t], t, "value", t) for t in told)
        return
    cells = guarded(entry, hook, node, names, every)
    if not cells or not set(cells) <= set(every):
        return
    annotations = {a.arg: a.annotation for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    optional = set(names[len(names) - len(spec.defaults) :] if spec.defaults else ())
    optional |= {a.arg for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    main = next(iter(cells))
    forms: list[Maker | None] = [None]
    if main in SCORES:
        forms = [lambda t, i, m: score(i)]
    elif cells[main].kind != "text":
        forms = [*_forms(machine, annotations.get(main), module)]
    for form in forms:
        if form is None:
            inputs: Iterable[Any] = told
        elif cells[main].kind == "list":
            inputs = list(lists(form, told, words))
        else:
            inputs = [form(t, i % 9, dict.fromkeys(_KEYS, "s")) for i, t in enumerate(told)]

        alone = len(list(inputs)) if cells[main].kind == "text" else _ENDLESS
        if cells[main].kind == "text" and len(every) > 1:
            inputs = [*told, *[told[0]] * len(words[:_JOINT])]

        def call(value: Any, i: int, alone: int = alone) -> Case:
            given: dict[str, Any] = {}
            for name in every:
                if name == main:
                    given[name] = value
                elif name in cells:
                    given[name] = [score(k) for k in range(len(value))]
                elif name not in optional:
                    beside = words[i - alone] if i >= alone else told[(i * 5) % len(told)]
                    given[name] = _other(machine, name, annotations.get(name), beside)
            held = [given[n] for n in cells if n in given]
            return Case([], held if len(held) > 1 else value, "value", value if isinstance(value, str) else "", given)

        yield partial(_each, inputs, call)


def _each(inputs: Iterable[Any], call: Callable[[Any, int], Case]) -> Iterator[Case]:
    return (call(copy.deepcopy(v), i) for i, v in enumerate(inputs))


def _other(machine: Machine, name: str, annotation: ast.expr | None, text: str) -> Any:
    kind = ast.unparse(annotation) if annotation is not None else ""
    if name in LISTS or kind.lower().startswith(("list[", "sequence[")):
        return [{"text": RICH, "content": RICH, "score": 0.9}, {"text": PLAIN, "content": PLAIN, "score": 0.1}]
    if name in SCORES:
        return [0.9, 0.1, 0.5]
    if kind in ("bool", "int", "float"):
        return Opaque(name)
    if kind.startswith("dict") or name in ("metadata", "context", "kwargs", "config"):
        return {}
    known = kind == "str" or name in ("query", "question", "prompt", "response", "answer", "text")
    return text if known else Opaque(name)


def _forms(machine: Machine, annotation: ast.expr | None, module: Module) -> list[Maker]:
    """The forms that documents may have, the likeliest first."""
    kind = ast.unparse(annotation) if annotation is not None else ""
    forms: dict[str, Maker] = {
        "dict": lambda t, i, m: {**_fields(machine, t, i, m), **{k: v for k, v in m.items() if k not in _FIXED}},
        "thing": lambda t, i, m: Instance(machine, "thing", _fields(machine, t, i, m)),
        "str": lambda t, i, m: t,
        "pair": lambda t, i, m: (t, score(i)),
        "scored": lambda t, i, m: (Record(machine, "Document")(page_content=t, metadata=dict(m)), score(i)),
    }  # fmt: skip
    for name in (n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)) if annotation is not None else ():
        found = machine.globals_of(module).names.get(name)
        if isinstance(found, Klass):
            return [_of_class(found)]
        if isinstance(found, Record):
            return [_node(machine) if found.name == "NodeWithScore" else _document(machine)]
    inner = kind.partition("[")[2] or kind
    order = [n for n in ("dict", "str") if inner.lower().startswith(n)]
    order += ["scored", "pair"] if inner.lower().startswith("tuple") else []
    return [forms[n] for n in order or forms]


def _fields(machine: Machine, text: str, i: int, metadata: dict[str, Any]) -> dict[str, Any]:
    texts = dict.fromkeys(("text", "content", "page_content"), text)
    return {**texts, "score": score(i), "id": f"d{machine.number(i)}", "metadata": dict(metadata)}


def _of_class(klass: Klass) -> Maker:
    fields = [n for n in klass.cls.node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]

    def make(text: str, i: int, metadata: dict[str, Any]) -> Any:
        given: dict[str, Any] = {}
        for node in fields:
            name, kind = ast.unparse(node.target), ast.unparse(node.annotation)
            if name in _TEXT:
                given[name] = text
            elif "float" in kind:
                given[name] = score(i)
            elif kind.lower().startswith(("list[str", "set[str", "tuple[str", "frozenset[str")):
                given[name] = [str(metadata.get(name, next(iter(metadata.values()), "s")))]
            elif kind.startswith(("dict", "Dict")):
                given[name] = dict(metadata)
            elif "str" in kind:
                given[name] = str(metadata.get(name, f"{name}{i}"))
            elif name not in klass.names or (isinstance(s := klass.names[name], FieldSpec) and s.default is ...):
                given[name] = i if kind == "int" else None
        return klass(**given)

    return make
