"""Queries that hold a long piece of a document retrieved for them: who has the text asks whether you have it too.

The sign of membership probing (S2MIA, RAG-MIA). What it cannot tell: a user who pastes a paragraph to have it
explained, or the title of a paper, from one who tests. A probe of a document that is not in the index shows nothing
here.
"""

from __future__ import annotations

from ragtrace.detection.session import Habits, Request, Session
from ragtrace.overlap import words

LONG = 25
"""Words in a row that make a copy (few titles are as long),"""
SHORTER = 12
"""or these, where they are half of the document."""


class Copies:
    """By the longest common run of words."""

    name = "copies"
    weight = 0.25
    says = "hold a long piece of a document that they retrieved"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a copy. Read where one request has both its text and that of its documents."""
        if not any(r.query is not None and any(s.content for s in r.sources or ()) for r in session.requests):
            return None
        return [float(_copies(request)) for request in session.requests]


def _copies(request: Request) -> bool:
    run, source = request.longest_in(request.sources or ())
    if run >= LONG or source is None:
        return run >= LONG
    return run >= SHORTER and run * 2 >= len(words(source.content or ""))


SIGNAL = Copies()
