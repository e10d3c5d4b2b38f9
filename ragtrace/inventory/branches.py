"""The data flow through tests: which ways one may go, and what that says of the input."""

from __future__ import annotations

import ast
import re

from ragtrace.inventory.assignments import Assignments
from ragtrace.inventory.known import LOGS
from ragtrace.inventory.members import Paths, source
from ragtrace.inventory.values import Attr, Condition, Const, Made, Map, Ref, State, Sym

_SUB = re.compile(r"[\w.]+\.(?:sub|replace)\((?!.*\)\.)")


class Branches(Assignments):
    """Statements that have a test are in :class:`~ragtrace.inventory.flow.Flow`."""

    def test(self, node: ast.expr, state: State, branches: tuple[object, object]) -> list[tuple[bool, State]]:
        """Both ways a test may go, or the only one. ``branches`` are what follows: (if true, if false)."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return [(not truth, s) for truth, s in self.test(node.operand, state, branches[::-1])]
        text, before = source(node), state.edits
        if (decided := self._always(node, state)) is not None:
            lost = branches[1] if decided else branches[0]
            matters = does_something(lost) if isinstance(lost, list) else not isinstance(lost, ast.Name)
            if matters:
                state.unreachable += ((node.lineno, f"`{text}` is always {decided}"),)
            return [(decided, state)]
        known = state.facts.get(text)
        empty = self._emptiness(node, state)
        found: list[tuple[bool, State]] = []
        values = self._test_values(node, state)
        settled = {bool(v.value) if isinstance(v, Const) else None for v, _ in values}
        for value, s in values:
            s.edits = before  # what is made for a test is not meant to be returned
            if isinstance(value, Const):
                truth = bool(value.value)
                lost = branches[1] if truth else branches[0]
                matters = isinstance(lost, ast.expr) or (isinstance(lost, list) and does_something(lost))
                if matters and len(settled) == 1:
                    what = "the test" if isinstance(node, ast.Constant) else f"`{text}`"
                    s.unreachable += ((node.lineno, f"{what} is always {truth}"),)
                found.append((truth, s))
            elif known is not None:
                found.append((known, s))
            else:
                told = self._optional_text(node, text)
                for truth in (True, False):
                    branch = s.fork() if truth else s
                    branch.conditions += (Condition(told, truth, node.lineno),)
                    self._equal(node, truth, branch)
                    if empty is truth:
                        branch.trivial = branch.empty = True
                    if not any(isinstance(n, ast.Call | ast.Await) for n in ast.walk(node)):
                        branch.facts[text] = truth
                    found.append((truth, branch))
        return found

    def _equal(self, node: ast.expr, truth: bool, state: State) -> None:
        """Where what was made of the input was found equal to it, it is the input."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return
        op, pair = node.ops[0], (node.left, node.comparators[0])
        if not isinstance(op, ast.Eq if truth else ast.NotEq):
            return
        for a, b in (pair, pair[::-1]):
            made = state.env.get(a.id) if isinstance(a, ast.Name) else None
            given = state.env.get(b.id) if isinstance(b, ast.Name) else None
            if isinstance(a, ast.Name) and isinstance(made, Made) and isinstance(given, Ref):
                state.env[a.id] = given

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

    def _optional_text(self, node: ast.expr, text: str) -> str:
        """A test's source, with the module that decides it where an optional import does."""
        needs = {self.needs[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.needs}
        return f"{text}` (by the optional import of {', '.join(sorted(needs))})`" if needs else text

    def _always(self, node: ast.expr, state: State) -> bool | None:
        """The outcome of a test of the input that any input has: it is there, and it has a length."""
        if isinstance(node, ast.BoolOp):
            if (settled := exclusive(node)) is not None:
                return settled
            known = [self._always(v, state) for v in node.values]
            stops = isinstance(node.op, ast.Or)
            if stops in known:
                return stops
            return (not stops) if all(k is not None for k in known) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._always(node.operand, state)
            return None if inner is None else not inner
        if isinstance(node, ast.Name | ast.Attribute) and source(node).rpartition(".")[2] == "TYPE_CHECKING":
            return False
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        if (runs := _version(node)) is not None:
            return runs
        op, right, subject = node.ops[0], source(node.comparators[0]), node.left
        given = state.env.get(subject.id) if isinstance(subject, ast.Name) else None
        if right == "None" and isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
            known_input = isinstance(given, Ref) and state.cells[given.cell].kind in ("text", "list", "built")
            return isinstance(op, ast.IsNot | ast.NotEq) if known_input or isinstance(given, Map) else None
        if isinstance(subject, ast.Call) and source(subject.func) == "len" and right == "0":
            return True if isinstance(op, ast.GtE) else False if isinstance(op, ast.Lt) else None
        if right == "-1" and isinstance(subject, ast.Call) and isinstance(subject.func, ast.Attribute):
            found = subject.func.attr in ("find", "rfind", "index")
            return True if found and isinstance(op, ast.GtE) else None
        if isinstance(op, ast.In) and isinstance(node.left, ast.Constant) and node.left.value == "":
            return True
        return None

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
            if right == "1" and not isinstance(op, ast.Lt | ast.GtE):
                return None
            if not self._is_input(subject, state) or right not in ("None", "''", "[]", "0", "1"):
                return None
            if isinstance(op, ast.Eq | ast.Is | ast.Lt | ast.LtE):
                return True
            return False if isinstance(op, ast.NotEq | ast.IsNot | ast.Gt | ast.GtE) else None
        if isinstance(node, ast.Call):
            name = source(node.func)
            if name == "isinstance" and node.args and isinstance(node.args[0], ast.Name):
                given = state.env.get(node.args[0].id)
                if isinstance(given, Ref) and given.cell and state.cells[given.cell].kind == "element":
                    return None  # one message or node among others: of which kind it is matters
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
        given = state.env.get(node.id) if isinstance(node, ast.Name) else None
        # what a replacement leaves is empty as rarely as the input is
        return isinstance(given, Ref | Attr) or (isinstance(given, Made) and bool(_SUB.match(given.text)))


def exclusive(node: ast.BoolOp) -> bool | None:
    """``x != "a" or x != "b"``, which is always so, and ``x == "a" and x == "b"``, which never is."""
    wanted: type[ast.cmpop] = ast.NotEq if isinstance(node.op, ast.Or) else ast.Eq
    pairs = [
        (source(v.left), v.comparators[0].value)
        for v in node.values
        if isinstance(v, ast.Compare) and isinstance(v.ops[0], wanted) and isinstance(v.comparators[0], ast.Constant)
    ]
    clash = any(a[0] == b[0] and a[1] != b[1] for a in pairs for b in pairs)
    return isinstance(node.op, ast.Or) if clash else None


def _version(node: ast.Compare) -> bool | None:
    """A test for Python 2, which nothing runs under any more."""
    left, right, op = source(node.left), source(node.comparators[0]), node.ops[0]
    if left == "sys.version_info" and re.match(r"\((2|3, 0\)|3,\))", right):
        return True if isinstance(op, ast.Gt | ast.GtE) else False if isinstance(op, ast.Lt | ast.LtE) else None
    if left in ("sys.version_info[0]", "sys.version_info.major") and right in ("2", "3"):
        if isinstance(op, ast.Eq):
            return right == "3"
        return True if isinstance(op, ast.GtE) else False if isinstance(op, ast.Lt) else None
    return None


def does_something(body: list[ast.stmt]) -> bool:
    """Whether a branch could have changed what is returned, which logging alone, or giving the input back, cannot."""
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            return True
        if isinstance(node, ast.Return) and node.value is not None:
            nothing = isinstance(node.value, ast.Constant) and not node.value.value
            nothing = nothing or (isinstance(node.value, ast.List | ast.Tuple) and not node.value.elts)
            if not nothing and not isinstance(node.value, ast.Name | ast.Attribute):
                return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = source(node.value.func)
            if called.rpartition(".")[2] not in LOGS and not called.startswith(("log", "warnings.")):
                return True
    return False
