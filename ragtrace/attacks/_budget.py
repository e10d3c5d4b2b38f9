"""What attackers who adapt have in common: a budget of queries, numbered probes, and answers that may be anything."""

from __future__ import annotations

import logging
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar

from ragtrace.attacks._anchors import anchors
from ragtrace.errors import UsageError
from ragtrace.types import Probe

if TYPE_CHECKING:
    from ragtrace.attacks.base import Card
    from ragtrace.types import Corpus

_log = logging.getLogger("ragtrace")
Turns = Generator[Probe, "str | None", None]
Answered = Generator[Probe, "str | None", str]
LONGEST = 8_000
"""Characters of a query: what a helper model or an answer gave beyond them is not sent."""
_BULLET = re.compile(r"^\s*(?:[-*•]+|\(?\d{1,3}[.):])\s+")


class _SpentError(Exception):
    """The budget is used up."""


class Desk:
    """Where an attacker asks: numbers the probes and counts the budget down."""

    def __init__(self, attack: str, corpus: str, seed: int, budget: int) -> None:
        self._attack, self._corpus, self._seed, self._budget = attack, corpus, seed, budget
        self.sent = 0

    @property
    def left(self) -> int:
        """How many queries may still be sent."""
        return self._budget - self.sent

    def ask(self, query: str, **detail: Any) -> Answered:
        """Sends a query; what comes back is its answer's text, empty where there was none."""
        if self.left < 1:
            raise _SpentError
        self.sent += 1
        answer = yield Probe(
            probe_id=f"{self._attack}-{self._seed}-{self.sent:04d}",
            attack=self._attack,
            query=clean(query)[:LONGEST],
            corpus=self._corpus,
            seed=self._seed,
            detail=detail or None,
        )
        return clean(answer) if isinstance(answer, str) else ""


class BudgetedAttack(ABC):
    """Subclass it with a ``name``, a ``card`` and :meth:`attack`, and expose an instance as ``ATTACK``.

    :param budget: queries that may be sent; an attack may end before.
    """

    name: str
    card: ClassVar[Card]

    def __init__(self, budget: int) -> None:
        self.budget = whole(budget, f"{self.name} budget")

    @abstractmethod
    def attack(self, desk: Desk, corpus: Corpus, rng: random.Random) -> Turns:
        """Asks with ``yield from desk.ask(…)`` for as long as it has something to ask; the budget ends it."""

    def check(self) -> None:  # noqa: B027 (nothing to check is the rule)
        """Raises where the attack cannot be carried out here; override it where it needs more than an app."""

    def session(self, corpus: Corpus, seed: int) -> Turns:
        """See ``ragtrace.attacks.base.AdaptiveAttack``.

        :raises InputError: for a corpus without topics. :raises UsageError: what the attack needs is not installed.
        """
        self.check()
        anchors(corpus)  # found out now, and not in the middle of an audit
        return self._turns(Desk(self.name, corpus.name, seed, self.budget), corpus, seed)

    def _turns(self, desk: Desk, corpus: Corpus, seed: int) -> Turns:
        try:
            yield from self.attack(desk, corpus, random.Random(f"{self.name} {seed}"))  # noqa: S311 (seeded on purpose)
        except _SpentError:
            return


def whole(number: Any, what: str, least: int = 1) -> int:
    """``number`` if it is a whole number from ``least`` on.

    :raises UsageError: for anything else.
    """
    if type(number) is not int or number < least:
        raise UsageError(f"{what} is {number!r}; expected a whole number from {least} on")
    return number


def share(number: Any, what: str) -> float:
    """``number`` if it is one in [0, 1].

    :raises UsageError: for anything else.
    """
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise UsageError(f"{what} is {number!r}; expected a number from 0 to 1")
    return float(number)


def clean(text: str) -> str:
    """The text without what cannot be stored (lone surrogates)."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Helper:
    """A language model of the user's that may fail or return nonsense: then it has nothing to say, once with a warning.

    :raises UsageError: it cannot be called.
    """

    def __init__(self, attack: str, write: Any) -> None:
        if write is not None and not callable(write):
            raise UsageError(f"{attack}: {write!r} cannot be called; expected a function from a prompt to text")
        self._attack = attack
        self._write: Callable[[str], Any] | None = write
        self._warned = False

    def __bool__(self) -> bool:
        return self._write is not None

    def text(self, prompt: str) -> str:
        """What the model writes, stripped; empty where that is nothing usable."""
        if self._write is None:
            return ""
        try:
            said = self._write(prompt)
        except Exception as error:
            return self._useless(f"it raised {type(error).__name__}")
        if not isinstance(said, str):
            return self._useless(f"it returned {type(said).__name__}, not a str")
        return clean(said).strip()

    def lines(self, prompt: str, most: int) -> list[str]:
        """At most ``most`` different lines of it, without numbers and bullets."""
        found = (_BULLET.sub("", line).strip(" \t*_\"'") for line in self.text(prompt).splitlines())
        return list(dict.fromkeys(line for line in found if line))[:most]

    def _useless(self, why: str) -> str:
        if not self._warned:
            _log.warning("%s: the helper model is of no use (%s); going on without it", self._attack, why)
            self._warned = True
        return ""
