"""What a signal is."""

from __future__ import annotations

from typing import Protocol

from ragtrace.detection.session import Habits, Session


class Signal(Protocol):
    """Something that a request of an attack shows more often than others do.

    ``weight`` is how likely one request that shows it fully belongs to an attack, nothing else being known; ``says`` is
    the reason in words, after a count of requests ("3 of 10 requests …").
    """

    name: str
    weight: float
    says: str

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """For each request of the session, in [0, 1]; ``None`` where this cannot be read from what is stored."""
        ...
