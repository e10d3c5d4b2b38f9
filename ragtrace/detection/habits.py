"""What is usual in a store, from a sample of its sessions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ragtrace.detection.session import Habits, Session
from ragtrace.detection.signals.quotes import quoted

SAMPLE = 500
"""Sessions that are looked at."""
ENOUGH = 40
"""Sessions from which anything can be called usual."""
SHARED = 0.25
"""Share of the sessions whose queries begin (or end) with the same words: then these are the app's words, not a user's.
Whoever sends that share of all sessions is taken for the app."""
_FEWEST, _MOST = 5, 80  # words that an app puts round a query
_TOKEN = re.compile(r"\S+\s*")


def usual(sessions: Sequence[Session]) -> Habits:
    """The habits that these sessions show; none where they are too few."""
    if len(sessions) < ENOUGH:
        return Habits(len(sessions))
    queries = [[r.query for r in session.requests if r.query] for session in sessions]
    least = max(2, SHARED * len(sessions))
    answers = [known for s in sessions for r in s.requests if (known := quoted(r)) is not None]
    counts = sorted(
        len({source.id for r in s.requests for source in r.sources or ()})
        for s in sessions
        if any(r.sources is not None for r in s.requests)
    )
    return Habits(
        sessions=len(sessions),
        before=tuple(_shared(map(_starts, queries), least)),
        after=tuple(_shared(map(_ends, queries), least)),
        quoting=sum(answers) / len(answers) if answers else None,
        documents=float(counts[int(0.99 * (len(counts) - 1))]) if len(counts) >= ENOUGH else None,
    )


def dumps(habits: Habits) -> str:
    """As JSON, for the database."""
    return json.dumps(asdict(habits))


def loads(text: str) -> Habits | None:
    """Back again; ``None`` for anything that is not what :func:`dumps` makes."""
    try:
        told: Any = json.loads(text)
        return Habits(**told | {key: tuple(map(str, told[key])) for key in ("before", "after")})
    except (ValueError, TypeError, KeyError):
        return None


def _starts(queries: Iterable[str]) -> set[str]:
    return {start for query in queries for start in _beginnings([t[0] for t in _TOKEN.finditer(query)])}


def _ends(queries: Iterable[str]) -> set[str]:
    return {
        "".join(tokens[-n:])
        for query in queries
        for tokens in [[t[0] for t in _TOKEN.finditer(query)]]
        for n in range(_FEWEST, min(_MOST, len(tokens) - 1) + 1)
    }


def _beginnings(tokens: list[str]) -> Iterable[str]:
    return ("".join(tokens[:n]) for n in range(_FEWEST, min(_MOST, len(tokens) - 1) + 1))


def _shared(of_session: Iterable[set[str]], least: float) -> list[str]:
    """What enough sessions share, the longest first."""
    counts = Counter(text for texts in of_session for text in texts)
    return sorted((text for text, count in counts.items() if count >= least), key=len, reverse=True)
