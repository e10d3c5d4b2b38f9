"""Two opinions made one: what the paths through a hook say, and what a trial on samples shows.

A trial that changes a sample is proof that the hook acts. One that changes none is proof of the contrary only if it
left nothing out: every test that could matter went both ways, every text that was searched for was found once. Where a
test went one way only, the trial is made again with the test turned round, to see what it decides.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ragtrace.inventory.known import LOGS
from ragtrace.inventory.members import source
from ragtrace.inventory.modules import Class, FunctionNode
from ragtrace.inventory.patterns import impossible
from ragtrace.inventory.settled import Settled, asks_kind, structural, test_of
from ragtrace.inventory.trial import Subject, Trial

if TYPE_CHECKING:
    from ragtrace.inventory.hook import Verdict

INERT = ("stub", "pass_through", "dead")
_BROKEN = re.compile(
    r"AttributeError|NameError|UnboundLocalError|TypeError|ImportError|ModuleNotFound|ZeroDivision|NotImpl"
)
_MISSES = re.compile(r"KeyError|IndexError|LookupError|RuntimeError|OSError")
_CHOOSES = re.compile(r"Filter|Cutoff|Threshold|Drop|Gate|Select")
_TOLD = re.compile(r"(not )?`([^`]+)`")


# -- where a sample was changed -------------------------------------------------------------------


def acting(verdict: Verdict, trial: Trial, subject: Subject) -> Verdict:
    """The verdict where a trial has changed a sample: does a test decide whether it does?"""
    status, reason = verdict
    if status == "active":
        return verdict
    told = f"changes {trial.results.count('changed')} of {len(trial.results)} samples"
    if status == "conditional" and not _narrow(reason, trial, Settled(subject)):
        return verdict
    test = decisive(trial)
    if test is None:
        test = _guard(trial, subject)
    if test is not None:
        known = reason if status == "conditional" else f"acts only if `{source(test)}` (line {_line(test)}): {told}"
        return "conditional", known
    return "active", f"{reason}, as all do" if status == "conditional" else told


def _narrow(reason: str, trial: Trial, settled: Settled) -> bool:
    """Whether the tests that are said to decide ask only what something is, or decide nothing but what is logged."""
    told = _TOLD.findall(reason.partition(" (")[0])
    ways = trial.ways()
    ifs = [n for n in ways if isinstance(n, ast.If)]
    names = {a.arg for a in settled.node.args.args}
    for negated, text in told:
        at = [n for n in ifs if text in (source(n.test), f"not {source(n.test)}", source(n.test).removeprefix("not "))]
        if at and not any(_branches(n) for n in at):
            continue
        if at and all(_is_on(n, ways[n], settled) for n in at):
            continue
        given = re.fullmatch(r"\w+ is (?:not )?None", text) and text.split()[0] in names
        if not given and any(not settled.in_loop(n) for n in at):
            return False  # asked once, not of each message or document
        try:
            test = ast.parse(f"not ({text})" if negated else text, mode="eval").body
        except SyntaxError:
            return False
        if not structural(test):
            return False
    return bool(told)


def decisive(trial: Trial) -> ast.AST | None:
    """A test that went one way whenever a sample was changed, and another way for one that was not."""
    pairs = [(r, {w for w in took if _branches(w[0]) and not _kind(w[0])})
             for r, took in zip(trial.results, trial.took, strict=True)]  # fmt: skip
    acting = [t for r, t in pairs if r == "changed"]
    idle = [t for r, t in pairs if r == "same"]
    if not any(all(i != a for a in acting) for i in idle):
        return None
    shared = set.intersection(*acting)
    for node, way in sorted(shared, key=lambda w: (_line(w[0]), w[1])):
        if any((node, way) not in t or (node, not way) in t for t in idle) and (test := test_of(node)) is not None:
            return test
    return next((test_of(n) or n for t in (*acting, *idle) for n, _ in t), None)


def _is_on(node: ast.AST, ways: set[bool], settled: Settled) -> bool:
    """Whether a switch stands one way, whatever the hook or the constructor is given."""
    return (
        settled.told_nothing and len(ways) == 1 and not asks_kind(node) and bool(settled.switch(node, next(iter(ways))))
    )


def _filters(node: ast.If) -> bool:
    """Whether an ``if`` in a loop does nothing but to leave an item out, or to take it as it is."""
    left, taken = False, False
    for statement in (*node.body, *node.orelse):
        call = statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
        name = source(call.func).rpartition(".")[2] if call is not None else ""
        if isinstance(statement, ast.Continue):
            left = True
        elif call is not None and name == "append" and isinstance(call.args[0], ast.Name):
            taken = True
        elif name != "add" and not _says(statement) and not isinstance(statement, ast.AugAssign):
            return False
    return left or taken


def _kind(node: ast.AST) -> bool:
    test = test_of(node)
    return test is not None and structural(test)


def _branches(node: ast.AST) -> bool:
    """Whether a test decides what is done, where a filter decides what is kept."""
    if isinstance(node, ast.If):
        return not _filters(node) and (_matters(node, True) or _matters(node, False))
    return isinstance(node, ast.IfExp | ast.While | ast.pattern | ast.ExceptHandler)


def _guard(trial: Trial, subject: Subject) -> ast.AST | None:
    """A test that always went one way, and that keeps the hook from acting where it goes the other."""
    settled = Settled(subject)
    for node, ways in list(trial.ways().items()):
        test = test_of(node)
        if len(ways) > 1 or not _branches(node) or test is None:
            continue
        if structural(test) or not settled.outside(node) or _is_on(node, ways, settled):
            continue
        turned = trial.again({node: not next(iter(ways))}) if trial.again else None
        if turned is not None and turned.idle:
            return test
    return None


# -- where none was -------------------------------------------------------------------------------


def idle(verdict: Verdict, trial: Trial, subject: Subject, edits: list[tuple[int, str]], inert: Verdict) -> Verdict:
    """The verdict where no sample was changed. ``inert``: what the hook is if it never changes anything."""
    status, reason = verdict
    what = "returns its input unchanged"
    if status in ("stub", "dead") or (status == "conditional" and " is raised in line " in reason):
        return verdict  # no sample makes the model, or a service, fail
    settled = Settled(subject)
    if status == "pass_through":
        never = (n for n, w in trial.ways().items() if w == {False} and isinstance(n, ast.For) and _matters(n, False))
        if empty := next((n for n in never if settled.outside(n)), None):
            return "dead", f"{what}: `{source(empty.iter)}` (line {empty.lineno}) is empty"
        if spare := _spare(trial, subject):
            return "dead", f"{what}: `{source(spare)}` (line {spare.lineno}) never gets to its second part"
        if idle := _decides_nothing(trial, subject):
            return "dead", f"{what}: `{source(idle.test)}` (line {idle.lineno}) decides nothing but what is logged"
    else:
        open_tests: list[ast.AST] = []
        for node, ways in list(trial.ways().items())[:40]:
            way = next(iter(ways))
            if len(ways) > 1 or not _matters(node, way):
                continue
            turned = trial.again({node: not way}) if trial.again and isinstance(node, ast.If | ast.IfExp) else None
            if turned is not None and turned.idle:
                continue  # it decides nothing
            proven = turned.acts if turned is not None else not asks_kind(node)
            sure = proven or not asks_kind(node) if not (trial.open or trial.partly) else _ends(subject, node, way)
            if sure and (why := settled.why(node, way, trial)):
                return "dead", f"{what}: {why}"
            open_tests.append(test_of(node) or node)
        if open_tests and status == "unknown" and _all_turn(trial, open_tests):
            return "conditional", f"acts only if `{source(open_tests[0])}` goes another way than for any sample"
        moved = any(settled.own_state(n) for n in trial.ways() if test_of(n) in open_tests)
        if status != "unknown" and open_tests and not (trial.open or trial.partly or moved or _unmet(trial)):
            return "unknown", f"cannot tell: {reason}, yet none of {len(trial.results)} samples is changed"
        if open_tests or _unmet(trial) or trial.partly or (trial.open and status != "unknown"):
            return verdict
        if trial.raised:
            broken = next((r for r in trial.raised if _BROKEN.match(r)), None)
            each = (
                len(set(trial.raised)) == 1
                and len(trial.raised) >= len(trial.results)
                and _MISSES.match(trial.raised[0])
            )
            if trial.sure and (broken or each):
                return "dead", f"{what}: {broken or trial.raised[0]}, which is swallowed"
            return "unknown", f"cannot tell: samples made it raise {trial.raised[0]}, which is swallowed"
    plain = status == "pass_through" and len(_body(subject.node)) < 2 and not _reads(subject.node)
    if not trial.open and not plain and (needed := trial.switch()):
        return "dead", f"{what} unless {needed}"
    if trial.work:
        line, name = next(iter(trial.work.items()))
        return "dead", f"{what}: what `{name}` makes in line {line} is lost"
    if status in ("unknown", "pass_through"):
        return inert if status == "unknown" else verdict
    made = next(((line, text) for line, text in edits if re.search(r"\b(?:sub|replace|translate)\(", text)), None)
    if made is None:
        return "pass_through", f"gives its input back, on each of {len(trial.results)} samples"
    return "dead", f"{what}: `{made[1]}` (line {made[0]}) gives back what it is given"


def _spare(trial: Trial, subject: Subject) -> ast.BoolOp | None:
    """``text or mask(text)``: what is made of the text only where there is none."""
    for node in ast.walk(subject.node):
        first = node.values[0] if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) else None
        if isinstance(node, ast.BoolOp) and isinstance(first, ast.Name) and (first, False) not in trial.parts:
            made = [n for v in node.values[1:] for n in ast.walk(v) if isinstance(n, ast.Call | ast.comprehension)]
            if any(isinstance(n, ast.Name) and n.id == first.id for m in made for n in ast.walk(m)):
                return node
    return None


def _decides_nothing(trial: Trial, subject: Subject) -> ast.If | None:
    """A test of items that only logs, in a part that by its name is there to choose."""
    named = subject.owner is not None and _CHOOSES.search(subject.owner.name)
    asked = [n for n in trial.ways() if isinstance(n, ast.If)] if named else []
    return next((n for n in asked if Settled(subject).in_loop(n) and all(map(_says, [*n.body, *n.orelse]))), None)


def _ends(subject: Subject, node: ast.AST, way: bool) -> bool:
    """Whether the hook, or the one that it hands over to, returns by this test before it does anything else."""
    body = _body(subject.node)
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    call = call.value if isinstance(call, ast.Await) else call
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and source(call.func.value) == "self":
        name = call.func.attr
        other = next((c.methods[name] for c in subject.classes if isinstance(c, Class) and name in c.methods), None)
        body = _body(other) if isinstance(other, FunctionNode) else body
    if not isinstance(node, ast.If) or node not in body:
        return False
    taken = node.body if way else node.orelse
    return bool(taken) and isinstance(taken[-1], ast.Return)


def _reads(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and source(n.value) == "self" for n in ast.walk(node))


def _body(node: FunctionNode | ast.Lambda) -> list[ast.stmt]:
    found = node.body if isinstance(node.body, list) else []
    return found[1:] if isinstance(node, FunctionNode) and ast.get_docstring(node) else found


def _all_turn(trial: Trial, tests: list[ast.AST]) -> bool:
    """Whether the hook acts on a sample if a test is turned round."""
    for node, ways in trial.ways().items():
        if len(ways) == 1 and test_of(node) in tests and isinstance(node, ast.If | ast.IfExp) and trial.again:
            turned = trial.again({node: not next(iter(ways))})
            if turned is not None and turned.acts:
                return True
    return False


def _unmet(trial: Trial) -> bool:
    """Whether something was searched for that no sample had."""
    return any(
        not hit and isinstance(what, str) and not impossible(what) and what not in trial.held
        for what, hit in trial.looked.items()
    )


def _matters(node: ast.AST, way: bool) -> bool:
    """Whether what a test left out could have changed anything."""
    if isinstance(node, ast.If):
        body = node.body if way else node.orelse
        leaves = bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
        return leaves or any(not _says(s) for s in (node.orelse if way else node.body))
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return not way and not all(map(_says, node.body))
    if isinstance(node, ast.comprehension):
        return not way
    return not isinstance(node, ast.ExceptHandler) and not (isinstance(node, ast.pattern) and way)


def _says(node: ast.stmt) -> bool:
    """Whether a statement does nothing but log."""
    if isinstance(node, ast.Pass | ast.Raise):
        return True
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and source(call.func).rpartition(".")[2] in LOGS


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
