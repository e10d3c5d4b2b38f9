"""Answers that quote a document at length: what an extraction that worked leaves behind. Also without any text.

In capture ``digest`` the run that an answer shares with a document was computed at the join point, so this is read
there too. What it cannot tell: whether anybody asked for it. Where an app quotes as a rule, it says nothing and is left
out.
"""

from __future__ import annotations

from ragtrace.detection.session import Habits, Request, Session, longest, runs
from ragtrace.overlap import words

LONG = 40
"""Words in a row."""
RULE = 0.1
"""Share of all answers from which quoting is how this app answers."""


class Quotes:
    """By the longest common run of words."""

    name = "quotes"
    weight = 0.12
    says = "were answered with a long quotation of a document"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a long quotation; ``None`` also where quoting is the rule."""
        found = [quoted(request) for request in session.requests]
        if all(one is None for one in found) or (habits.quoting or 0) >= RULE:
            return None
        return [float(bool(one)) for one in found]


def quoted(request: Request) -> bool | None:
    """Whether the answer quotes at length; ``None`` where that is not known."""
    if request.quoted is not None:
        return request.quoted >= LONG
    if request.answer is None or not any(source.content for source in request.sources or ()):
        return None
    if len(words(request.answer)) < LONG:
        return False
    return longest(request.answer, runs(request.answer), request.sources or ())[0] >= LONG


SIGNAL = Quotes()
