"""The data flow through loops: the body is followed once, for a typical item."""

from __future__ import annotations

import ast

from ragtrace.inventory.assignments import NOTHING, Outcome
from ragtrace.inventory.branches import Branches
from ragtrace.inventory.members import UNROLLED, source
from ragtrace.inventory.values import Condition, Const, Func, Made, Partial, Ref, State, Sym, Tup, Vague, Value, judge


class Loops(Branches):
    """Other statements are in :class:`~ragtrace.inventory.flow.Flow`."""

    fed: dict[int, dict[str, set[str]]]

    def block(self, body: list[ast.stmt], state: State) -> list[Outcome]:
        """Statements one after the other. See :class:`~ragtrace.inventory.flow.Flow`."""
        raise NotImplementedError

    def _For(self, node: ast.For | ast.AsyncFor, state: State) -> list[Outcome]:
        found: list[Outcome] = []
        for iterable, s in self.eval(node.iter, state):
            nothing = isinstance(iterable, Tup) and not iterable.items
            if nothing or (isinstance(iterable, Const) and iterable.value == ()):
                s.unreachable += ((node.lineno, f"`{source(node.iter)}` is always empty"),)
                found += self.block(node.orelse, s)
                continue
            if (items := self._functions(iterable, s)) is not None:
                found += self._one_by_one(node, items, s)
                continue
            if self.empty_by_default(node.iter):
                none, text = s.fork(), f"{source(node.iter)} holds anything"
                none.conditions += (Condition(text, False, node.lineno),)
                s.conditions += (Condition(text, True, node.lineno),)
                found += self.block(node.orelse, none)
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
        feeds = self._feeds(body)
        for name in feeds:
            seen, pending = {name}, set(feeds[name])
            while pending:
                seen |= pending
                pending = {f for n in pending for f in feeds.get(n, ())} - seen
            value = state.env.get(name)
            moved = [n for n in seen - {name} if n in before and before[n] != (now := state.env[n], _dirt(now, state))]
            if moved and isinstance(value, Ref) and judge(value, state)[0] == "same":
                state.bind(name, Vague(f"`{name}` may hold what `{moved[0]}` was the round before", body[0].lineno))

    def _functions(self, iterable: Value, state: State) -> list[Value] | None:
        """The items of a list of functions: what each does is known, so the loop is followed item by item."""
        items: list[Value] = []
        if isinstance(iterable, Tup) and not iterable.each:
            items = list(iterable.items)
        elif isinstance(iterable, Ref) and state.cells[iterable.cell].kind == "built" and state.dirt(iterable) is None:
            items = [v for v, loop in state.cells[iterable.cell].items if loop is None]
        known = items and len(items) <= UNROLLED and any(isinstance(v, Func | Partial) for v in items)
        return items if known else None

    def _one_by_one(self, node: ast.For | ast.AsyncFor, items: list[Value], state: State) -> list[Outcome]:
        running, found = [state], list[Outcome]()
        for item in items:
            following: list[State] = []
            for s in running:
                self.assign(node.target, item, s)
                for outcome in self.block(node.body, s):
                    if outcome[0] in ("next", "continue"):
                        following.append(outcome[1])
                    else:
                        found.append(("next", outcome[1], NOTHING, 0) if outcome[0] == "break" else outcome)
            running = self.sample(following)
        return found + [o for s in running for o in self.block(node.orelse, s)]

    def _feeds(self, body: list[ast.stmt]) -> dict[str, set[str]]:
        """For each variable that a loop's body sets, the names it is made of."""
        key = id(body[0])
        if key not in self.fed:
            feeds: dict[str, set[str]] = {}
            for node in (n for statement in body for n in ast.walk(statement)):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
                    for stored in (n.id for n in names if isinstance(n.ctx, ast.Store)):
                        feeds.setdefault(stored, set()).update(n.id for n in names if isinstance(n.ctx, ast.Load))
            self.fed[key] = feeds
        return self.fed[key]

    def _havoc(self, body: list[ast.stmt], state: State) -> None:
        """Forgets constants that the loop's body sets: they hold in the first round only."""
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                state.forget(node.id)
                held = state.env.get(node.id)
                if isinstance(held, Const):  # a text that grows from nothing may become the input again
                    grows = held.value == ""
                    state.env[node.id] = Made("weak", node.id, node.lineno) if grows else Sym(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                state.attrs.pop(node.attr, None)
                state.forget("self")


def _dirt(value: Value, state: State) -> object:
    return state.dirt(value) if isinstance(value, Ref) else None
