"""Anchors that move: each question takes up a phrase that an earlier answer brought in and no earlier question had.

The only sign that IKEA leaves, and one that every good conversation leaves too: weak on purpose, it never reaches the
threshold alone. Where an answer has no text, the retrieved documents stand for it.
"""

from __future__ import annotations

from itertools import pairwise

from ragtrace.detection.session import Habits, Session
from ragtrace.overlap import words

_FUNCTION = frozenset(
    "about above after also been before being both could does each from have having here into just know known like "
    "made many more most much name named only other over please same should some such tell than that their them then "
    "there these they this those through under used very want were what when where which while whom whose will with "
    "would year years your first last called".split()
)


class Anchors:
    """By pairs of neighbouring words that both mean something."""

    name = "anchors"
    weight = 0.05
    says = "take up a phrase that an earlier answer brought in"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a question with such a phrase. Nothing can be read of a session of one request."""
        if len(session.requests) < 2 or not any(r.query for r in session.requests):
            return None
        brought: set[tuple[str, str]] = set()
        asked: set[tuple[str, str]] = set()
        found, readable = [], False
        for request in session.requests:
            pairs = phrases(habits.users(request.query or ""))
            found.append(float(not brought.isdisjoint(pairs - asked)))
            asked |= pairs
            told = [request.answer] if request.answer else [s.content for s in request.sources or () if s.content]
            readable = readable or bool(told)
            for text in told:
                brought |= phrases(text)
        return found if readable else None


def phrases(text: str) -> set[tuple[str, str]]:
    """The pairs of neighbouring words of at least four letters; no function words of English."""
    said = [word if len(word) > 3 and word not in _FUNCTION else "" for word in words(text)]
    return {(one, other) for one, other in pairwise(said) if one and other}


SIGNAL = Anchors()
