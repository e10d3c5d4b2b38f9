"""In the battery's child: a hook's input and output, compared."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from ragtrace.inventory.battery_parts import DOCUMENTS
from ragtrace.record import effects, pictures
from ragtrace.types import Document


def look(hook: str, value: Any, before: Any = None) -> Any:
    """A picture of ``value``, or ``None`` where it is nothing that this hook carries."""
    if hook in (DOCUMENTS, "retrieval") and not isinstance(value, list | tuple):
        return None
    seen = pictures.picture("content" if hook in (DOCUMENTS, "retrieval") else hook, value, before)  # type: ignore[arg-type]
    if isinstance(seen, pictures.Documents) and isinstance(before, pictures.Documents):
        _told_apart(seen, before.documents)
    return seen


def _told_apart(seen: pictures.Documents, before: list[Document]) -> None:
    """Which of several documents of one text each is that came back without an id: its equal, or else the next one."""
    left = list(before)
    for place, document in enumerate(seen.documents):
        if _has_id(seen.objects[place]) or isinstance(seen.objects[place], str):
            continue
        same = [d for d in left if d.content == document.content]
        alike = [d for d in same if (d.score, d.metadata) == (document.score, document.metadata)]
        if one := next(iter(alike or same), None):
            document.id = one.id
            left.remove(one)


def _has_id(value: Any) -> bool:
    try:
        own = [value.get("id")] if isinstance(value, dict) else [getattr(value, n, None) for n in ("id", "node_id")]
    except Exception:  # a property of a foreign class
        return False
    return any(own)


def kinds(before: Any, after: Any) -> list[str]:
    """What differs between two pictures: some of text, order, ids, scores, metadata, count."""
    if after is None or isinstance(before, str) or isinstance(after, str):
        return ["text"] if after != before else []
    if isinstance(before, list):
        return (["count"] if len(before) != len(after) else []) + (["text"] if before != after else [])
    effect = effects.documents_effect("", "content", effects.seen(before.documents), effects.seen(after.documents))
    found = [k for k in ("text", "order", "ids", "scores", "metadata") if getattr(effect, f"{k}_changed")]
    return found + (["count"] if effect.documents_before != effect.documents_after else [])


def _plain(picture: Any) -> Any:
    if isinstance(picture, pictures.Documents):
        return [[d.id, d.content, d.score, d.metadata] for d in picture.documents]
    return picture


def digest(picture: Any) -> str:
    """The same for the same output, in every process."""
    written = json.dumps(_plain(picture), default=lambda value: type(value).__name__, skipkeys=True)
    return blake2b(written.encode(), digest_size=8).hexdigest()


def text(picture: Any) -> str:
    """All that can be read in it, metadata included."""
    if isinstance(picture, pictures.Documents):
        return "\n".join([*(d.content for d in picture.documents), *(str(d.metadata) for d in picture.documents)])
    return pictures.joined(picture)


def removed(secrets: tuple[str, ...], before: str, after: str) -> bool:
    """Whether all of them were there and none is left."""
    had, left = _squeezed(before), _squeezed(after)
    return all(_squeezed(s) in had and _squeezed(s) not in left for s in secrets)


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())
