"""The data flow through statements: every path through a hook, and what each returns.

A loop's body is followed once, for a typical item; what its variables held as constants before is forgotten then.
An exception handler starts from the state before its ``try``.
"""

from __future__ import annotations

import ast

from ragtrace.inventory.assignments import NOTHING, Assignments, Outcome
from ragtrace.inventory.expressions import MAX_PATHS, Paths, TooComplexError, source
from ragtrace.inventory.modules import FunctionNode, Module
from ragtrace.inventory.values import (
    Attr,
    Condition,
    Const,
    Func,
    Ref,
    State,
    Sym,
    Vague,
    Value,
    judge,
)


class Flow(Assignments):
    """Follows one hook. ``followed``, ``raised`` and ``dead_code`` fill up meanwhile."""

    def start(self, node: FunctionNode | ast.Lambda, state: State) -> Paths:
        """All returns of the hook."""
        self.followed: list[tuple[FunctionNode | ast.Lambda, Module]] = []  # functions entered
        self.raised: list[tuple[str, int]] = []
        self.dead_code: list[int] = []  # lines after a return
        return self.run(node, state)

    def run(self, node: FunctionNode | ast.Lambda, state: State) -> Paths:
        """All returns of a function: (value, state) for each path that does not raise."""
        self.followed.append((node, self.frame.module))
        if isinstance(node, ast.Lambda):
            return self.eval(node.body, state)
        if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _own(node)):
            return [(Vague("it is a generator", node.lineno), state)]
        ended: Paths = []
        for signal, s, value, line in self.block(node.body, state):
            if signal == "raise":
                if self.frame.depth == 0:
                    self.raised.append((value.text if isinstance(value, Sym) else "", line))
            else:
                ended.append((value if signal == "return" else NOTHING, s))
        return ended

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
            running = following
            if len(running) + len(ended) > MAX_PATHS:
                raise TooComplexError
            if not running:
                if i + 1 < len(body):
                    self.dead_code.append(body[i + 1].lineno)
                break
        return ended + [("next", s, NOTHING, 0) for s in running]

    def statement(self, node: ast.stmt, state: State) -> list[Outcome]:
        """One statement."""
        self.steps += 1
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is not None:
            return handler(node, state)  # type: ignore[no-any-return]
        return [("next", state, NOTHING, 0)]  # pass, import, global, assert …

    def _Expr(self, node: ast.Expr, state: State) -> list[Outcome]:
        return self._next(self.eval(node.value, state))

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

    def test(self, node: ast.expr, state: State, branches: tuple[object, object]) -> list[tuple[bool, State]]:
        """Both ways a test may go, or the only one. ``branches`` are what follows: (if true, if false)."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return [(not truth, s) for truth, s in self.test(node.operand, state, branches[::-1])]
        text, before = source(node), state.edits
        known = state.facts.get(text)
        empty = self._emptiness(node, state)
        found: list[tuple[bool, State]] = []
        for value, s in self._test_values(node, state):
            s.edits = before  # what is made for a test is not meant to be returned
            if isinstance(value, Const):
                truth = bool(value.value)
                if value.origin or isinstance(node, ast.Constant):
                    lost = branches[1] if truth else branches[0]
                    if isinstance(lost, ast.expr) or (isinstance(lost, list) and _does_something(lost)):
                        what = f"`{text}` is always {truth}" if value.origin else f"the test is always {truth}"
                        s.unreachable += ((node.lineno, what),)
                found.append((truth, s))
            elif known is not None:
                found.append((known, s))
            else:
                for truth in (True, False):
                    branch = s.fork() if truth else s
                    branch.conditions += (Condition(text, truth, node.lineno),)
                    if empty is truth:
                        branch.trivial = branch.empty = True
                    if not any(isinstance(n, ast.Call | ast.Await) for n in ast.walk(node)):
                        branch.facts[text] = truth
                    found.append((truth, branch))
        return found

    def _test_values(self, node: ast.expr, state: State) -> Paths:
        """A test's values, where ``and``, ``or`` are one condition unless a constant decides them."""
        if not isinstance(node, ast.BoolOp):
            return self.eval(node, state)
        stops_at = isinstance(node.op, ast.Or)
        found: Paths = []
        for values, s in self.eval_all(node.values, state):
            constants = [v for v in values if isinstance(v, Const)]
            decided = next((v for v in constants if bool(v.value) is stops_at), None)
            if decided is None and len(constants) == len(values):
                decided = constants[-1]
            found.append((decided or Sym(source(node)), s))
        return found[:1]  # the operands' own branches are part of this one condition

    def _emptiness(self, node: ast.expr, state: State) -> bool | None:
        """The outcome of a test that means: there is nothing to protect here (an empty input, or none)."""
        if isinstance(node, ast.BoolOp):
            parts = {self._emptiness(v, state) for v in node.values}
            return parts.pop() if len(parts) == 1 else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._emptiness(node.operand, state)
            return None if inner is None else not inner
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            op, right = node.ops[0], source(node.comparators[0])
            subject = node.left
            if isinstance(subject, ast.Call) and source(subject.func) == "len" and subject.args:
                subject = subject.args[0]
            elif right not in ("None", "''", "[]"):
                return None
            if not self._is_input(subject, state) or right not in ("None", "''", "[]", "0", "1"):
                return None
            if isinstance(op, ast.Eq | ast.Is | ast.Lt | ast.LtE):
                return True
            return False if isinstance(op, ast.NotEq | ast.IsNot | ast.Gt | ast.GtE) else None
        if isinstance(node, ast.Call):
            name = source(node.func)
            if name in ("isinstance", "len", "bool", "any") and node.args and self._is_input(node.args[0], state):
                return False
            if isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
                return False if self._is_input(node.func.value, state) else None
            return None
        return False if self._is_input(node, state) else None

    def _is_input(self, node: ast.expr, state: State) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
            node = node.func.value
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr == "content" and isinstance(state.env.get(node.value.id), Ref)
        return isinstance(node, ast.Name) and isinstance(state.env.get(node.id), Ref | Attr)

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

    def _For(self, node: ast.For | ast.AsyncFor, state: State) -> list[Outcome]:
        found: list[Outcome] = []
        for iterable, s in self.eval(node.iter, state):
            if isinstance(iterable, Const) and iterable.value == ():
                s.unreachable += ((node.lineno, f"`{source(node.iter)}` is always empty"),)
                found += self.block(node.orelse, s)
                continue
            skipped = s.fork()
            loop = next(self.loop_ids)
            self._havoc(node.body, s)
            self.assign(node.target, self.elements(iterable, node.iter, s, loop), s)
            done = self._round(node.body, node.orelse, loop, s)
            filled = isinstance(node.iter, ast.Tuple | ast.List | ast.Set) and not isinstance(
                node.iter.elts[0], ast.Starred
            )
            if not filled and not any(o[0] == "next" for o in done):
                skipped.conditions += (Condition(f"{source(node.iter)} is empty", True, node.lineno),)
                skipped.trivial = skipped.trivial or s.touches(iterable)
                done += self.block(node.orelse, skipped)
            found += done
        return found

    _AsyncFor = _For

    def _While(self, node: ast.While, state: State) -> list[Outcome]:
        found: list[Outcome] = []
        self._havoc(node.body, state)
        for truth, s in self.test(node.test, state, (node.body, [])):
            if truth:
                found += self._round(node.body, node.orelse, next(self.loop_ids), s)
            else:
                found += self.block(node.orelse, s)
        return found

    def _round(self, body: list[ast.stmt], orelse: list[ast.stmt], loop: int, state: State) -> list[Outcome]:
        """The body once, then what follows the loop."""
        outer, before = state.loops, {n: (v, _dirt(v, state)) for n, v in state.env.items()}
        state.loops = (*outer, loop)
        found: list[Outcome] = []
        for signal, s, value, line in self.block(body, state):
            s.loops = outer
            if signal not in ("return", "raise"):
                self._carry(body, before, s)
            if signal == "break":
                s.broken |= {loop}
                found.append(("next", s, NOTHING, 0))
            elif signal in ("next", "continue"):
                found += self.block(orelse, s)
            else:
                found.append((signal, s, value, line))
        return found

    def _carry(self, body: list[ast.stmt], before: dict[str, tuple[Value, object]], state: State) -> None:
        """A variable that held the input after one round may hold what another one carries into the next."""
        feeds: dict[str, set[str]] = {}
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
                for stored in (n.id for n in names if isinstance(n.ctx, ast.Store)):
                    feeds.setdefault(stored, set()).update(n.id for n in names if isinstance(n.ctx, ast.Load))
        for name in feeds:
            seen, pending = {name}, set(feeds[name])
            while pending:
                seen |= pending
                pending = {f for n in pending for f in feeds.get(n, ())} - seen
            value = state.env.get(name)
            moved = [n for n in seen - {name} if n in before and before[n] != (now := state.env[n], _dirt(now, state))]
            if moved and isinstance(value, Ref) and judge(value, state)[0] == "same":
                state.bind(name, Vague(f"`{name}` may hold what `{moved[0]}` was the round before", body[0].lineno))

    def _havoc(self, body: list[ast.stmt], state: State) -> None:
        """Forgets constants that the loop's body sets: they hold in the first round only."""
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                state.forget(node.id)
                if isinstance(state.env.get(node.id), Const):
                    state.env[node.id] = Sym(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                state.attrs.pop(node.attr, None)
                state.forget("self")

    # -- the rest ---------------------------------------------------------------------------------

    def _With(self, node: ast.With | ast.AsyncWith, state: State) -> list[Outcome]:
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
        raised = False
        for outcome in self.block(node.body, state.fork()):
            if outcome[0] == "raise" and node.handlers:
                raised = True
            elif outcome[0] == "next":
                found += self.block(node.orelse, outcome[1])
            else:
                found.append(outcome)
        for handler in node.handlers:
            s = state.fork()
            kind = source(handler.type) if handler.type else "anything"
            s.conditions += (Condition(f"{kind} is raised in line {node.lineno}", True, handler.lineno),)
            if not raised:
                s.trivial, s.handled = True, s.conditions[-1].text
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

    _TryStar = _Try


def _dirt(value: Value, state: State) -> object:
    return state.dirt(value) if isinstance(value, Ref) else None


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


def _does_something(body: list[ast.stmt]) -> bool:
    """Whether a branch could have changed what is returned, which logging alone cannot."""
    kinds = ast.Return | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete
    return any(isinstance(n, kinds) for statement in body for n in ast.walk(statement))
