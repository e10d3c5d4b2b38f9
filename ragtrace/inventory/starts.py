"""What a hook is given, as values of the data flow, and what its return value means."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from ragtrace.inventory.arguments import AMBIGUOUS, LISTS, SCORES, TEXTS, WANTED
from ragtrace.inventory.entries import Entry
from ragtrace.inventory.fields import canonical
from ragtrace.inventory.members import source
from ragtrace.inventory.modules import FunctionNode
from ragtrace.inventory.values import (
    Attr,
    Cell,
    Const,
    Handler,
    Judgement,
    Made,
    Map,
    Ref,
    Self,
    State,
    Sym,
    Tup,
    Value,
    judge,
)

_RAGTRACE = {"query": (0, "query"), "retrieval": (1, "documents"), "content": (1, "documents"),
             "prompt": (0, "messages"), "response": (2, "response")}  # fmt: skip
_FIELDS = frozenset(
    {"content", "text", "page_content", "metadata", "choices", "message", "messages", "answer", "response"}
)
_LIST_TYPES = re.compile(r"(?i)^(typing\.)?(list|sequence|iterable|collection|tuple|mutablesequence)\b")


def hook_of(entry: Entry, node: FunctionNode | ast.Lambda) -> str:
    """The hook of a method whose name does not say it: by what it is given."""
    if entry.shape != "duck" or entry.method not in AMBIGUOUS:
        return entry.hook
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
    for name in names:
        if name in LISTS or name in ("document", "doc", "context", "chunk", "passage"):
            return "content"
        if name in ("messages", "prompt"):
            return "prompt"
        if name in ("query", "question", "user_input", "user_query") and len(names) == 1:
            return "query"
    return entry.hook


def start(entry: Entry, hook: str, node: FunctionNode | ast.Lambda, static: bool) -> State | None:
    """The state in which the hook begins; ``None`` where its signature is not that of such a hook."""
    spec = node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    state = State()
    if not static:
        if not names:
            return None
        state.env[names.pop(0)] = Self()
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    every = [*names, *(a.arg for a in spec.kwonlyargs)]
    if entry.shape in ("ragtrace", "duck") and not every and spec.vararg:  # *args
        position = _RAGTRACE[hook][0] if entry.shape == "ragtrace" else 0
        ref = state.new(Cell("text") if hook in ("query", "response") else Cell("list", space=0))
        state.env[spec.vararg.arg] = Tup((*(Sym(f"argument {i}") for i in range(position)), ref))
        state.env |= {a.arg: Map(()) for a in (spec.kwarg,) if a}
        return state
    held = guarded(entry, hook, node, names, every)
    if not held:
        return None
    for name in every:
        default = defaults.get(name)
        extra = isinstance(default, ast.Constant) and names[:1] != [name] and name not in held
        extra = extra and (entry.shape == "ragtrace" and (name not in names or names.index(name) > _RAGTRACE[hook][0]))
        state.env[name] = Const(default.value) if extra and isinstance(default, ast.Constant) else Sym(name)
    state.env |= {a.arg: Sym(a.arg) for a in (spec.vararg, spec.kwarg) if a}
    for name, cell in held.items():
        ref = state.new(cell)
        if cell.kind == "list":
            state.cells[ref.cell] = replace(cell, space=ref.cell)
        elif cell.kind == "element":
            state.cells[ref.cell] = replace(cell, space=-1 - ref.cell)
        state.env[name] = ref
    if entry.shape in ("model", "tool") and len(names) > 1:
        state.env[names[1]] = Handler()
    return state


def guarded(
    entry: Entry, hook: str, node: FunctionNode | ast.Lambda, names: list[str], every: list[str]
) -> dict[str, Cell]:
    """The parameters that the hook may change, and what each is."""
    if entry.shape == "ragtrace":
        position, expected = _RAGTRACE[hook]
        cell = Cell("text") if hook in ("query", "response") else Cell("list")
        if position < len(names):
            return {names[position]: cell}
        return {expected: cell} if expected in every else {}
    if entry.shape == "answer":
        return {"<answer>": Cell("text")}
    if entry.shape in ("duck", "any"):
        return _duck(entry, hook, node, names, every)
    if not names:
        return {}
    cells = {"documents": Cell("list"), "text": Cell("text")}
    return {names[0]: cells.get(entry.shape, Cell("element"))}


def _duck(
    entry: Entry, hook: str, node: FunctionNode | ast.Lambda, names: list[str], every: list[str]
) -> dict[str, Cell]:
    if entry.argument:
        chosen = [entry.argument] if entry.argument in every else []
    else:
        chosen = next(([n] for n in WANTED[hook] if n in every), [])
        if not chosen:
            words = {"retrieval": ("doc", "chunk", "node", "result"), "content": ("doc", "context", "chunk", "text"),
                     "response": ("response", "answer", "output", "text")}.get(hook, (hook,))  # fmt: skip
            chosen = [n for n in every if any(w in n for w in words)][:1]
        if not chosen:
            rest = [n for n in names if n not in ("query", "question")] or names
            chosen = rest[-1:] if hook == "response" and "query" in names else rest[:1]
        if hook == "retrieval":
            chosen += [n for n in every if n in SCORES and n not in chosen]
    annotations = {a.arg: a.annotation for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return {n: _cell(n, annotations.get(n), hook, node) for n in chosen}


def _cell(name: str, annotation: ast.expr | None, hook: str, node: FunctionNode | ast.Lambda) -> Cell:
    told = source(annotation).strip("'\"") if annotation is not None else ""
    told = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$|^(.*?) *\| *None$", lambda m: m[1] or m[2], told)
    if told == "str":
        return Cell("text")
    if _LIST_TYPES.match(told):
        return Cell("list")
    if told:
        return Cell("element", sure=False)
    plural = name in LISTS or name in SCORES or name == "messages"
    if plural or (hook == "retrieval" and name not in TEXTS):
        return Cell("list", sure=False)
    for part in ast.walk(node):
        base = part.value if isinstance(part, ast.Attribute | ast.Subscript) else None
        if isinstance(base, ast.Name) and base.id == name:
            keyed = isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant)
            if (isinstance(part, ast.Attribute) and part.attr in _FIELDS) or (
                keyed
                and isinstance(part, ast.Subscript)
                and isinstance(part.slice, ast.Constant)
                and isinstance(part.slice.value, str)
            ):
                return Cell("element", sure=False)
    return Cell("text", sure=False)


# -- what comes back ------------------------------------------------------------------------------


def outcome(entry: Entry, value: Value, state: State, inputs: int) -> Judgement:
    """As :func:`~ragtrace.inventory.values.judge`, for what hooks of this shape return."""
    if entry.shape == "update":
        return _update(value, state)
    if entry.shape in ("model", "tool"):
        return _answer(value, state)
    if entry.shape == "instruction":
        own = isinstance(value, Attr) and canonical(value.name).startswith(("system_prompt", "system_message"))
        if own or (isinstance(value, Const) and value.value is None):
            return "same", "returns the instruction that was there", 0
        return ("changed", "sets the system prompt", 0) if not state.touches(value) else _plain(value, state, inputs)
    if entry.shape in ("duck", "any", "bundle", "answer"):
        return _plain(value, state, inputs)
    built = state.cells[value.cell] if isinstance(value, Ref) else None
    nothing = (isinstance(value, Const) and value.value == "") or (built == Cell("built"))
    return ("same", "returns its input", 0) if state.empty and nothing else judge(value, state)


def _plain(value: Value, state: State, inputs: int) -> Judgement:
    if isinstance(value, Tup) and not value.each:
        told = [_plain(v, state, inputs) for v in value.items if state.touches(v)]
        if not told:
            return (
                _plain(value.items[0], state, inputs) if value.items else ("changed", "returns nothing of its input", 0)
            )
        if inputs == 1 and any(t[0] == "same" for t in told):  # beside it, what was found in it
            return next(t for t in told if t[0] == "same")
        changed = next((t for t in told if t[0] == "changed"), None)
        return changed or next((t for t in told if t[0] == "vague"), told[0])
    if isinstance(value, Const) and value.value is None:
        for i in range(inputs):
            if (dirt := state.dirt(Ref(i))) is not None:
                return judge(Ref(i), state) if isinstance(dirt, Made) else ("vague", dirt.why, dirt.line)
    if isinstance(value, Ref) and state.cells[value.cell].kind == "element" and state.dirt(value) is None:
        cell = state.cells[value.cell]
        if not cell.part and (value.cell < inputs or (cell.origin is not None and cell.origin < inputs)):
            return "same", "returns its input", 0
    built = state.cells[value.cell] if isinstance(value, Ref) else None
    nothing = (isinstance(value, Const) and value.value in ("", None)) or (built == Cell("built"))
    return ("same", "returns its input", 0) if state.empty and nothing else judge(value, state)


def _update(value: Value, state: State) -> Judgement:
    """An update of an agent's state: what it leaves out stays as it is, and so does a message that is not changed."""
    dirt = state.dirt(Ref(0))
    if isinstance(dirt, Made) and dirt.kind != "weak":
        return "changed", f"changes a message in place by `{dirt.text}`", dirt.line
    if isinstance(value, Const) and value.value is None:
        return "same", "updates nothing", 0
    if isinstance(value, Ref) and value.cell == 0:
        return "same", "returns the state as it is", 0
    if isinstance(value, Ref) and state.cells[value.cell].kind == "element":
        found = state.dirt(value)
        return ("same", "returns the state as it is", 0) if found is None else judge(value, state)
    if not isinstance(value, Map):
        return ("changed" if isinstance(value, Made) and value.kind == "new" else "vague",
                "returns an update of the state that is made elsewhere", getattr(value, "line", 0))  # fmt: skip
    messages = dict(value.items).get("messages")
    if messages is None:
        return "same", "updates no message", 0
    if isinstance(messages, Ref) and state.cells[messages.cell].kind == "built" and state.dirt(messages) is None:
        items = [v for v, _ in state.cells[messages.cell].items]
        if all(isinstance(v, Ref) and state.dirt(v) is None for v in items):
            return "same", "puts the same messages back", 0
        return next(
            (t for t in (_item(v, state) for v in items) if t[0] == "changed"),
            ("vague", "may put the same messages back", 0),
        )
    return judge(messages, state)


def _item(value: Value, state: State) -> Judgement:
    if isinstance(value, Ref) and state.dirt(value) is None:
        return "same", "puts the same message back", 0
    if isinstance(value, Ref):
        dirt = state.dirt(value)
        assert dirt is not None
        if isinstance(dirt, Made) and dirt.kind != "weak":
            return "changed", f"replaces a message with one changed by `{dirt.text}`", dirt.line
        return "vague", "may put the same message back", dirt.line
    return judge(value, state)


def _answer(value: Value, state: State) -> Judgement:
    if isinstance(value, Ref) and value.cell in state.heard:
        dirt = state.dirt(value)
        if dirt is None:
            return "same", "returns what the handler returned", 0
        if isinstance(dirt, Made) and dirt.kind != "weak":
            return "changed", f"changes what the handler returned by `{dirt.text}`", dirt.line
        return "vague", "may change what the handler returned", dirt.line
    if isinstance(value, Ref) and state.cells[value.cell].origin in state.heard and not state.cells[value.cell].part:
        dirt = state.dirt(value)
        return ("same", "returns what the handler returned", 0) if dirt is None else judge(value, state)
    if isinstance(value, Const) and value.value is None:
        return "none", "returns None", 0
    return judge(value, state)


def asked(state: State) -> Judgement:
    """What the handler was given, compared with the request."""
    if not state.sent:
        return "changed", "never asks the model", 0
    value = state.sent[-1]
    if isinstance(value, Ref) and state.cells[value.cell].kind == "element":
        dirt = state.dirt(value)
        own = value.cell == 0 or state.cells[value.cell].origin == 0
        if dirt is None and own:
            return "same", "hands its request on unchanged", 0
        if isinstance(dirt, Made) and dirt.kind != "weak":
            return "changed", f"hands on a request changed by `{dirt.text}`", dirt.line
        return "vague", "may hand on another request", getattr(dirt, "line", 0)
    return judge(value, state)
