"""Documents and messages as span attributes: each text is serialised once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragtrace.record.capture import Capture, plain, well_formed
from ragtrace.record.effects import Seen
from ragtrace.types import Document, Message

_SEED = 32  # shortest run of characters that counts as a document's text being in the prompt
_STRIDE = 64


def retrieved(documents: Sequence[Document], capture: Capture, losses: list[str]) -> list[dict[str, Any]]:
    """The documents a retriever returned, in its order, with metadata."""
    rows = []
    for rank, document in enumerate(documents):
        row = _row(document.id, document.content, document.score, capture, losses, f"documents[{rank}]")
        if capture.keeps_text and document.metadata:
            row["metadata"] = plain(document.metadata, losses, f"documents[{rank}].metadata")
        rows.append(row)
    return rows


def after_defense(
    before: Sequence[Seen], after: Sequence[Document], capture: Capture, losses: list[str]
) -> list[dict[str, Any]]:
    """The documents after the defenses; where a text is that of a retrieved one, ``of`` points at it instead."""
    rank_of = {d.content: rank for rank, d in reversed(list(enumerate(before)))}
    rows = []
    for rank, document in enumerate(after):
        of = rank_of.get(document.content)
        if of is None:
            row = _row(document.id, document.content, document.score, capture, losses, f"after_defense[{rank}]")
        else:
            row = {"id": well_formed(document.id), "score": _score(document.score, losses, f"after_defense[{rank}]")}
            row["of"] = of
        rows.append(row)
    return rows


def _row(
    id: str, content: str, score: float | None, capture: Capture, losses: list[str], where: str
) -> dict[str, Any]:
    row: dict[str, Any] = {"id": well_formed(id), "score": _score(score, losses, where), "chars": len(content)}
    if (hash := capture.digest(content)) is not None:
        row["hash"] = hash
    if (text := capture.text(content)) is not None:
        row["content"] = text
    return row


def _score(score: Any, losses: list[str], where: str) -> float | None:
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


def in_prompt(documents: Sequence[Document], prompt: str) -> list[dict[str, Any]]:
    """Which documents are really in the prompt, in the prompt's order.

    ``start`` is where the found run begins in the document, ``run`` its length, ``at`` its place in the prompt
    (all in characters); ``whole`` says that the full text is there.
    """
    rows = []
    taken: dict[str, int] = {}
    for rank, document in enumerate(documents):
        start, run, at = _longest_seeded_run(document.content, prompt, taken.get(document.content, 0))
        if run:
            taken[document.content] = at + run
            whole = run == len(document.content)
            rows.append({"of": rank, "id": well_formed(document.id), "start": start, "run": run, "at": at, "whole": whole})
    return sorted(rows, key=lambda row: row["at"])


def _longest_seeded_run(content: str, prompt: str, after: int) -> tuple[int, int, int]:
    """Start in content, length, and place in prompt of the first run found by exact seeds; length 0 if none."""
    if not content.strip():
        return 0, 0, 0
    at = prompt.find(content, after)
    if at >= 0:
        return 0, len(content), at
    for start in range(0, len(content) - _SEED + 1, _STRIDE):
        at = prompt.find(content[start : start + _SEED])
        if at >= 0:
            return _extended(content, prompt, start, at)
    return 0, 0, 0


def _extended(content: str, prompt: str, start: int, at: int) -> tuple[int, int, int]:
    end, stop = start + _SEED, at + _SEED
    while start and at and content[start - 1] == prompt[at - 1]:
        start, at = start - 1, at - 1
    while end < len(content) and stop < len(prompt) and content[end] == prompt[stop]:
        end, stop = end + 1, stop + 1
    return start, end - start, at
