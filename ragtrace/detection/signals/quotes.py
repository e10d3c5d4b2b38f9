"""Answers that quote a document at length: what an extraction that worked leaves behind. Also without any text.

In capture ``digest`` the run that an answer shares with a document was computed at the join point, so this is read
there too. A document that an earlier answer of the session has quoted counts no more, where the index is known to be
large enough: who asks again is answered again.
What it cannot tell: whether anybody asked for it. Where an app quotes as a rule, it says nothing and is left out.
"""

from __future__ import annotations

from ragtrace.detection.session import Habits, Request, Session, longest, runs
from ragtrace.overlap import words

LONG = 40
"""Words in a row."""
RULE = 0.5
"""Share of sessions that do so often, from which it is how this app answers."""


class Quotes:
    """By the longest common run of words."""

    name = "quotes"
    weight = 0.1
    says = "were answered with a long quotation of a document"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a long quotation of something new; ``None`` also where quoting is the rule."""
        found = [_quoted(request) for request in session.requests]
        if all(one is None for one in found) or (habits.quoting or 0) >= RULE:
            return None
        seen: set[str] = set()
        strengths = []
        for one in ((one or set()) for one in found):
            strengths.append(float(bool(one) and not (one <= seen and habits.varied(len(one)))))
            seen |= one
        return strengths


def quoted(request: Request) -> bool | None:
    """Whether the answer quotes at length; ``None`` where that is not known."""
    found = _quoted(request)
    return None if found is None else bool(found)


def _quoted(request: Request) -> set[str] | None:
    """The documents that the answer quotes at length."""
    if request.quoted is not None:
        return {id for id, run in request.quoted.items() if run >= LONG}
    sources = [source for source in request.sources or () if source.content]
    if request.answer is None or not sources:
        return None
    if len(words(request.answer)) < LONG:
        return set()
    its_runs = runs(request.answer)
    return {source.id for source in sources if longest(request.answer, its_runs, [source])[0] >= LONG}


SIGNAL = Quotes()
