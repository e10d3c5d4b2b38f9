"""From all paths through a hook to one status and one sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragtrace.inventory.calls import TRANSPARENT
from ragtrace.inventory.expressions import Paths, TooComplexError, is_root, source
from ragtrace.inventory.flow import Flow
from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.values import Cell, Condition, Const, Judgement, Ref, Self, State, Sym, Value, judge

if TYPE_CHECKING:
    from ragtrace.inventory.source import Status

Verdict = tuple["Status", str]
_INPUT = {"query": (0, "query"), "retrieval": (1, "documents"), "content": (1, "documents"),
          "prompt": (0, "messages"), "response": (2, "response")}  # fmt: skip
_MARKER = re.compile(
    r"\b(?:TODO|FIXME|XXX|NotImplemented)\b"
    r"|\b(?i:placeholder|for now|not (?:yet )?implemented|stub|temporar(?:y|ily))\b"
)


def find_hook(hook: str, mro: Sequence[Class | str]) -> tuple[Class, FunctionNode | ast.expr] | None:
    """The class that defines the hook, and its definition; ``None`` where it is absent or out of sight."""
    for cls in mro:
        if isinstance(cls, Class) and f"on_{hook}" in cls.methods:
            return cls, cls.methods[f"on_{hook}"]
        if isinstance(cls, str) and not is_root(cls):
            return None
    return None


def classify(hook: str, owner: Class, node: FunctionNode | ast.expr, mro: list[Class | str]) -> Verdict:
    """The status of a hook, and the reason in a sentence."""
    module = owner.module
    if isinstance(node, ast.Name):
        place = module.look_up(node.id)
        function = place[0].functions.get(place[1]) if place else None
        if place is None or function is None:
            return "unknown", f"cannot tell: it is `{node.id}`, whose code is not in sight"
        module, node = place[0], function
    if not isinstance(node, FunctionNode | ast.Lambda):
        return "unknown", f"cannot tell: it is set to `{source(node)}`"
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    for decorator in decorators:
        if module.full_name(decorator.func if isinstance(decorator, ast.Call) else decorator) not in TRANSPARENT:
            return "unknown", f"cannot tell: `@{source(decorator)}` may replace what the hook returns"
    state = _start(hook, node, any(source(d) == "staticmethod" for d in decorators))
    if state is None:
        return "unknown", "cannot tell: it takes its input by a signature that is not that of the hook"
    flow = Flow(mro, module)
    flow.frame.owner = owner
    try:
        paths = flow.start(node, state)
    except (TooComplexError, RecursionError):
        return "unknown", "cannot tell: it has more paths than are followed"
    except Exception as error:  # code that nobody foresaw must not stop the inventory of the rest
        return "unknown", f"cannot tell: it could not be followed ({type(error).__name__})"
    return _decide(node, flow, paths)


def _start(hook: str, node: FunctionNode | ast.Lambda, static: bool) -> State | None:
    spec = node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    state = State()
    position, expected = _INPUT[hook]
    text = hook in ("query", "response")
    ref = state.new(Cell("text") if text else Cell("list", space=0))
    if not static:
        if not names:
            return None
        state.env[names.pop(0)] = Self()
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    for i, name in enumerate(names):
        default = defaults.get(name)
        extra = i > position and isinstance(default, ast.Constant)
        state.env[name] = Const(default.value) if extra and isinstance(default, ast.Constant) else Sym(name)
    state.env |= {a.arg: Sym(a.arg) for a in spec.kwonlyargs}
    state.env |= {a.arg: Sym(a.arg) for a in (spec.vararg, spec.kwarg) if a}
    if position >= len(names):
        if expected not in [a.arg for a in spec.kwonlyargs]:
            return None
        state.env[expected] = ref
    else:
        state.env[names[position]] = ref
    return state


def _decide(node: FunctionNode | ast.Lambda, flow: Flow, paths: Paths) -> Verdict:
    outcomes = [(_judge(value, s), s) for value, s in paths]
    if not outcomes:
        return _raises(flow)
    # an empty input, or a swallowed exception, is no choice of the defense
    main = [(j, s) for j, s in outcomes if not s.trivial or j[0] == "changed"] or outcomes
    kinds: set[str] = {j[0] for j, _ in main}
    changed = [(j, s) for j, s in main if j[0] == "changed"]
    idle = [(j, s) for j, s in main if j[0] in ("same", "none")]
    if changed and all(s.handled for _, s in changed) and "same" in kinds:
        j, s = changed[0]
        return "unknown", f"cannot tell: it acts only if {s.handled}, and nothing in sight raises it ({_at(j)})"
    if changed:
        j = changed[0][0]
        if idle:
            when = _when([s for _, s in changed], [s for _, s in idle])
            other = "returns its input" if "same" in kinds else "returns None, which counts as an error"
            return "conditional", f"acts only if {when} ({_at(j)}); otherwise {other}"
        return "active", _at(j)
    if "vague" in kinds:
        return "unknown", "cannot tell: " + _at(next(j for j, _ in main if j[0] == "vague"))
    return _inert(node, flow, [s for _, s in outcomes], kinds)


def _inert(node: FunctionNode | ast.Lambda, flow: Flow, states: list[State], kinds: set[str]) -> Verdict:
    what = "returns its input unchanged" if "same" in kinds else "returns None, so the stage keeps its input"
    if _is_empty(node):
        return "stub", "its body is empty"
    for state in states:
        if state.unreachable:
            line, why = state.unreachable[0]
            return "dead", f"{what}: {why} (line {line}), so what depends on it never runs"
    if flow.dead_code:
        return "dead", f"{what}: the code from line {flow.dead_code[0]} on is never reached"
    for state in states:
        if state.edits:
            line, text = state.edits[0]
            return "dead", f"{what}: what `{text}` makes in line {line} is lost"
    for function, module in flow.followed:
        if marker := _marker(function, module):
            return "stub", f"{what} on every path, and line {marker[0]} says `{marker[1]}`"
    if "same" not in kinds:
        return "dead", f"{what} and the run counts as an error"
    return "pass_through", f"{what} on every path"


def _judge(value: Value, state: State) -> Judgement:
    """As :func:`judge`; nothing in place of an empty input is the same."""
    built = state.cells[value.cell] if isinstance(value, Ref) else None
    nothing = (isinstance(value, Const) and value.value == "") or (built == Cell("built"))
    return ("same", "returns its input", 0) if state.empty and nothing else judge(value, state)


def _raises(flow: Flow) -> Verdict:
    for text, line in flow.raised:
        if text.startswith("NotImplementedError"):
            return "stub", f"raises NotImplementedError in line {line}"
    line = flow.raised[0][1] if flow.raised else 0
    return "unknown", f"cannot tell: it raises on every path (line {line}); what then happens is up to `on_error`"


def _at(judgement: Judgement) -> str:
    _, why, line = judgement
    return f"{why} (line {line})" if line else why


def _when(acting: list[State], idle: list[State]) -> str:
    """What sets the paths that act apart from those that do not, by the first test where they part."""
    found: dict[str, None] = {}
    for state in acting:
        best: tuple[Condition, ...] = ()
        text = ""
        for other in idle:
            shared = 0
            for a, b in zip(state.conditions, other.conditions, strict=False):
                if a != b:
                    break
                shared += 1
            if len(state.conditions) > shared and (not text or shared >= len(best)):
                best, text = state.conditions[:shared], str(state.conditions[shared])
            elif not text and len(other.conditions) > shared:
                c = other.conditions[shared]
                text = str(Condition(c.text, not c.truth, c.line))
        found[text or "a test says so"] = None
    shown = list(found)[:3]
    return " or ".join(shown) + (" or more" if len(found) > 3 else "")


def _is_empty(node: FunctionNode | ast.Lambda) -> bool:
    return isinstance(node, FunctionNode) and all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in node.body
    )


def _marker(node: FunctionNode | ast.Lambda, module: Module) -> tuple[int, str] | None:
    """The first line of a function, comments and docstring included, that calls itself unfinished."""
    for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        if line <= len(module.lines) and (found := _MARKER.search(module.lines[line - 1])):
            return line, found[0]
    return None
