"""Queries that are nearly the same as another of the session: one template, filled again and again.

Weak by itself, on purpose: people compare ("what is the dose of … for a child") and jobs are run, so that a session in
which every query is like another does not reach the threshold by this alone. Where both queries brought up the same
documents it counts half: that is somebody who words one question anew, not one who goes through the index.
"""

from __future__ import annotations

from ragtrace.detection.session import Habits, Session, runs
from ragtrace.overlap import words

ALIKE = 0.6
"""Share of different words that two queries have in common."""
FEWEST = 4
"""Words of a query that can be like another."""
NEAR = 50
"""Requests before and behind that a request is compared with."""
_REWORDED = 0.5


class Repeats:
    """By shared runs of words, or by the share of common words."""

    name = "repeats"
    weight = 0.05
    says = "are worded nearly like another request of the session"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a query like another about something else. Nothing can be read of a session with fewer than two
        queries."""
        texts = [habits.users(request.query or "") for request in session.requests]
        if sum(map(bool, texts)) < 2:
            return None
        told = [(frozenset(words(text)), runs(text)) for text in texts]
        ids = [frozenset(source.id for source in request.sources or ()) for request in session.requests]
        found = [0.0] * len(told)
        for one, (said, its_runs) in enumerate(told):
            for other in range(one + 1, min(one + 1 + NEAR, len(told))):
                theirs, their_runs = told[other]
                if min(found[one], found[other]) == 1 or min(len(said), len(theirs)) < FEWEST:
                    continue
                if not its_runs.isdisjoint(their_runs) or len(said & theirs) >= ALIKE * len(said | theirs):
                    strength = _REWORDED if habits.about_the_same(ids[one], ids[other]) else 1.0
                    found[one], found[other] = max(found[one], strength), max(found[other], strength)
        return found


SIGNAL = Repeats()
