"""Queries that hold a long piece of a document retrieved for them: who has the text asks whether you have it too.

The sign of membership probing (S2MIA, RAG-MIA). A piece that stops in the middle of a sentence weighs more than one of
whole sentences: that is a text cut by a program, not a paragraph that somebody wants explained. What it cannot tell: a
user who pastes many paragraphs from one who tests. A probe of a document that is not in the index shows nothing here.
"""

from __future__ import annotations

import re

from ragtrace.detection.session import RUN, Habits, Request, Session
from ragtrace.overlap import LIMIT, words

LONG = 25
"""Words in a row that make a copy (few titles are as long),"""
SHORTER = 12
"""or these, where they are half of the document."""
_WHOLE = 0.6  # strength of a copy of whole sentences
_WORD = re.compile(r"\w+")
_STOP = re.compile(r"[.!?:;\n\u3002\uff01\uff1f]")


class Copies:
    """By the longest common run of words."""

    name = "copies"
    weight = 0.25
    says = "hold a long piece of a document that they retrieved"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for a copy that is cut, less for whole sentences. Read where one request has both its text and that of its
        documents."""
        if not any(r.query is not None and any(s.content for s in r.sources or ()) for r in session.requests):
            return None
        return [_copies(request) for request in session.requests]


def _copies(request: Request) -> float:
    run, source = request.longest_in(request.sources or ())
    if source is None or source.content is None or run < SHORTER:
        return 0.0
    if run < LONG and run * 2 < len(words(source.content)):
        return 0.0
    return 1.0 if cut(request.query or "", source.content) else _WHOLE


def cut(query: str, content: str) -> bool:
    """Whether the longest piece of ``content`` in ``query`` ends where the content goes on in the same sentence."""
    said, told = (
        [(m[0], m.start(), m.end()) for m in _WORD.finditer(text[:LIMIT].lower())] for text in (query, content)
    )
    ours, theirs = [word for word, *_ in said], [word for word, *_ in told]
    places: dict[tuple[str, ...], int] = {}
    for at in range(len(theirs) - RUN + 1):
        places.setdefault(tuple(theirs[at : at + RUN]), at)
    best = end = at = 0
    while at <= len(ours) - RUN:
        start, length = places.get(tuple(ours[at : at + RUN])), 0
        if start is not None:
            while (
                at + length < len(ours) and start + length < len(theirs) and ours[at + length] == theirs[start + length]
            ):
                length += 1
            if length > best:
                best, end = length, start + length
        at += max(1, length)
    return bool(best) and end < len(told) and not _STOP.search(content[told[end - 1][2] : told[end][1]])


SIGNAL = Copies()
