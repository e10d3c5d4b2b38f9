"""Before and after, compared: what one run of one defense at one hook really did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragtrace.types import Document, Hook, Message


class Seen(NamedTuple):
    """An unchangeable picture of one document, so that an in-place edit shows."""

    id: str
    content: str
    score: float | None
    metadata: dict[str, Any] = {}


@dataclass(slots=True)
class Effect:
    """One entry of the ``effects`` view. ``None`` means that it does not apply at this hook.

    ``hook`` is ``None`` where a framework's part left documents alone: what it changes elsewhere names it.
    ``spans`` are the crossings it met, where it ran in none. ``late``: what it changed had left the app already.
    ``kept``: what it left of an answer is told beside it. ``given`` and ``said`` are the texts before and after it,
    never stored here.
    """

    defense: str
    hook: Hook | None
    status: str
    ids_changed: bool = False
    order_changed: bool = False
    scores_changed: bool = False
    text_changed: bool = False
    metadata_changed: bool = False
    documents_before: int | None = None
    documents_after: int | None = None
    chars_before: int | None = None
    chars_after: int | None = None
    buffered: bool = False
    part: bool = False
    late: bool = False
    kept: bool = False
    error: str | None = None
    duration_us: int | None = None
    spans: list[str] = field(default_factory=list)
    given: str | None = None
    said: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as it is stored: what is false or absent is left to the view's defaults."""
        values = {name: getattr(self, name) for name in _STORED}
        return {
            name: value for name, value in values.items() if value is not None and value is not False and value != []
        }

    def too_late(self) -> None:
        """What this run changed had left the app before: nobody got the change."""
        self.late, self.status, self.text_changed = True, "unchanged", False


_STORED = tuple(name for name in Effect.__slots__ if name not in ("given", "said"))


def seen(documents: Sequence[Document]) -> list[Seen]:
    """A picture of the documents as they are now."""
    return [Seen(d.id, d.content, d.score, dict(d.metadata)) for d in documents]


def documents_effect(defense: str, hook: Hook | None, before: list[Seen], after: list[Seen]) -> Effect:
    """Compares two lists of documents. A document is the same one when its id (and its turn among equal ids) is."""
    effect = Effect(
        defense,
        hook,
        "unchanged",
        documents_before=len(before),
        documents_after=len(after),
        chars_before=sum(len(d.content) for d in before),
        chars_after=sum(len(d.content) for d in after),
    )
    old, new = _by_identity(before), _by_identity(after)
    common = [key for key in old if key in new]
    texts = {d.content for d in before}
    effect.ids_changed = old.keys() != new.keys()
    effect.order_changed = common != [key for key in new if key in old]
    effect.scores_changed = any(not _same(old[k].score, new[k].score) for k in common)
    effect.text_changed = any(old[k].content != new[k].content for k in common) or any(
        new[k].content not in texts for k in new if k not in old
    )
    effect.metadata_changed = any(_differ(old[k].metadata, new[k].metadata) for k in common)
    if (
        effect.ids_changed
        or effect.order_changed
        or effect.scores_changed
        or effect.text_changed
        or effect.metadata_changed
    ):
        effect.status = "changed"
    return effect


def text_effect(defense: str, hook: Hook, before: str, after: str) -> Effect:
    """Compares a query or a response."""
    return _text(defense, hook, before != after, len(before), len(after))


def messages_effect(defense: str, hook: Hook, before: list[tuple[str, str]], after: list[tuple[str, str]]) -> Effect:
    """Compares messages as (role, content) pairs."""
    return _text(defense, hook, before != after, *(sum(len(c) for _, c in side) for side in (before, after)))


def pairs(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """A picture of the messages as they are now."""
    return [(m.role, m.content) for m in messages]


def _text(defense: str, hook: Hook, changed: bool, before: int, after: int) -> Effect:
    status = "changed" if changed else "unchanged"
    return Effect(defense, hook, status, text_changed=changed, chars_before=before, chars_after=after)


def _by_identity(documents: list[Seen]) -> dict[tuple[str, int], Seen]:
    turns: dict[str, int] = {}
    keyed: dict[tuple[str, int], Seen] = {}
    for document in documents:
        turn = turns.get(document.id, 0)
        turns[document.id] = turn + 1
        keyed[(document.id, turn)] = document
    return keyed


def _differ(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether metadata differs, by identity and then by plain equality: a foreign ``==`` may answer anything."""
    if a.keys() != b.keys():
        return True
    return any(v is not b[k] and not _equal(v, b[k]) for k, v in a.items())


def _equal(a: Any, b: Any) -> bool:
    try:
        return (a == b) is True
    except Exception:
        return False


def _same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and a != a and b != b)
