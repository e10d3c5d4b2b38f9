"""A hook is run on samples: which of them does it change, and by which tests?"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ragtrace.inventory.entries import Entry
from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.trial.inputs import Form, cases, certain
from ragtrace.inventory.trial.machine import Machine
from ragtrace.inventory.trial.outcomes import Case, changed, gather, is_long
from ragtrace.inventory.trial.samples import literals, texts, words_of
from ragtrace.inventory.trial.switches import first, switches
from ragtrace.inventory.trial.things import Function, GiveUpError, Later, Opaque
from ragtrace.inventory.trial.wider import more_texts, wider

Result = Literal["changed", "same", "raised"]
Ways = set[tuple[ast.AST, bool]]
_MOST = 150_000
_COINS = 4


@dataclass
class Trial:
    """What came of it."""

    results: list[Result] = field(default_factory=list)
    took: list[Ways] = field(default_factory=list)
    """For each sample, which way the tests went."""
    parts: Ways = field(default_factory=set)
    """Which way the operands of tests went."""
    open: dict[ast.AST, None] = field(default_factory=dict)
    """Tests that depend on something out of sight, tried both ways."""
    looked: dict[Any, bool] = field(default_factory=dict)
    """What was searched for, and whether it was found once."""
    sought: dict[ast.AST, set[Any]] = field(default_factory=dict)
    """What was searched for by a test, or by the statement that sets a variable."""
    alike: dict[ast.AST, tuple[set[Any], list[bool]]] = field(default_factory=dict)
    """For comparisons of two values: some of them, and whether they were the same each time."""
    missed: set[Any] = field(default_factory=set)
    """What was searched for in vain in a sample that holds it."""
    held: frozenset[Any] = frozenset()
    """What was found in no sample that holds it, nor in any other."""
    work: dict[int, str] = field(default_factory=dict)
    """Lines in which a text was replaced."""
    spent: set[ast.AST] = field(default_factory=set)
    """Loops over what had been used up before."""
    raised: list[str] = field(default_factory=list)
    """Exceptions that were swallowed."""
    sure: bool = True
    """Whether the form of the input is known, and not guessed."""
    errors: list[str] = field(default_factory=list)
    """Exceptions that left the hook."""
    partly: bool = False
    """Whether a way was not followed to its end."""
    again: Callable[[dict[ast.AST, bool]], Trial | None] | None = None
    """Another run, with tests that go as they are told."""
    widen: Callable[[], bool] = bool
    """More samples, added to these; whether one of them was changed."""
    switch: Callable[[], str] = str
    """What has to be given, or set, for the hook to act; "" where nothing is found."""

    @property
    def acts(self) -> bool:
        """Whether a sample was changed."""
        return "changed" in self.results

    @property
    def idle(self) -> bool:
        """Whether all samples came back as they were."""
        return self.still and not self.partly

    @property
    def still(self) -> bool:
        """Whether all samples came back as they were, as far as the hook could be followed."""
        return bool(self.results) and set(self.results) == {"same"}

    def ways(self) -> dict[ast.AST, set[bool]]:
        """Which ways each test went."""
        found: dict[ast.AST, set[bool]] = {}
        for took in self.took:
            for node, way in took:
                found.setdefault(node, set()).add(way)
        return found

    def add(self, other: Trial) -> None:
        """Adds what came of another run."""
        self.results += other.results
        self.took += other.took
        self.parts |= other.parts
        self.open |= other.open
        for what, hit in other.looked.items():
            self.looked[what] = self.looked.get(what, False) or hit
        for node, whats in other.sought.items():
            self.sought.setdefault(node, set()).update(whats)
        for node, (values, same) in other.alike.items():
            own = self.alike.setdefault(node, (set(), [True]))
            own[0].update(values)
            own[1][0] = own[1][0] and same[0]
        self.work |= other.work
        self.missed |= other.missed
        self.spent |= other.spent
        self.raised += other.raised
        self.errors += other.errors


@dataclass
class Subject:
    """A hook, and where it is written."""

    entry: Entry
    hook: str
    node: FunctionNode | ast.Lambda
    owner: Class | None
    module: Module
    classes: list[Class | str]
    flags: Mapping[str, Any]

    @property
    def static(self) -> bool:
        """Whether it is given no object."""
        decorators = [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list
        return self.owner is None or any(ast.unparse(d) == "staticmethod" for d in decorators)


def trial(subject: Subject, once: bool = False) -> Trial | None:
    """Runs a hook on samples; ``None`` where it depends on what is not in sight.

    :param once: stop when one was changed.
    """
    module = subject.module
    machine = module.library.machine
    if machine is None:
        machine = module.library.machine = Machine(module.library)
    assert isinstance(machine, Machine)
    machine.where = module.path
    words = words_of(subject.classes, subject.node, module)
    machine.constants = frozenset(literals(subject.classes, subject.node, module))
    told = texts(words, structured="json" in module.imports)
    best: Trial | None = None
    chosen: Form | None = None

    def forms(told: list[str]) -> Iterator[Form]:
        return cases(machine, subject.entry, subject.hook, subject.node, subject.static, told, words, module)

    at = 0
    for i, form in enumerate(forms(told)):
        found = _all_ways(machine, subject, form, once)
        if found is not None and found.results and (best is None or len(found.errors) < len(best.errors)):
            best, chosen, at = found, form, i
        if found is not None and found.acts:
            best, chosen, at = found, form, i
            break
    if best is not None and chosen is not None:
        used, of_best = chosen, best
        best.switch = lambda: _switch(machine, subject, used, words)
        again = next(itertools.islice(forms(more_texts(words)), at, None), None)
        best.widen = lambda: _widen(machine, subject, of_best, wider(used, again, subject.node, words))
        best.sure = certain(subject.entry, subject.hook, subject.node, subject.static)
        best.held = frozenset(w for w in best.missed if not best.looked.get(w))
    return best


def _widen(machine: Machine, subject: Subject, trial: Trial, more: Iterator[Form]) -> bool:
    for form in more:
        machine.twins = True
        try:
            found = _form(machine, subject, form, {})
        finally:
            machine.twins = False
        if found is not None:
            trial.add(found)
            if found.acts:
                return True
    trial.held = frozenset(w for w in trial.missed if not trial.looked.get(w))
    return False


def _switch(machine: Machine, subject: Subject, form: Form, words: list[str]) -> str:
    classes = [c for c in subject.classes if isinstance(c, Class)]

    def acts(given: dict[str, Any]) -> bool:
        found = _form(machine, subject, lambda: itertools.islice(form(), 8), {}, True, given)
        return found is not None and found.acts

    return first(machine, switches(machine, classes, subject.node, words), acts)


def _holds(what: Any, told: list[str]) -> bool:
    """Whether a sample has what was searched for in vain."""
    if isinstance(what, tuple):
        how, text = what
        return text in told if how == "is" else any(isinstance(text, str) and getattr(t, how)(text) for t in told)
    return any(what in t or _found(what, t) for t in told)


def _found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _all_ways(machine: Machine, subject: Subject, form: Form, once: bool) -> Trial | None:
    """The samples, with each test of what is out of sight both ways."""
    found = _form(machine, subject, form, {}, once)
    if found is None or (once and found.acts):
        return found
    coins = list(found.open)[:_COINS]
    tried = [{c: True} for c in coins] + ([dict.fromkeys(coins, True)] if len(coins) > 1 else [])
    for coin in tried:
        if (other := _form(machine, subject, form, coin)) is not None:
            found.add(other)
        else:
            found.partly = True
    found.again = lambda told: _again(machine, subject, form, told)
    return found


def _again(machine: Machine, subject: Subject, form: Form, told: dict[ast.AST, bool]) -> Trial | None:
    """The samples, with tests that go as they are told, and what is out of sight both ways."""
    found = _form(machine, subject, form, told)
    if found is not None and found.open and not found.acts:
        other = _form(machine, subject, form, {**dict.fromkeys(found.open, True), **told})
        if other is None:
            return None
        found.add(other)
    return found


def _form(
    machine: Machine,
    subject: Subject,
    form: Form,
    coins: dict[ast.AST, bool],
    once: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Trial | None:
    found = Trial()
    method, total = None, 0
    machine.fresh(coins)
    try:
        for case in form():
            machine.begin()
            if method is None:
                method = _method(machine, subject, given or {})
                machine.begin()
            machine.answer = case.text
            texts_in: list[str] = []
            gather([case.args, case.kw], texts_in)
            try:
                result = _one(machine, method, case, found)
            except GiveUpError:
                if _long(case):
                    continue
                raise
            found.add(Trial([result], [machine.took], machine.parts, machine.open, machine.looked, machine.sought,
                            machine.alike, work=machine.work, spent=machine.spent, raised=machine.raised))  # fmt: skip
            found.missed |= {w for w, hit in machine.looked.items() if not hit and w not in found.missed
                             and not found.looked[w] and _holds(w, texts_in)}  # fmt: skip
            total += machine.steps
            if total > _MOST or (once and found.acts):
                break
    except GiveUpError:
        return found if found.acts else None
    except Exception:
        return None
    finally:
        machine.coins = {}
    return found


def _long(case: Case) -> bool:
    try:
        return is_long(case)
    except GiveUpError:
        return False


def _one(machine: Machine, method: Any, case: Case, found: Trial) -> Result:
    before = copy.deepcopy(case.guarded)
    try:
        again = copy.deepcopy(case)  # what it keeps of a call may decide the next one
        for once in (case, again):
            given = method(*once.args, **once.kw)
            if isinstance(given, Later):
                given = given.run()
            if isinstance(given, Opaque):
                raise GiveUpError(given.name)
            if changed(once, before, given):
                return "changed"
        return "same"
    except GiveUpError:
        raise
    except Exception as error:
        found.errors.append(f"{type(error).__name__}: {error}"[:200])
        return "raised"


def _method(machine: Machine, subject: Subject, given: Mapping[str, Any]) -> Any:
    """The hook, of a new object of its class."""
    entry, node, owner, mro = subject.entry, subject.node, subject.owner, subject.classes
    scope = machine.globals_of(subject.module)
    if owner is None or not isinstance(mro[0], Class):
        return machine.function(node, scope)
    klass = machine.klass_of(mro[0])
    init = machine.find([c for c in mro if isinstance(c, Class)], "__init__")
    args: list[Any] = []
    if isinstance(init, Function):
        spec = init.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)][1:]
        args = [Opaque(n) for n in names[: len(names) - len(spec.defaults)]]
    machine.lenient = (klass.cls,)
    made = machine.construct(klass, tuple(args), dict(given))
    machine.lenient = ()
    for name, value in subject.flags.items():
        made._a[name] = value
    name = node.name if isinstance(node, FunctionNode) and owner.methods.get(node.name) is node else entry.method
    method = machine.attribute(made, name)
    if isinstance(method, Opaque):
        raise GiveUpError(name)
    return method
