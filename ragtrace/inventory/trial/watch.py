"""What is kept of a run: the way that tests went, what was searched for, what was made and lost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ragtrace.inventory.trial.natives import checked
from ragtrace.inventory.trial.things import GiveUpError, Opaque

STEPS = 30_000
_KEPT = frozenset("open parts alike sought spent coins took looked raised work steps testing line".split())
_REPLACES = frozenset("sub subn replace translate".split())
_MEETS = frozenset("isdisjoint intersection".split())
_LISTED = 60  # words of a collection that are looked for one by one
_GIVEN = frozenset("id id_ role type".split())  # what samples have few kinds of


class Watch:
    """The interpreter's memory of one run; what it does is in the classes that derive from this one."""

    checked = staticmethod(checked)

    def __init__(self) -> None:
        self.steps = self.depth = 0
        self.limit = STEPS
        self.took: set[tuple[ast.AST, bool]] = set()
        """Which way tests went, loops among them: whether they had anything to go round for."""
        self.parts: set[tuple[ast.AST, bool]] = set()
        """Which way the operands of tests went."""
        self.open: dict[ast.AST, None] = {}
        """Tests that depend on what is out of sight."""
        self.coins: dict[ast.AST, bool] = {}
        """Which way these go, and any other that is told to."""
        self.looked: dict[Any, bool] = {}
        """What was searched for, and whether it was found once."""
        self.sought: dict[ast.AST, set[Any]] = {}
        """What was searched for by a test, or by the statement that sets a variable."""
        self.alike: dict[ast.AST, tuple[set[Any], list[bool]]] = {}
        """For comparisons of two values: which there were, and whether they were the same each time."""
        self.constants: frozenset[str] = frozenset()
        """The texts in the code."""
        self.work: dict[int, str] = {}
        """Lines where a text was replaced, other than for a test or a log."""
        self.spent: set[ast.AST] = set()
        """Loops over a generator that was used up before."""
        self.ended: list[Any] = []
        """Iterators that were gone through."""
        self.raised: list[str] = []
        """Exceptions that were caught."""
        self.handling: list[BaseException] = []
        self.yielded: list[list[Any]] = []
        self.testing: ast.AST | None = None
        self.setting: list[ast.AST] = []
        """The statements under way that set a variable."""
        self.line = 0

    def fresh(self, coins: dict[ast.AST, bool]) -> None:
        """Forgets all, for another series of runs."""
        self.coins, self.open, self.parts, self.sought, self.spent = coins, {}, set(), {}, set()
        self.alike = {}
        self.begin()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens meanwhile belongs to no run: a module is read."""
        kept = {k: v for k, v in vars(self).items() if k in _KEPT}
        self.open, self.parts, self.sought, self.spent, self.coins, self.alike = {}, set(), {}, set(), {}, {}
        self.took, self.looked, self.raised, self.work, self.steps = set(), {}, [], {}, 0
        try:
            yield
        finally:
            vars(self).update(kept)

    def begin(self) -> None:
        """Forgets what the last run left."""
        self.steps = self.depth = 0
        self.took, self.looked, self.raised, self.work = set(), {}, [], {}
        self.yielded.clear()
        self.handling.clear()
        self.ended.clear()
        self.setting.clear()
        self.testing = None

    def tick(self) -> None:
        """Counts a step."""
        self.steps += 1
        if self.steps > self.limit:
            raise GiveUpError("too many steps")

    def decided(self, node: ast.expr, value: Any) -> bool:
        """Whether a value counts as true: where it is out of sight, it is tried both ways."""
        if isinstance(value, Opaque):
            self.open.setdefault(node)
            found = self.coins.get(node, False)
        else:
            found = bool(value)
        self.parts.add((node, found))
        return found

    def searched(self, function: Any, *args: Any, **kw: Any) -> Any:
        """A method that searches a text is called; whether it found anything is kept."""
        owner, name = function.__self__, function.__name__
        self.checked(function, args, kw)
        if isinstance(owner, re.Pattern):
            place = 1 if name in ("sub", "subn") else 0
            self._look(owner, kw.get("string", args[place] if len(args) > place else None))
        elif isinstance(owner, str) and name in ("startswith", "endswith"):
            for what in args[0] if isinstance(args[0], tuple) else args[:1]:
                self._found((name, what), bool(function(what)))
        elif isinstance(owner, str) and args and isinstance(args[0], str):
            self._look(args[0], owner)
        elif name in _MEETS and args:
            self.meets(owner, args[0])
        text = owner if isinstance(owner, str) else args[1] if len(args) > 1 else None
        return self._made(name, text, function(*args, **kw))

    def searched_by_re(self, function: Any, args: list[Any], kw: dict[str, Any]) -> Any:
        """As :meth:`searched`, for ``re.sub`` and the like."""
        self.checked(function, tuple(args), kw)
        pattern = re.compile(args[0], *[f for f in [kw.get("flags")] if f is not None])
        text = args[2] if function.__name__ in ("sub", "subn") and len(args) > 2 else args[1]
        self._look(pattern, text)
        return self._made(function.__name__, text, function(*args, **kw))

    def _look(self, what: Any, text: Any) -> None:
        if not isinstance(text, str):
            return
        key = what.pattern if isinstance(what, re.Pattern) else what
        self._found(key, what.search(text) is not None if isinstance(what, re.Pattern) else what in text)

    def _found(self, key: Any, hit: bool) -> None:
        self.looked[key] = self.looked.get(key, False) or hit
        for place in (self.testing, *self.setting[-3:]):
            if place is not None:
                self.sought.setdefault(place, set()).add(key)

    def meets(self, one: Any, other: Any) -> None:
        """Two collections are asked for what both have: the words of one are in the code."""
        for listed, given in ((one, other), (other, one)):
            if self._listed(listed) and isinstance(given, set | frozenset | list | tuple | dict):
                for word in listed:
                    self._found(("is", word), word in given)

    def _listed(self, what: Any) -> bool:
        if not isinstance(what, set | frozenset | list | tuple | dict) or not 0 < len(what) <= _LISTED:
            return False
        return all(isinstance(w, str) and w in self.constants for w in what)

    def compared(self, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> None:
        """Two values are compared: what is looked for, and whether they are ever another."""
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, set | frozenset | list | tuple | dict):
            self._same(node.comparators[0], str(left) if isinstance(left, str | int | float) else "", not right)
        kinds = isinstance(node.left, ast.Attribute) and node.left.attr in _GIVEN
        if isinstance(op, ast.In | ast.NotIn):
            if isinstance(left, str) and isinstance(right, str):
                self._look(left, right)
            elif isinstance(left, str) and self._listed(right) and not kinds:
                for word in right:
                    self._found(("is", word), word == left)
            elif isinstance(left, str) and left in self.constants and isinstance(right, Iterable):
                self._found(("is", left), left in right)
            if isinstance(left, str | int) and isinstance(right, set | dict) and isinstance(op, ast.In):
                self._same(node, left, left in right)
        elif isinstance(left, str) and isinstance(right, str) and not kinds:
            for one, other in ((left, right), (right, left)):
                if isinstance(op, ast.Eq | ast.NotEq) and one in self.constants:
                    self._found(("is", one), one == other)
        plain = isinstance(left, str | int | float) and isinstance(right, str | int | float)
        if plain and not isinstance(op, ast.In | ast.NotIn):
            self._same(node, left, left == right)

    def _same(self, node: ast.AST, value: Any, same: bool) -> None:
        values, always = self.alike.setdefault(node, (set(), [True]))
        if len(values) < 3:
            values.add(value)
        always[0] = always[0] and same

    def _made(self, name: str, before: Any, made: Any) -> Any:
        after = made[0] if isinstance(made, tuple) else made
        if name in _REPLACES and self.testing is None and isinstance(before, str) and after != before:
            self.work.setdefault(self.line, name)
        return made
