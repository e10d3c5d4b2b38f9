"""What is usual in a store, from a sample of its sessions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from ragtrace.detection.session import Habits, Session
from ragtrace.detection.signals.quotes import quoted
from ragtrace.detection.signals.refused import alike, refuses

SAMPLE = 500
"""Sessions that are looked at,"""
REQUESTS = 20
"""and requests of each: the latest."""
ENOUGH = 40
"""Sessions from which anything can be called usual."""
SHARED = 0.5
"""More than this share of the sessions begin (or end) most of their queries with the same words: then these are the
app's words, not a user's. Whoever sends that share of all sessions is taken for the app."""
OFTEN = 0.2
"""Share of the answers of a session from which the session counts as quoting, refusing, answering alike. Sessions are
counted, not answers: so attacks must be half of all traffic before they hide behind what they have made usual."""
_PRUNED = 50  # sessions after which what only one of them has said is forgotten
_FEWEST, _MOST = 5, 80  # words that an app puts round a query
_TOKEN = re.compile(r"\S+\s*")


def usual(sessions: Iterable[Session]) -> Habits:
    """The habits that these sessions show; none where they are too few. Each is read and let go."""
    count = 0
    starts: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    quoting: Counter[bool] = Counter()
    refusing: Counter[bool] = Counter()
    same: Counter[bool] = Counter()
    documents = []
    for session in sessions:
        count += 1
        queries = [request.query for request in session.requests if request.query]
        starts.update(_most(queries, _starts))
        ends.update(_most(queries, _ends))
        answered, others = [request for request in session.requests if request.answer], alike(session)
        _often(quoting, [known for request in session.requests if (known := quoted(request)) is not None])
        _often(refusing, [refuses(request) for request in answered])
        _often(same, [request.trace_id in others for request in answered])
        if any(request.sources is not None for request in session.requests):
            documents.append(len({source.id for request in session.requests for source in request.sources or ()}))
        if count % _PRUNED == 0:  # what the app itself says is met early and often
            starts, ends = (Counter({k: n for k, n in c.items() if n > 1}) for c in (starts, ends))
    if count < ENOUGH:
        return Habits(count)
    documents.sort()
    return Habits(
        sessions=count,
        before=_shared(starts, count),
        after=_shared(ends, count),
        quoting=_share(quoting),
        refusing=_share(refusing),
        alike=_share(same),
        documents=float(documents[int(0.99 * (len(documents) - 1))]) if len(documents) >= ENOUGH else None,
    )


def _often(sessions: Counter[bool], answers: list[bool]) -> None:
    if answers:
        sessions[sum(answers) >= OFTEN * len(answers)] += 1


def _share(values: Counter[bool]) -> float | None:
    return values[True] / values.total() if values else None


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


def _most(queries: list[str], of: Callable[[list[str]], Iterable[str]]) -> list[str]:
    """The beginnings (or ends) that at least half of the queries have."""
    counts = Counter(text for query in queries for text in of([t[0] for t in _TOKEN.finditer(query)]))
    return [text for text, count in counts.items() if 2 * count >= len(queries)]


def _starts(tokens: list[str]) -> Iterable[str]:
    return ("".join(tokens[:n]) for n in range(_FEWEST, min(_MOST, len(tokens) - 1) + 1))


def _ends(tokens: list[str]) -> Iterable[str]:
    return ("".join(tokens[-n:]) for n in range(_FEWEST, min(_MOST, len(tokens) - 1) + 1))


def _shared(counts: Counter[str], sessions: int) -> tuple[str, ...]:
    """What enough sessions share, the longest first."""
    enough = (text for text, count in counts.items() if count > SHARED * sessions)
    return tuple(sorted(enough, key=len, reverse=True))
