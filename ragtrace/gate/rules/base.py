"""What a rule is: a frozen dataclass whose fields are the keys of its table in a policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ragtrace.errors import UsageError
from ragtrace.gate.outcomes import Finding

if TYPE_CHECKING:
    import duckdb

VERDICTS = (
    "active", "dormant", "undeclared", "unknown", "not_run", "pass_through", "silent_stub", "error", "bypassed",
)  # fmt: skip
"""The verdicts from best to worst: the order in which one got worse than in a baseline."""


@dataclass(frozen=True, kw_only=True)
class Excuse:
    """An exception: this defense (at this hook; without one, at all) may do what the rule forbids, for a reason."""

    defense: str
    reason: str
    hook: str | None = None

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise UsageError(f"the exception for {self.defense!r} has an empty reason; say why it is excused")

    def covers(self, defense: str | None, hook: str | None) -> bool:
        """Whether it speaks of this one."""
        return defense == self.defense and self.hook in (None, hook)


class Evidence:
    """What a rule may look at.

    :param baseline: an earlier database to compare with.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, baseline: duckdb.DuckDBPyConnection | None = None) -> None:
        self.db, self.baseline = db, baseline
        self._answers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}

    def rows(self, query: str, *parameters: Any, of_baseline: bool = False) -> list[dict[str, Any]]:
        """The answer to a question, by column name. Asked once, however many rules ask it."""
        key = (query, parameters, of_baseline)
        if key not in self._answers:
            source = self.baseline if of_baseline else self.db
            assert source is not None
            answer = source.execute(query, list(parameters))
            names = [column[0] for column in answer.description or ()]
            self._answers[key] = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        return self._answers[key]

    def arms(self, wanted: Sequence[str] | None) -> tuple[list[str], list[Finding]]:
        """The arms to judge, and a finding for each that is not there or where there is none at all.

        Without a wish: every arm but the undefended one and the controls, which leak on purpose.
        """
        there = [r["arm"] for r in self.rows("SELECT DISTINCT arm FROM probes WHERE arm IS NOT NULL ORDER BY arm")]
        if wanted is None:
            found = [arm for arm in there if arm not in _undefended()]
            if found:
                return found, []
            why = f'the only arms are {", ".join(there)}, which leak on purpose; say arms = ["…"] to judge them'
            return [], [no_data("arms", why if there else NO_PROBES)]
        missing = [arm for arm in wanted if arm not in there]
        has = f"it has {', '.join(there)}" if there else NO_PROBES
        return [arm for arm in wanted if arm in there], [
            no_data(arm, f"there is no arm {arm!r}; {has}") for arm in missing
        ]


_FEW = 30
NO_PROBES = "there are no probes in this database, so nothing was attacked; run `ragtrace audit` into it"


def _undefended() -> tuple[str, ...]:
    from ragtrace.controls import CONTROLS, REFERENCE
    from ragtrace.reading.judge import BASELINE

    return BASELINE, *(arm.name for arm in (*CONTROLS, *REFERENCE))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Base of all rules. Fields may be str, int, float, bool, a ``Literal``, a tuple of these or of dataclasses.

    The first line of the docstring says what the rule asks for. ``__post_init__`` raises :class:`UsageError` for values
    that cannot be meant.

    :param no_data: whether what cannot be judged is a breach; the policy's own ``no_data`` where it is not given.
    """

    name: ClassVar[str]
    no_data: Literal["breach", "pass"] | None = None

    @property
    def about(self) -> str:
        """What it asks for, in a sentence."""
        return (type(self).__doc__ or self.name).strip().splitlines()[0]

    def judge(self, evidence: Evidence) -> Iterable[Finding]:
        """What is wrong, and what could not be judged; nothing where all is well."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class DefenseRule(Rule):
    """Base of rules on defenses and hooks, which may have exceptions."""

    exceptions: tuple[Excuse, ...] = ()

    def excused(self, finding: Finding, defense: str | None, hook: str | None) -> Finding:
        """The finding, excused where an exception speaks of this defense and hook."""
        for excuse in self.exceptions:
            if excuse.covers(defense, hook):
                return replace(finding, kind="excused", reason=excuse.reason)
        return finding


def no_data(subject: str, message: str) -> Finding:
    """A finding on what cannot be judged."""
    return Finding(subject, f"no data: {message}", "no data")


def subject(*parts: str | None) -> str:
    """Its name in reports."""
    return " · ".join(part for part in parts if part)


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the right one, or all there are."""
    names = sorted(known)
    near = get_close_matches(str(word), names, 3)
    if near:
        return f"did you mean {' or '.join(map(repr, near[:1] if len(names) <= _FEW else near))}?"
    return f"expected one of {', '.join(names) if len(names) <= _FEW else f'{len(names)} names'}"


def known(words: Iterable[str], names: Iterable[str], what: str) -> None:
    """Raises :class:`UsageError` for the first word that is none of the names."""
    names = tuple(names)
    for word in words:
        if word not in names:
            raise UsageError(f"{what} {word!r} is not known; {nearest(word, names)}")
