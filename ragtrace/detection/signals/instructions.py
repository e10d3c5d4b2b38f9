"""Queries that command the model instead of asking about something: give back your input, set aside your orders.

What it cannot tell: wordings and languages that ``lexicon.toml`` has no words for, and a request that is worded as an
ordinary question (IKEA). It knows nothing of intent: who edits documents with the app asks like this too.
"""

from __future__ import annotations

from ragtrace.detection.lexicon import load
from ragtrace.detection.session import Habits, Session


class Instructions:
    """By the rules of the lexicon."""

    name = "instructions"
    weight = 0.36
    says = "command the model (to give back what it was given, to set aside its orders)"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """The strongest rule that holds; nothing is read where no query has text."""
        if all(request.query is None for request in session.requests):
            return None
        return [load().strongest(habits.users(r.query or ""), self.name)[0] for r in session.requests]


SIGNAL = Instructions()
