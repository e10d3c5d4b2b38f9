"""From the signals of a session to its score.

A request is as suspicious as its signals together make it, a session as its worst ten requests in a row: an attack of
ten queries is not thinned out by a long day of ordinary questions. Weights count as probabilities of independent
witnesses: two requests of the strongest kind reach the threshold, one does not, and ten that are merely worded alike,
or refused, or take up what answers said, do not either; ten that are one template *and* refused do, whatever they say.

The same request sent again and again is one request, for retries and jobs do so; except where it commands the model or
asks what is in the index: then, from the third time on, each time counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ragtrace.detection.session import Habits, Request, Session
from ragtrace.detection.signals import load

WINDOW = 10
"""Requests in a row that are judged together."""
THRESHOLD = 0.5
"""Score from which a session counts as suspicious. Fixed before anything was measured; `tests/benchmarks/detection.py`
says what it gives."""
INSISTING = 3
"""Times that the same command is sent, from which that is no retry."""
_COMMANDS, _PLAINLY = ("instructions", "presence"), 0.4  # such requests, and how strong they must be
_SHOWN = 0.1  # strength from which a request counts as showing a signal


@dataclass(frozen=True)
class Judgement:
    """``score`` is ``None`` where no signal could be read; ``signals`` has ``None`` for those that could not."""

    session: str
    score: float | None
    reasons: list[str]
    signals: dict[str, int | None]
    requests: int
    trace_id: str | None
    """The request that looks most like an attack."""


def judge(session: Session, habits: Habits) -> Judgement:
    """How much a session looks like an attack, and why."""
    signals = load()
    read = {name: signal.strengths(session, habits) for name, signal in signals.items()}
    found = {name: values for name, values in read.items() if values is not None}
    counts = {name: None if values is None else _shown(values) for name, values in read.items()}
    total = len(session.requests)
    if not found or not total:
        return Judgement(session.name, None, [], counts, total, None)
    weighted = {n: [signals[n].weight * strength for strength in values] for n, values in found.items()}
    plain = [max((found[n][at] for n in _COMMANDS if n in found), default=0) >= _PLAINLY for at in range(total)]
    again = [_again(request) if plain[at] else 0 for at, request in enumerate(session.requests)]
    each = [
        1 - prod((1 - w[at]) ** (1 + again[at] * (n in _COMMANDS)) for n, w in weighted.items()) for at in range(total)
    ]
    starts = range(max(1, total - WINDOW + 1))
    start = max(starts, key=lambda at: 1 - prod(1 - p for p in each[at : at + WINDOW]))
    window = slice(start, start + WINDOW)
    score = 1 - prod(1 - p for p in each[window])
    of = len(each[window])
    weights = {name: _weight(values[window]) for name, values in weighted.items()}
    reasons = [
        f"{_shown(found[name][window])} of {of} requests {signals[name].says}"
        for name in sorted(weights, key=lambda name: (-weights[name], name))
        if _shown(found[name][window])
    ]
    if insisted := [1 + times for times in again[window] if times]:
        reasons.insert(0, f"{len(insisted)} of {of} requests were sent again and again, up to {max(insisted)} times")
    worst = max(range(total), key=lambda at: each[at])
    return Judgement(session.name, score, reasons, counts, total, session.requests[worst].trace_id if score else None)


def _shown(values: list[float]) -> int:
    return sum(value >= _SHOWN for value in values)


def _again(request: Request) -> int:
    """Times that count beyond the first."""
    return min(request.times, WINDOW) - 1 if request.times >= INSISTING else 0


def _weight(values: list[float]) -> float:
    return 1 - prod(1 - value for value in values)
