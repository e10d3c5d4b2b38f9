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
    ifs = [n for n in trial.ways() if isinstance(n, ast.If)]
    names = {a.arg for a in settled.node.args.args}
    for negated, text in told:
        at = [n for n in ifs if text in (source(n.test), f"not {source(n.test)}", source(n.test).removeprefix("not "))]
        if at and not any(map(_branches, at)):
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
    pairs = [(r, {w for w in took if _branches(w[0])}) for r, took in zip(trial.results, trial.took, strict=True)]
    acting = [t for r, t in pairs if r == "changed"]
    idle = [t for r, t in pairs if r == "same"]
    if not any(all(i != a for a in acting) for i in idle):
        return None
    shared = set.intersection(*acting)
    for node, way in sorted(shared, key=lambda w: (_line(w[0]), w[1])):
        if any((node, way) not in t or (node, not way) in t for t in idle) and (test := test_of(node)) is not None:
            return test
    return next((test_of(n) or n for t in (*acting, *idle) for n, _ in t), None)


def _branches(node: ast.AST) -> bool:
    """Whether a test decides what is done, where a filter decides what is kept."""
    if isinstance(node, ast.If):
        return _matters(node, True) or _matters(node, False)
    return isinstance(node, ast.IfExp | ast.While | ast.pattern | ast.ExceptHandler)


def _guard(trial: Trial, subject: Subject) -> ast.AST | None:
    """A test that always went one way, and that keeps the hook from acting where it goes the other."""
    settled = Settled(subject)
    for node, ways in list(trial.ways().items()):
        test = test_of(node)
        if len(ways) > 1 or not _branches(node) or test is None:
            continue
        if structural(test) or not settled.outside(node):
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
        if status == "active" and open_tests and not (trial.open or trial.partly or _unmet(trial)):
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
    if trial.work:
        line, name = next(iter(trial.work.items()))
        return "dead", f"{what}: what `{name}` makes in line {line} is lost"
    if status in ("unknown", "pass_through"):
        return inert if status == "unknown" else verdict
    made = next(((line, text) for line, text in edits if re.search(r"\b(?:sub|replace|translate)\(", text)), None)
    if made is None:
        return "pass_through", f"gives its input back, on each of {len(trial.results)} samples"
    return "dead", f"{what}: `{made[1]}` (line {made[0]}) gives back what it is given"


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
