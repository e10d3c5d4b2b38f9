"""The app's own documents and messages to ours, and back: strings, dicts, and objects of any class.

What a defense left alone goes back as the very object that came. What it changed goes back in the form it came in:
``str`` for ``str``, a copy for a dict, a copy of the app's own class where that can be copied, else ours.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any
from uuid import UUID

from ragtrace.errors import RagtraceError
from ragtrace.record.capture import digest
from ragtrace.record.matching import origins
from ragtrace.types import Document, Message

_TEXTS = ("content", "page_content", "text")
_IDS = ("id", "node_id", "document_id", "doc_id")
_SCORES = ("score", "relevance_score")
_ROLES = {"human": "user", "ai": "assistant"}


class UnreadableError(RagtraceError, TypeError):
    """What the app handed over has another form; says which types were found, and no text."""


# documents


def documents(found: Any, key: bytes = b"") -> list[Document]:
    """``found`` as ours; ``key`` is for the digests that stand for missing ids.

    :raises UnreadableError: for anything but a list or tuple of what has a text.
    """
    if isinstance(found, list | tuple):
        made = [_document(value, key) for value in found]
        if odd := sorted({type(v).__name__ for v, d in zip(found, made, strict=True) if d is None}):
            raise UnreadableError(
                f"documents() got a list of {', '.join(odd)}, expected documents; they are not recorded"
            )
        return [d for d in made if d is not None]
    raise UnreadableError(
        f"documents() got {type(found).__name__}, expected a list of documents; they are not recorded"
    )


def _document(value: Any, key: bytes) -> Document | None:
    if isinstance(value, str):
        return Document(value, digest(value, key))
    if (content := next((t for n in _TEXTS if isinstance(t := _get(value, n), str)), None)) is None:
        return None
    metadata = _get(value, "metadata")
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    own = next((i for n in _IDS if isinstance(i := _get(value, n), str | int | UUID)), None)
    scores = (*(_get(value, n) for n in _SCORES), *(metadata.get(n) for n in _SCORES))
    score = next((n for s in scores if (n := _number(s)) is not None), None)
    return Document(content, str(own) if own is not None else digest(content, key), score, metadata)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, Real) and value is not True and value is not False else None


def documents_back(found: Any, ours: Sequence[Document], kept: Sequence[Document]) -> Any:
    """The documents for the app. ``ours`` are as translated, ``kept`` as the defenses left them."""
    left: dict[str, list[tuple[Any, Document]]] = {}
    for pair in zip(found, ours, strict=True):
        left.setdefault(pair[1].id, []).append(pair)
    first = {id: pairs[0] for id, pairs in left.items()}
    origin: list[tuple[Any, Document] | None] = [None] * len(kept)
    for fits in (_same, _same_text, _same_id):  # of several with one id, each its own before any takes another's
        for place, document in enumerate(kept):
            if origin[place] is None:
                origin[place] = _claimed(left.get(document.id, []), fits, document)
    out = []
    for document, known in zip(kept, origin, strict=True):
        known = known or first.get(document.id)
        out.append(_made_document(document, found) if known is None else _document_back(*known, document))
    return _in_form(found, out)


def _same(our: Document, document: Document) -> bool:
    return _same_text(our, document) and _equal(our.score, document.score) and _equal(our.metadata, document.metadata)


def _same_text(our: Document, document: Document) -> bool:
    return our.content == document.content


def _same_id(our: Document, document: Document) -> bool:
    return our.id == document.id


def _document_back(their: Any, our: Document, document: Document) -> Any:
    if _same(our, document):
        return their
    if isinstance(their, str):
        return their if _same_text(our, document) else document.content
    if isinstance(their, Document):
        return document
    changes: dict[str, Any] = {}
    metadata = document.metadata
    if not _equal(our.score, document.score):
        changes |= {n: document.score for n in _SCORES if _has(their, n)}
        metadata = metadata | {n: document.score for n in _SCORES if n in metadata}
    if not _equal(our.metadata, metadata):
        changes["metadata"] = metadata
    return _changed(their, our.content, document.content, changes, document)


def _made_document(document: Document, found: Any) -> Any:
    """A document that a defense has brought, in the form of the others."""
    like = found[0] if found else None
    if isinstance(like, str):
        return document.content
    if isinstance(like, Mapping):
        text = next((n for n in _TEXTS if n in like), _TEXTS[0])
        return {"id": document.id, text: document.content, "score": document.score, "metadata": document.metadata}
    return document


# messages


def messages(given: Any) -> list[Message]:
    """``given`` as ours: role and readable text; images and tool calls stay with the original.

    :raises UnreadableError: for anything but a list or tuple of messages.
    """
    if isinstance(given, list | tuple):
        made = [_message(value) for value in given]
        if odd := sorted({type(v).__name__ for v, m in zip(given, made, strict=True) if m is None}):
            raise UnreadableError(f"the messages are a list of {', '.join(odd)}, expected role and content in each")
        return [m for m in made if m is not None]
    raise UnreadableError(f"the messages are {type(given).__name__}, expected a str or a list of messages")


def are_messages(value: Any) -> bool:
    """Whether ``value`` is a list of messages, with at least one."""
    return isinstance(value, list | tuple) and bool(value) and all(_message(v) is not None for v in value)


def _message(value: Any) -> Message | None:
    if isinstance(value, tuple) and len(value) == 2:
        role, content = value
    elif isinstance(value, Mapping):
        role, content = value.get("role"), value.get("content")
    else:
        role, content = _get(value, "role") or _get(value, "type"), _get(value, "content")
        if content is None and isinstance(text := _get(value, "text"), str):
            content = text
    role = getattr(role, "value", role)
    text = _content_text(content)
    return Message(_ROLES.get(role, str(role)), text) if isinstance(role, str) and text is not None else None


def messages_back(given: Any, kept: Sequence[Message]) -> Any:
    """The messages for the model: each of theirs is used again, for the same text, else for the first with its role."""
    origin = origins(given, messages(given), kept)
    out = []
    for message, known in zip(kept, origin, strict=True):
        out.append(_made_message(message, given) if known is None else _message_back(*known, message))
    return _in_form(given, out)


def _message_back(their: Any, our: Message, message: Message) -> Any:
    if our.content == message.content:
        return their
    if isinstance(their, tuple) and type(their) is tuple:
        return (their[0], _content_with(their[1], message.content))
    return _changed(their, our.content, message.content, {}, message)


def _made_message(message: Message, given: Any) -> Any:
    like = given[0] if given else None
    if isinstance(like, Mapping):
        return {"role": message.role, "content": message.content}
    return (message.role, message.content) if type(like) is tuple else message


# answers


def text(answer: Any) -> str | None:
    """The text of a model's answer: a string, or what has a ``content``; ``None`` where there is none to read."""
    if isinstance(answer, str):
        return answer
    return next((t for n in _TEXTS if (c := _get(answer, n)) is not None and (t := _content_text(c)) is not None), None)


def with_text(answer: Any, old: str, new: str) -> Any:
    """``answer`` (whose text is ``old``), saying ``new``."""
    return new if isinstance(answer, str) else _changed(answer, old, new, {}, Message("assistant", new))


# both


def _changed(their: Any, old: str, new: str, changes: dict[str, Any], otherwise: Any) -> Any:
    """A copy of ``their`` with the new text and ``changes``; ``otherwise`` where its class allows none."""
    texts = [n for n in _TEXTS if _content_text(_get(their, n)) == old] if old != new else []
    changes = changes | {n: _content_with(_get(their, n), new) for n in texts}
    if isinstance(their, Mapping):
        return {**their, **changes}
    try:
        made = _copy(their, changes)
        if made is not their and all(_content_text(_get(made, n)) == new for n in texts):
            return made
    except Exception:  # a class may refuse in any way
        return otherwise
    return otherwise


def _copy(their: Any, changes: dict[str, Any]) -> Any:
    kind = type(their)
    settable = {n: v for n, v in changes.items() if getattr(getattr(kind, n, None), "fset", True) is not None}
    if dataclasses.is_dataclass(their):
        fields = {f.name for f in dataclasses.fields(their)}
        return dataclasses.replace(their, **{n: v for n, v in settable.items() if n in fields})  # type: ignore[type-var]
    if isinstance(their, tuple):
        return their._replace(**settable)  # type: ignore[attr-defined]
    if settable.keys() <= getattr(kind, "model_fields", {}).keys():
        return their.model_copy(update=settable)
    made = copy.copy(their)
    if made is not their:
        for name, value in settable.items():
            setattr(made, name, value)
    return made


def _in_form(came: Any, out: list[Any]) -> Any:
    if len(came) == len(out) and all(old is new for old, new in zip(came, out, strict=True)):
        return came
    return tuple(out) if isinstance(came, tuple) else out


def _claimed(left: list[tuple[Any, Any]], fits: Callable[[Any, Any], bool], wanted: Any) -> tuple[Any, Any] | None:
    place = next((i for i, (_, our) in enumerate(left) if fits(our, wanted)), None)
    return None if place is None else left.pop(place)


def _content_text(content: Any) -> str | None:
    """The text of a message's content: a string, or a list of parts, of which some may be images."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_part_text(p) or "" for p in content) if isinstance(content, list | tuple) else None


def _part_text(part: Any) -> str | None:
    found = part if isinstance(part, str) else _get(part, "text")
    return found if isinstance(found, str) else None


def _content_with(content: Any, text: str) -> Any:
    if not isinstance(content, list | tuple):
        return text
    said = next((p for p in content if isinstance(p, Mapping) and _part_text(p) is not None), {"type": "text"})
    return [{**said, "text": text}, *(p for p in content if _part_text(p) is None)]


def _get(value: Any, name: str) -> Any:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # a property of the app's
        return None


def _has(value: Any, name: str) -> bool:
    try:
        return name in value if isinstance(value, Mapping) else hasattr(value, name)
    except Exception:
        return False


def _equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other) or (one != one and other != other)
    except Exception:  # arrays have no truth
        return False
