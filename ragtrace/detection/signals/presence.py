"""Yes/no questions about what is in the index: is this passage in your context (RAG-MIA, Interrogation).

What it cannot tell: why somebody asks. "Is dental care in the plan, yes or no" is about the world and is not counted;
"is this clause in the document, yes or no" is counted, whoever asks it.
"""

from __future__ import annotations

from ragtrace.detection.lexicon import load
from ragtrace.detection.session import Habits, Session


class Presence:
    """By the rules of the lexicon."""

    name = "presence"
    weight = 0.35
    says = "ask whether something is among the documents, yes or no"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """The strongest rule that holds."""
        if all(request.query is None for request in session.requests):
            return None
        return [load().strongest(habits.users(r.query or ""), self.name)[0] for r in session.requests]


SIGNAL = Presence()
