"""Queries made of text that other requests of the session brought up: RAG-Thief continues each chunk at its ends.

Other requests, not earlier ones: so nothing hangs on the clocks of several workers. Words that stand in many queries of
the session are left out: they are what it is about (a long title), or a template. What it cannot tell: a user who
quotes an answer to ask about it; and continuations that a language model words anew leave no run to find.
"""

from __future__ import annotations

from collections import Counter

from ragtrace.detection.session import Habits, Session, Source, longest

OFTEN = 3
"""Queries that hold a run of words, from which it belongs to none of them."""


class Continues:
    """By runs of words shared with the documents and answers of other requests."""

    name = "continues"
    weight = 0.25
    says = "hold text of documents or answers that other requests of the session brought up"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 where there is such a run. Nothing can be read of a session of one request."""
        brought = [[*(r.sources or ()), *([Source("", r.answer)] if r.answer else ())] for r in session.requests]
        readable = any(r.query for r in session.requests) and any(s.content for b in brought for s in b)
        if len(session.requests) < 2 or not readable:
            return None
        counts = Counter(run for request in session.requests for run in request.runs)
        own = [frozenset(run for run in request.runs if counts[run] < OFTEN) for request in session.requests]
        return [
            float(any(longest(request.query or "", own[place], b)[0] for at, b in enumerate(brought) if at != place))
            for place, request in enumerate(session.requests)
        ]


SIGNAL = Continues()
