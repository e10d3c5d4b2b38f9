"""Documents and messages as span attributes: each text is serialised once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from ragtrace.record.capture import Capture, plain, well_formed
from ragtrace.record.effects import Seen
from ragtrace.types import Document, Message

_RUN = 32  # shortest run of characters that counts as a part of a document's text being in the prompt
_SEARCHED = 1_000_000  # characters of documents not there as a whole: what is looked for in one prompt
_SEED = 16  # any such run holds a whole window of the prompt's, which start at every 16th character


def retrieved(documents: Sequence[Document], capture: Capture, losses: list[str]) -> list[dict[str, Any]]:
    """The documents a retriever returned, in its order, with metadata."""
    rows = []
    for rank, document in enumerate(documents):
        row = _row(document, capture, losses, f"documents[{rank}]")
        if capture.keeps_text and document.metadata:
            row["metadata"] = plain(document.metadata, losses, f"documents[{rank}].metadata", capture.text)
        rows.append(row)
    return rows


def after_defense(
    before: Sequence[Seen], after: Sequence[Document], capture: Capture, losses: list[str]
) -> list[dict[str, Any]]:
    """The documents after the defenses; where a text is that of a retrieved one, ``of`` points at it instead."""
    rank_of = {d.content: rank for rank, d in reversed(list(enumerate(before)))}
    rows = []
    for rank, document in enumerate(after):
        where = f"after_defense[{rank}]"
        if (of := rank_of.get(document.content)) is None:
            rows.append(_row(document, capture, losses, where))
        else:
            rows.append({"id": well_formed(document.id), "score": _score(document.score, losses, where), "of": of})
    return rows


def _row(document: Document, capture: Capture, losses: list[str], where: str) -> dict[str, Any]:
    content = document.content
    row = {"id": well_formed(document.id), "score": _score(document.score, losses, where), "chars": len(content)}
    if (hash := capture.digest(content)) is not None:
        row["hash"] = hash
    if (text := capture.text(content)) is not None:
        row["content"] = text
    return row


def _score(score: Any, losses: list[str], where: str) -> float | None:
    if score is None or (type(score) is float and isfinite(score)):
        return score
    number = plain(score, losses, f"{where}.score")
    return float(number) if isinstance(number, int | float) else None


def messages(items: Sequence[Message], capture: Capture) -> list[dict[str, Any]]:
    """Messages in the GenAI conventions' form: role and parts."""
    rows = []
    for item in items:
        part: dict[str, Any] = {"type": "text", "chars": len(item.content)}
        if (text := capture.text(item.content)) is not None:
            part["content"] = text
        rows.append({"role": item.role, "parts": [part]})
    return rows


def in_prompt(documents: Sequence[Document], prompt: str, losses: list[str]) -> list[dict[str, Any]]:
    """Which documents are really in the prompt, in the prompt's order.

    ``start`` is where the found run begins in the document, ``run`` its length, ``at`` its place in the prompt
    (all in characters); ``whole`` says that the full text is there. Of a document that was cut, the longest run is
    given, of 32 characters or more, and none where a whole document stands: texts share phrases.
    """
    found: list[tuple[int, int, int, int]] = []  # rank, start, run, at
    missing = []
    taken: dict[str, int] = {}
    end = 0
    for rank, document in enumerate(documents):
        content = document.content
        if not content.strip():
            continue
        at = prompt.find(content, end)  # mostly they follow each other
        if at < 0 and end:
            at = prompt.find(content, taken.get(content, 0))
        if at >= 0:
            taken[content] = end = at + len(content)
            found.append((rank, 0, len(content), at))
        elif content not in taken:
            missing.append(rank)
    if missing:
        gaps = list(_gaps(prompt, sorted((at, at + run) for _, _, run, at in found)))
        seeds = _seeds(prompt, gaps)
        left = _SEARCHED
        for rank in missing:
            content = documents[rank].content
            if len(content) > left:
                losses.append(f"in_prompt: only {left} of the {len(content)} characters of document {rank} looked for")
                content = content[:left]
            left -= len(content)
            start, run, at = _longest_run(content, prompt, seeds)
            if run >= _RUN:
                found.append((rank, start, run, at))
    return [
        {
            "of": rank,
            "id": well_formed(documents[rank].id),
            "start": start,
            "run": run,
            "at": at,
            "whole": run == len(documents[rank].content),
        }
        for rank, start, run, at in sorted(found, key=lambda f: f[3])
    ]


_Seeds = dict[str, tuple[int, int, int]]  # a window's text → its place, and the gap it lies in


def _gaps(prompt: str, wholes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stretches of the prompt that no whole document covers."""
    end = 0
    for start, stop in wholes:
        if start > end:
            yield end, start
        end = max(end, stop)
    if end < len(prompt):
        yield end, len(prompt)


def _seeds(prompt: str, gaps: list[tuple[int, int]]) -> _Seeds:
    return {
        prompt[at : at + _SEED]: (at, low, high)
        for low, high in reversed(gaps)
        for at in reversed(range(low, high - _SEED + 1, _SEED))
    }


def _longest_run(content: str, prompt: str, seeds: _Seeds) -> tuple[int, int, int]:
    """Start in content, length, and place in the prompt of the longest run that a seed leads to."""
    best, place = (0, 0, 0), 0
    while place + _SEED <= len(content):
        if (seed := seeds.get(content[place : place + _SEED])) is None:
            place += 1
            continue
        at, low, high = seed
        start, begin, end, stop = place, at, place + _SEED, at + _SEED
        while start and begin > low and content[start - 1] == prompt[begin - 1]:
            start, begin = start - 1, begin - 1
        while end < len(content) and stop < high and content[end] == prompt[stop]:
            end, stop = end + 1, stop + 1
        best = max(best, (end - start, -start, -begin))
        place = max(place + 1, end - _SEED + 1)
    run, start, begin = best
    return -start, run, -begin
