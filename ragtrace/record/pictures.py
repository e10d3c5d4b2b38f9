"""Pictures of foreign values, taken before and after somebody else's code ran, so that an in-place edit shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ragtrace.record.capture import digest
from ragtrace.types import Document, Hook


class Documents:
    """What documents of any framework (or plain texts) were, and which objects."""

    __slots__ = ("documents", "objects")

    def __init__(self, values: Sequence[Any], before: Documents | None = None, key: bytes = b"") -> None:
        self.objects = list(values)  # held, so that no other object gets their identity
        self.documents = [self._document(place, value, before, key) for place, value in enumerate(self.objects)]

    def _document(self, place: int, value: Any, before: Documents | None, key: bytes) -> Document:
        content = text(value) or ""
        metadata = _read(value, "metadata")
        metadata = dict(metadata) if isinstance(metadata, dict) else {}
        score = _read(value, "score")
        if score is None:
            score = metadata.get("score", metadata.get("relevance_score"))
        own = _read(value, "id") or _read(value, "node_id")
        id = str(own) if isinstance(own, str | int | UUID) else self._same(place, value, content, before, key)
        return Document(content, id, float(score) if isinstance(score, int | float) else None, metadata)

    def _same(self, place: int, value: Any, content: str, before: Documents | None, key: bytes) -> str:
        """Which document this is, where it has no id: the same object, the same text, or else the one in its place."""
        if before is not None:
            was = before.documents
            for i, (other, document) in enumerate(zip(before.objects, was, strict=True)):
                if document.content == content or (other is value and not isinstance(value, str)):
                    return was[i].id
            if len(self.objects) == len(was):
                return was[place].id
        return digest(content, key)


def picture(hook: Hook, value: Any, before: Any = None) -> Any:
    """A comparable picture of a hook's value, or ``None`` if it is not one.

    :class:`Documents` at ``retrieval`` and ``content`` (one document or text is a list of one), pairs of role and
    text for messages at ``prompt``, else a text.
    """
    if hook in ("retrieval", "content"):
        if isinstance(value, list | tuple):
            if all(text(v) is not None for v in value):
                return Documents(value, before if isinstance(before, Documents) else None)
            return None
        if hook == "content" and text(value) is not None:
            return Documents([value], before if isinstance(before, Documents) else None)
        return None
    if hook == "prompt" and not isinstance(value, str):
        items = value.to_messages() if hasattr(value, "to_messages") else value
        return pairs(items) if isinstance(items, list | tuple) and all(text(v) is not None for v in items) else None
    return text(value)


def pairs(messages: Sequence[Any]) -> list[tuple[str, str]]:
    """Role and text of each message."""
    return [(str(_read(m, "type") or _read(m, "role") or ""), text(m) or "") for m in messages]


def joined(picture: Any) -> str:
    """The text of a picture of a text or of messages."""
    return picture if isinstance(picture, str) else "\n\n".join(text for _, text in picture)


def text(value: Any) -> str | None:
    """The text of a document, node or message of any framework."""
    if isinstance(value, str):
        return value
    for name in ("page_content", "text", "content"):
        if isinstance(found := _read(value, name), str):
            return found
    return None


def _read(value: Any, name: str) -> Any:
    """A dict's value, or an attribute, where there is one: a property of a foreign class may raise anything."""
    try:
        return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    except Exception:
        return None
