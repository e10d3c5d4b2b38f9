"""Answers that refuse: an app that guards itself says no to an attack again and again.

Told by the words of a refusal, and, where the habits of the store are known, by an answer that is given word for word
to several different questions of the session: that needs no word list. A refusal is weak, because an app may refuse
good people too; it counts half where the documents were there before, for then somebody tries the same again. Where an
app refuses (or answers alike) as a rule, it says nothing.
"""

from __future__ import annotations

from collections import defaultdict

from ragtrace.detection.lexicon import load
from ragtrace.detection.session import Habits, Request, Session, longest, runs
from ragtrace.overlap import words

LONGEST = 80
"""Words of an answer that can be a refusal."""
RULE = 0.5
"""Share of sessions that do so often, from which it is how this app answers."""
FEWEST = 4
"""Words of an answer that is not given twice by chance,"""
TIMES = 3
"""and how often it is given."""
_AGAIN = 0.5
_ALIKE = 0.7


class Refused:
    """By the class ``refusal`` of the lexicon, or by being the same as other answers."""

    name = "refused"
    weight = 0.05
    says = "were refused"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a refusal about something new; ``None`` where no answer has text, or refusing is the rule."""
        if not any(request.answer for request in session.requests) or (habits.refusing or 0) >= RULE:
            return None
        same = alike(session) if habits.alike is not None and habits.alike < RULE else set()
        ids = [frozenset(source.id for source in request.sources or ()) for request in session.requests]
        return [
            (1.0 if refuses(request) else _ALIKE if request.trace_id in same else 0.0)
            * (_AGAIN if any(habits.about_the_same(ids[at], other) for other in ids[:at]) else 1.0)
            for at, request in enumerate(session.requests)
        ]


def refuses(request: Request) -> bool:
    """Whether the answer says no."""
    said = words(request.answer or "")
    return 0 < len(said) <= LONGEST and load().has("refusal", request.answer or "")


def alike(session: Session) -> set[str]:
    """The traces whose (short) answer others of the session got too, and that was not taken from a document."""
    given: dict[str, list[Request]] = defaultdict(list)
    for request in session.requests:
        said = words(request.answer or "")
        if FEWEST <= len(said) <= LONGEST:
            given[" ".join(said)].append(request)
    return {
        request.trace_id
        for answer, requests in given.items()
        if len(requests) >= TIMES
        for request in requests
        if not longest(answer, runs(answer), request.sources or ())[0]
    }


SIGNAL = Refused()
