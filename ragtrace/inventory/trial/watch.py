"""What is kept of a run: the way that tests went, what was searched for, what was made and lost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragtrace.inventory.trial.natives import checked
from ragtrace.inventory.trial.things import GiveUpError, Opaque

STEPS = 30_000
_KEPT = frozenset("open parts sought spent coins took looked raised work steps testing line".split())
_REPLACES = frozenset("sub subn replace translate".split())


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
        """What was searched for by a test."""
        self.work: dict[int, str] = {}
        """Lines where a text was replaced, other than for a test or a log."""
        self.spent: set[ast.AST] = set()
        """Loops over a generator that was used up before."""
        self.raised: list[str] = []
        """Exceptions that were caught."""
        self.handling: list[BaseException] = []
        self.yielded: list[list[Any]] = []
        self.testing: ast.AST | None = None
        self.line = 0

    def fresh(self, coins: dict[ast.AST, bool]) -> None:
        """Forgets all, for another series of runs."""
        self.coins, self.open, self.parts, self.sought, self.spent = coins, {}, set(), {}, set()
        self.begin()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens meanwhile belongs to no run: a module is read."""
        kept = {k: v for k, v in vars(self).items() if k in _KEPT}
        self.open, self.parts, self.sought, self.spent, self.coins = {}, set(), {}, set(), {}
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
        elif isinstance(owner, str) and args and isinstance(args[0], str):
            self._look(args[0], owner)
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
        hit = what.search(text) is not None if isinstance(what, re.Pattern) else what in text
        self.looked[key] = self.looked.get(key, False) or hit
        if self.testing is not None:
            self.sought.setdefault(self.testing, set()).add(key)

    def _made(self, name: str, before: Any, made: Any) -> Any:
        after = made[0] if isinstance(made, tuple) else made
        if name in _REPLACES and self.testing is None and isinstance(before, str) and after != before:
            self.work.setdefault(self.line, name)
        return made
