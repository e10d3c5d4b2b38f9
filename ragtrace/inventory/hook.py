"""From all paths through a hook to one status and one sentence."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ragtrace.inventory.edits import selects, writes
from ragtrace.inventory.elsewhere import used
from ragtrace.inventory.entries import Entry, variants, wrapped
from ragtrace.inventory.flow import Flow
from ragtrace.inventory.members import TooComplexError, source
from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.starts import asked, hook_of, outcome, start
from ragtrace.inventory.trial import GiveUpError, Subject, trial
from ragtrace.inventory.tried import acting, idle
from ragtrace.inventory.values import Condition, Const, Judgement, Made, Ref, State, Value, judge

if TYPE_CHECKING:
    from ragtrace.inventory.source import Status

Verdict = tuple["Status", str]
_INTENT = re.compile(
    r"(?i)nois|mask|redact|clean|scrub|sanit|anonym|pseud|filter|safe|protect|perturb|rank|shuffl|sorted|rewrit|replac"
    r"|encrypt|hidden|censor|kept|keep|modif|processed|private"
)
_CHOOSES = re.compile(
    r"(?:Filter|[Rr]ank|Reorder|Cutoff|Select|Threshold|Dedup|Drop|TopK|Shuffl|Gate|Score|Similarity)"
    r"|\b(?i:drops?|filters?|re-?ranks?|keeps only|re-?orders?)\b"
    r"|\bKeeps (?:only|as many|\w+ (?:of|that|which|with|in|whose))\b"
)
"""What the name or docstring of a part that changes nothing says it is for: to choose, not to rewrite."""
_COUNTS = re.compile(r"(?i)len|count|num|^n_|match|found")
_MARKER = re.compile(
    r"\b(?:TODO|FIXME|XXX|NotImplemented)\b"
    r"|\b(?i:placeholder|for now|not (?:yet )?implemented|stub|temporar(?:y|ily))\b"
)


def examine(
    entry: Entry, owner: Class | None, node: FunctionNode | ast.expr, module: Module, mro: list[Class | str],
    flags: Mapping[str, Value] | None = None,
) -> list[tuple[str, Verdict]]:  # fmt: skip
    """What a method does at its hook or hooks: the hook, its status, and the reason in a sentence.

    :param owner: the class that defines it; ``None`` for a function.
    :param flags: what a live object holds in its attributes.
    """
    default = "content" if entry.hook == "documents" else "prompt" if entry.hook == "model" else entry.hook
    bare = None if isinstance(node, FunctionNode) else wrapped(node)
    node = bare if bare is not None else node
    if isinstance(node, ast.Name) and owner is not None and isinstance(own := owner.methods.get(node.id), FunctionNode):
        node = own
    if isinstance(node, ast.Name):
        place = module.look_up(node.id)
        function = place[0].functions.get(place[1]) if place else None
        if place is None or function is None:
            return [(default, ("unknown", f"cannot tell: it is `{node.id}`, whose code is not in sight"))]
        module, node = place[0], function
    if not isinstance(node, FunctionNode | ast.Lambda):
        return [(default, ("unknown", f"cannot tell: it is set to `{source(node)}`"))]
    hook = hook_of(entry, node) if entry.shape == "duck" else default
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    static = owner is None or bare is not None or any(source(d) == "staticmethod" for d in decorators)
    state = start(entry, hook, node, static)
    if state is None:
        return [(hook, ("unknown", "cannot tell: it takes its input by a signature that is not that of the hook"))]
    inputs = len(state.cells)
    state.attrs |= flags or {}
    flow = Flow(mro, module)
    flow.frame.owner = owner
    if entry.shape == "answer":
        flow.answers = frozenset(variants(entry.method)) | {"synthesize", "asynthesize"}
    try:
        paths = flow.begin(node, state, owner)
    except (TooComplexError, RecursionError):
        return [(hook, ("unknown", "cannot tell: it has more paths than are followed"))]
    except Exception as error:  # code that nobody foresaw must not stop the inventory of the rest
        return [(hook, ("unknown", f"cannot tell: it could not be followed ({type(error).__name__})"))]
    if paths is None:
        names = ", ".join(f"`@{source(d)}`" for d in decorators)
        return [(hook, ("unknown", f"cannot tell: {names} may replace what the hook returns"))]
    outcomes = [(outcome(entry, value, s, inputs), s) for value, s in paths]
    held = {k: v.value for k, v in (flags or {}).items() if isinstance(v, Const)}
    subject = Subject(entry, "response" if entry.shape == "model" else hook, node, owner, module, mro, held)
    verdict = _tried(subject, flow, outcomes)
    if entry.hook == "documents":
        return [(documents_hook(flow, verdict[0]), verdict)]
    if entry.shape != "model":
        return [(hook, verdict)]
    before = _tried(replace(subject, hook="prompt"), flow, [(asked(s), s) for _, s in paths if s.sent])
    both = [("prompt", before), ("response", verdict)]
    acting = [(h, v) for h, v in both if v[0] in ("active", "conditional", "unknown")]
    if acting or before[0] == verdict[0] == "pass_through":
        return acting or both
    request = next((a.arg for a in node.args.args if a.arg not in ("self", "cls")), "request")
    lost = any(text.startswith(f"{request}.override(") for _, s in paths for _, text in s.edits)
    return both[:1] if lost else both[1:] if verdict[0] == "dead" else both


def _tried(subject: Subject, flow: Flow, outcomes: list[tuple[Judgement, State]]) -> Verdict:
    """What the paths say, and what a trial on samples adds to it."""
    verdict = _decide(subject.node, flow, outcomes)
    with contextlib.suppress(Exception, GiveUpError):  # as where the paths are followed: what the paths say stands
        verdict = _settled(verdict, subject, flow, outcomes)
    if verdict[0] == "unknown" and (why := used(verdict[1], [f for f, _ in flow.followed])):
        return "active", why
    return verdict


def _settled(verdict: Verdict, subject: Subject, flow: Flow, outcomes: list[tuple[Judgement, State]]) -> Verdict:
    found = trial(subject, once=verdict[0] == "active")
    if found is None:
        return verdict
    if found.acts:
        return acting(verdict, found, subject)
    if not found.still:
        return verdict
    if verdict[0] in ("active", "conditional") and found.widen():
        return acting(verdict, found, subject)
    states = [s for _, s in outcomes]
    inert = _inert(subject.node, flow, states, {"same"}) if states else verdict
    return idle(verdict, found, subject, [e for s in states for e in s.edits], inert)


def documents_hook(flow: Flow, status: str) -> str:
    """``content`` or ``retrieval``, for a part that is given documents. See :mod:`~ragtrace.inventory.entries`."""
    if any(writes(function) for function, _ in flow.followed):
        return "content"
    owner = flow.frame.owner
    chooses = any(selects(function) for function, _ in flow.followed) or bool(
        owner and _CHOOSES.search(_said(owner, flow))
    )
    return "retrieval" if status in ("active", "conditional") or chooses else "content"


def _said(owner: Class, flow: Flow) -> str:
    nodes = [owner.node, *(f for f, _ in flow.followed[:1] if isinstance(f, FunctionNode))]
    return " ".join([owner.name, *(ast.get_docstring(n) or "" for n in nodes)])


def _decide(node: FunctionNode | ast.Lambda, flow: Flow, outcomes: list[tuple[Judgement, State]]) -> Verdict:
    if not outcomes:
        return _raises(flow)
    # an empty input, or a swallowed exception, is no choice of the defense
    main = [(j, s) for j, s in outcomes if not s.trivial or j[0] == "changed"] or outcomes
    kinds: set[str] = {j[0] for j, _ in main}
    changed = [(j, s) for j, s in main if j[0] == "changed"]
    if changed and all(s.empty for _, s in changed) and "same" in kinds:
        j, s = changed[0]
        if re.match("returns (?:.[^`]*.$|`)", j[1]) and not j[2]:
            return "pass_through", f"returns its input unchanged, unless that is empty ({_at(j)})"
        return "dead", f"returns its input unchanged: it acts only if {s.conditions[-1]}, on an empty input ({_at(j)})"
    idle = [(j, s) for j, s in main if j[0] in ("same", "none")]
    if changed and all(s.handled for _, s in changed) and kinds & {"same", "vague"}:
        j, s = changed[0]
        return "unknown", f"cannot tell: it acts only if {s.handled}, and nothing in sight raises it ({_at(j)})"
    if changed:
        j = changed[0][0]
        if idle:
            when = _when([s for _, s in changed], [s for _, s in idle])
            other = "returns its input" if "same" in kinds else "returns None, which counts as an error"
            return "conditional", f"acts only if {when} ({_at(j)}); otherwise {other}"
        return "active", _at(j)
    if flow.sampled:
        return "unknown", "cannot tell: it has more paths than are followed, and none of these acts"
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
    if flow.absent:
        line, why = flow.absent[0]
        return "dead", f"{what}: {why} (line {line})"
    if flow.dead_code:
        return "dead", f"{what}: the code from line {flow.dead_code[0]} on is never reached"
    for state in states:
        if state.edits:
            line, text = state.edits[0]
            return "dead", f"{what}: what `{text}` makes in line {line} is lost"
    for function, module in flow.followed:
        if marker := _marker(function, module):
            return "stub", f"{what} on every path, and line {marker[0]} says `{marker[1]}`"
    if flow.frame.owner is not None and (found := _MARKER.search(ast.get_docstring(flow.frame.owner.node) or "")):
        return "stub", f"{what} on every path, and its class says `{found[0]}`"
    if isinstance(node, FunctionNode) and (idle := _never_called(node)):
        return "dead", f"{what}: `{idle[0]}` (line {idle[1]}) is never called"
    used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for state in states:
        for name, value in state.env.items():
            unused = name not in used and not name.startswith("_") and isinstance(value, Made) and value.kind == "new"
            meant = (unused or _INTENT.search(name)) and not _COUNTS.search(name) and state.touches(value)
            if meant and judge(value, state)[0] in ("changed", "vague"):
                return "dead", f"{what}: what `{name}` holds is lost"
    if stand_in := next((f for f, m in flow.followed if _stands_in(f, m)), None):
        return "dead", f"{what}: an import failed, so `{getattr(stand_in, 'name', 'lambda')}` stands in for it"
    if lost := _sometimes(states):
        return "dead", f"{what}: what `{lost}` holds is lost"
    if "same" not in kinds:
        return "dead", f"{what} and the run counts as an error"
    return "pass_through", f"{what} on every path"


def _stands_in(function: FunctionNode | ast.Lambda, module: Module) -> bool:
    """Whether a function is what a module falls back on where it cannot import another."""
    for node in module.tree.body:
        tries = isinstance(node, ast.Try) and any(isinstance(s, ast.Import | ast.ImportFrom) for s in node.body)
        if isinstance(node, ast.Try) and tries and any(n is function for h in node.handlers for n in ast.walk(h)):
            return True
    return False


def _sometimes(states: list[State]) -> str:
    """A list that is filled with some of the input's elements, and by its name meant to be returned."""
    kinds: dict[str, set[str]] = {}
    for state in states:
        for name, value in state.env.items():
            if isinstance(value, Ref) and state.cells[value.cell].kind == "built" and _INTENT.search(name):
                kinds.setdefault(name, set()).add(judge(value, state)[0])
    return next((n for n, found in kinds.items() if {"same", "changed"} <= found and not _COUNTS.search(n)), "")


def _never_called(node: FunctionNode) -> tuple[str, int] | None:
    """A function made inside the hook and used by nothing: its name, and the line."""
    bare = {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Expr)}
    used = {n.id for n in ast.walk(node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in bare}  # fmt: skip
    inner = {n.name: n.lineno for n in ast.walk(node)
             if isinstance(n, FunctionNode) and n is not node and not n.decorator_list}  # fmt: skip
    inner |= {n.targets[0].id: n.lineno for n in ast.walk(node) if isinstance(n, ast.Assign)
              and isinstance(n.value, ast.Lambda) and isinstance(n.targets[0], ast.Name)}  # fmt: skip
    return next(((n, line) for n, line in inner.items() if n not in used and not n.startswith("_")), None)


def _raises(flow: Flow) -> Verdict:
    raised = [*flow.raised, *flow.thrown]
    for text, line in raised:
        if text.startswith("NotImplementedError"):
            return "stub", f"raises NotImplementedError in line {line}"
    text, line = raised[0] if raised else ("", 0)
    settled = any(isinstance(c, Class) and "on_error" in c.methods for c in flow.mro)
    if text.startswith(("NameError: ", "AttributeError: ")) and not settled:
        return "dead", f"every run of it fails (line {line}: {text})"
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
