"""Rising coverage of the index: a session that keeps bringing up new documents when others have long stopped.

Needs no text, only ids. What it cannot tell: a session of ten questions about ten things covers as much as any attack
of ten queries, so it speaks only of sessions far longer than usual; a diligent reader is one of those.
"""

from __future__ import annotations

from ragtrace.detection.session import Habits, Session

TIMES = 3.0
"""How many times what 99 of 100 sessions bring up at most."""


class Coverage:
    """By the number of different documents, against what is usual in this store."""

    name = "coverage"
    weight = 0.1
    says = "brought up still more documents, after far more than sessions usually bring up"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a request with new documents after the limit; ``None`` without documents, or where nothing is usual
        yet."""
        if habits.documents is None or all(request.sources is None for request in session.requests):
            return None
        seen: set[str] = set()
        found = []
        for request in session.requests:
            before = len(seen)
            seen.update(source.id for source in request.sources or ())
            found.append(float(len(seen) > before and len(seen) > TIMES * habits.documents))
        return found


SIGNAL = Coverage()
