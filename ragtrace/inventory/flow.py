"""The data flow through statements: every path through a hook, and what each returns.

A loop's body is followed once, for a typical item; what its variables held as constants before is forgotten then.
An exception handler starts from the state before its ``try``.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import replace
from functools import lru_cache

from ragtrace.inventory.assignments import NOTHING, Outcome
from ragtrace.inventory.branches import does_something
from ragtrace.inventory.calls import transparent
from ragtrace.inventory.constants import setting
from ragtrace.inventory.doomed import doom
from ragtrace.inventory.loops import Loops
from ragtrace.inventory.members import MAX_PATHS, Paths, source
from ragtrace.inventory.modules import Class, FunctionNode, Module, needed
from ragtrace.inventory.values import Cell, Condition, Const, Func, Handler, Made, Ref, State, Sym, Vague, Value

_MERGE_FROM = 12  # below it, each path keeps how it was reached, to be told
YIELDED = "<yielded>"


def _chosen(node: ast.expr) -> bool:
    """``list(filter(f, documents))`` and the like, as a statement: a choice that nothing holds."""
    name = source(node.func) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.Call) and name in ("list", "tuple") and len(node.args) == 1:
        return _chosen(node.args[0])
    return name in ("filter", "sorted", "reversed")


class Flow(Loops):
    """Follows one hook. ``followed``, ``raised`` and ``dead_code`` fill up meanwhile."""

    def begin(self, node: FunctionNode | ast.Lambda, state: State, owner: Class | None) -> Paths | None:
        """All returns of the hook, as its decorators leave them; ``None`` where one of these cannot be followed."""
        self.followed: list[tuple[FunctionNode | ast.Lambda, Module]] = []  # functions entered
        self.raised: list[tuple[str, int]] = []
        self.thrown: list[tuple[str, int]] = []  # by helpers, not caught so far
        self.dead_code: list[int] = []  # lines after a return
        self.fed = {}
        module = self.frame.module
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        if isinstance(node, ast.Lambda) or all(transparent(d, module) for d in decorators):
            return self.run(node, state)
        wrapped = self.decorated(Func(node, module, owner), state)
        if wrapped is None:
            return None
        spec = node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        values = [state.env[n] for n in names]
        call = ast.copy_location(ast.Call(ast.Name(node.name, ast.Load()), [], []), node)
        state.env = {}
        return self.call(replace(wrapped, bound=False), values, {}, state, call)

    def run(self, node: FunctionNode | ast.Lambda, state: State) -> Paths:
        """All returns of a function: (value, state) for each path that does not raise."""
        if all(known is not node for known, _ in self.followed):
            self.local_names |= bound(node)
        self.followed.append((node, self.frame.module))
        if isinstance(node, ast.Lambda):
            return self.eval(node.body, state)
        generator = generates(node)
        if generator and self.frame.depth == 0:
            return [(Vague("it is a generator", node.lineno), state)]
        if generator:
            state.env[YIELDED] = state.new(Cell("built"))
        ended: Paths = []
        for signal, s, value, line in self.block(node.body, state):
            if signal == "raise":
                known = (value.text if isinstance(value, Sym) else "", line)
                (self.thrown if self.frame.depth else self.raised).append(known)
            else:
                ended.append((s.env[YIELDED] if generator else value if signal == "return" else NOTHING, s))
        return ended

    def _Yield(self, node: ast.Yield, state: State) -> Paths:
        found = self.eval(node.value, state) if node.value else [(NOTHING, state)]
        for value, s in found:
            ref = s.env.get(YIELDED)
            if isinstance(ref, Ref):
                cell = s.cells[ref.cell]
                loop = s.loops[-1] if s.loops else None
                s.cells[ref.cell] = replace(cell, items=(*cell.items, (value, loop)))
        return [(NOTHING, s) for _, s in found]

    def _YieldFrom(self, node: ast.YieldFrom, state: State) -> Paths:
        found = self.eval(node.value, state)
        for value, s in found:
            ref = s.env.get(YIELDED)
            if isinstance(ref, Ref):
                empty = not s.cells[ref.cell].items
                if empty and isinstance(value, Ref) and not s.loops:
                    s.cells[ref.cell] = s.cells[value.cell]
                else:
                    cell = s.cells[ref.cell]
                    s.cells[ref.cell] = replace(cell, items=(*cell.items, (self.made("weak", (value,), node, s), None)))
        return [(NOTHING, s) for _, s in found]

    def block(self, body: list[ast.stmt], state: State) -> list[Outcome]:
        """Statements one after the other."""
        running = [state]
        ended: list[Outcome] = []
        for i, statement in enumerate(body):
            following: list[State] = []
            for s in running:
                for outcome in self.statement(statement, s):
                    if outcome[0] == "next":
                        following.append(outcome[1])
                    else:
                        ended.append(outcome)
            running = self.thinned(following)
            if not running:
                if i + 1 < len(body):
                    self.dead_code.append(body[i + 1].lineno)
                break
        if len(ended) > MAX_PATHS:
            ended = self.sample(ended)
        return ended + [("next", s, NOTHING, 0) for s in running]

    def thinned(self, states: list[State]) -> list[State]:
        """Of too many paths, those that differ in more than how they were reached; of too many still, a sample."""
        if len(states) <= _MERGE_FROM:
            return states
        distinct: dict[object, State] = {}
        for state in states:
            known = distinct.setdefault(state.key(), state)
            if known is not state:
                known.facts = {k: v for k, v in known.facts.items() if state.facts.get(k) is v}
                known.edits = known.edits or state.edits
        return self.sample(list(distinct.values()))

    def statement(self, node: ast.stmt, state: State) -> list[Outcome]:
        """One statement."""
        self.steps += 1
        if (why := doom(self, node, state)) is not None:
            return [("raise", state, Sym(why), node.lineno)]
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is not None:
            return handler(node, state)  # type: ignore[no-any-return]
        return [("next", state, NOTHING, 0)]  # pass, import, global, assert …

    def _Expr(self, node: ast.Expr, state: State) -> list[Outcome]:
        paths = self._later(node.value, state) or self.eval(node.value, state)
        if isinstance(node.value, ast.BinOp | ast.JoinedStr):
            for value, s in paths:
                if isinstance(value, Made) and value.kind == "new":  # made, and held by nothing
                    s.edits += ((value.line, value.text),)
        sliced = isinstance(node.value, ast.Subscript) and isinstance(node.value.slice, ast.Slice)
        if sliced or _chosen(node.value) or (isinstance(node.value, ast.Attribute) and self._is_method(node.value)):
            for _, s in paths:
                s.edits += ((node.lineno, source(node.value)),)
        return self._next(paths)

    def _is_method(self, node: ast.Attribute) -> bool:
        """``documents.sort`` or ``self._mask``, without the call."""
        own = source(node.value) == "self" and isinstance(self.member(node.attr), Func)
        return own or node.attr in ("sort", "reverse", "clear", "pop")

    def lazy(self, node: ast.expr, state: State) -> str | None:
        """``generator`` for what runs only when it is consumed, ``coroutine`` for what runs only when awaited."""
        if isinstance(node, ast.GeneratorExp):
            return "generator"
        if isinstance(node, ast.ListComp):
            return "coroutine" if self.lazy(node.elt, state) == "coroutine" else None
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Name) and node.func.id in ("map", "filter") and node.func.id not in state.env:
            return "generator"
        callee: Value | None = None
        if isinstance(node.func, ast.Name):
            callee = state.env.get(node.func.id) or self.global_value(node.func.id)
        elif isinstance(node.func, ast.Attribute) and source(node.func.value) == "self":
            callee = state.attrs.get(node.func.attr) or self.member(node.func.attr)
        if not isinstance(callee, Func) or isinstance(callee.node, ast.Lambda):
            return None
        if generates(callee.node):
            return "generator"
        return "coroutine" if isinstance(callee.node, ast.AsyncFunctionDef) else None

    def _Return(self, node: ast.Return, state: State) -> list[Outcome]:
        paths = self.eval(node.value, state) if node.value else [(NOTHING, state)]
        return [("return", s, value, node.lineno) for value, s in paths]

    def _Raise(self, node: ast.Raise, state: State) -> list[Outcome]:
        return [("raise", state, Sym(source(node.exc) if node.exc else ""), node.lineno)]

    def _Break(self, node: ast.Break, state: State) -> list[Outcome]:
        return [("break", state, NOTHING, node.lineno)]

    def _Continue(self, node: ast.Continue, state: State) -> list[Outcome]:
        return [("continue", state, NOTHING, node.lineno)]

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, state: State) -> list[Outcome]:
        state.bind(node.name, Func(node, self.frame.module, self.frame.owner, tuple(state.env.items())))
        return [("next", state, NOTHING, 0)]

    _AsyncFunctionDef = _FunctionDef

    # -- branches ---------------------------------------------------------------------------------

    def _If(self, node: ast.If, state: State) -> list[Outcome]:
        return [
            outcome
            for truth, s in self.test(node.test, state, (node.body, node.orelse))
            for outcome in self.block(node.body if truth else node.orelse, s)
        ]

    def _Match(self, node: ast.Match, state: State) -> list[Outcome]:
        found: list[Outcome] = []
        subject = source(node.subject)
        for value, s in self.eval(node.subject, state):
            rest = s
            for case in node.cases:
                known = case.pattern.value if isinstance(case.pattern, ast.MatchValue) else None
                if isinstance(value, Const) and isinstance(known, ast.Constant | ast.Attribute) and case.guard is None:
                    wanted = (
                        known.value
                        if isinstance(known, ast.Constant)
                        else getattr(setting(known, self.frame.module), "value", None)
                    )
                    if value.value == wanted:
                        found += self.block(case.body, rest)
                        break
                    if does_something(case.body):
                        rest.unreachable += ((case.pattern.lineno, f"`{subject}` is never `{source(known)}`"),)
                    continue
                taken = rest.fork()
                always = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
                for part in ast.walk(case.pattern):
                    if isinstance(part, ast.MatchAs | ast.MatchStar) and part.name:
                        whole = part is case.pattern and isinstance(part, ast.MatchAs) and part.pattern is None
                        taken.bind(part.name, value if whole else self.made("weak", (value,), node.subject, taken))
                if not always:
                    text = f"{subject} matches {source(case.pattern)}"
                    taken.conditions += (Condition(text, True, case.pattern.lineno),)
                    rest = rest.fork()
                    rest.conditions += (Condition(text, False, case.pattern.lineno),)
                found += self.block(case.body, taken)
                if always:
                    break
            else:
                found.append(("next", rest, NOTHING, 0))
        return found

    # -- loops ------------------------------------------------------------------------------------

    # -- the rest ---------------------------------------------------------------------------------

    def _With(self, node: ast.With | ast.AsyncWith, state: State) -> list[Outcome]:
        for i, item in enumerate(node.items):
            manager = item.context_expr
            if isinstance(manager, ast.Call) and source(manager.func).rpartition(".")[2] == "suppress":
                kinds = ast.Tuple(manager.args, ast.Load())
                handler = ast.ExceptHandler(kinds, None, [ast.Pass()])
                others = [*node.items[:i], *node.items[i + 1 :]]
                body: list[ast.stmt] = [ast.copy_location(ast.With(others, node.body), node)] if others else node.body
                whole = ast.copy_location(ast.Try(body, [handler], [], []), node)
                return self._Try(ast.fix_missing_locations(whole), state)
        found: list[Outcome] = []
        for values, s in self.eval_all([i.context_expr for i in node.items], state):
            for item, value in zip(node.items, values, strict=True):
                if item.optional_vars:
                    self.assign(item.optional_vars, value, s)
            found += self.block(node.body, s)
        return found

    _AsyncWith = _With

    def _Try(self, node: ast.Try | ast.TryStar, state: State) -> list[Outcome]:
        found: list[Outcome] = []
        raised: list[tuple[str, int]] = []
        passed = False
        before, self.thrown = self.thrown, []
        body = self._importing(node, state) or self.block(node.body, state.fork())
        if node.handlers:
            raised, self.thrown = self.thrown, []
        self.thrown = [*before, *self.thrown]
        for outcome in body:
            if outcome[0] == "raise" and node.handlers:
                raised.append((outcome[2].text if isinstance(outcome[2], Sym) else "", outcome[3]))
            elif outcome[0] == "next":
                passed = True
                found += self.block(node.orelse, outcome[1])
            else:
                passed = True
                found.append(outcome)
        for handler in node.handlers:
            if raised and not passed and not self._catches(handler, raised[0][0]):
                continue
            s = state.fork()
            kind = source(handler.type) if handler.type else "anything"
            needs = needed(node)
            told = f"`{needs}` cannot be imported" if needs else f"{kind} is raised in line {node.lineno}"
            s.conditions += (Condition(told.strip("`") if needs else told, True, handler.lineno),)
            asks = any(isinstance(v, Handler) for v in (state.env.get(n.id) for n in names_in(node.body)))
            if not raised and not (needs and "Import" in kind) and not asks:
                s.trivial, s.handled = True, s.conditions[-1].text
            elif raised and not passed:
                why, line = raised[0]
                s.unreachable += ((line, f"line {line} always raises ({why or 'an exception'}), which is swallowed"),)
            if handler.name:
                s.bind(handler.name, Sym(handler.name))
            found += self.block(handler.body, s)
        if not node.finalbody:
            return found
        last: list[Outcome] = []
        for signal, s, value, line in found:
            for after in self.block(node.finalbody, s):
                last.append((signal, after[1], value, line) if after[0] == "next" else after)
        return last

    def _importing(self, node: ast.Try | ast.TryStar, state: State) -> list[Outcome] | None:
        """What a ``try`` does that begins with an import of what is not installed here, and goes on without it."""
        needs = needed(node)
        module = self.frame.module
        if needs is None or any(isinstance(n, ast.Raise) for h in node.handlers for n in ast.walk(h)):
            return None
        if not module.library.missing(needs, module.path):
            return None
        return [("raise", state, Sym(f"ImportError: `{needs}` cannot be found"), node.lineno)]

    def _catches(self, handler: ast.ExceptHandler, raised: str) -> bool:
        """Whether a handler may be the one for an exception that is sure to come."""
        kind = re.match(r"(\w+)", raised)
        if handler.type is None or kind is None or not isinstance(known := getattr(builtins, kind[1], None), type):
            return True
        names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        caught = [getattr(builtins, source(n), None) for n in names]
        return any(not isinstance(c, type) or issubclass(known, c) for c in caught) or kind[1] == "ImportError"

    _TryStar = _Try


def bound(node: ast.AST) -> set[str]:
    """All names that a function, or one in it, binds."""
    found = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return found | {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def names_in(body: list[ast.stmt]) -> list[ast.Name]:
    """All names in some statements."""
    return [n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name)]


@lru_cache(maxsize=8192)
def generates(node: FunctionNode) -> bool:
    """Whether calling the function runs nothing of it yet."""
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _own(node))


def _own(node: FunctionNode) -> list[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = list(node.body)
    while pending:
        current = pending.pop()
        found.append(current)
        if not isinstance(current, FunctionNode | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(current)
    return found
