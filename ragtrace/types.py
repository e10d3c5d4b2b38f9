"""The words of ragtrace as types: documents, messages, hooks, stages, paths.

Everything here is plain data, imported by all sides and importing nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

Hook = Literal["query", "retrieval", "content", "prompt", "response"]
"""A point of the pipeline where a defense can act."""
Stage = Literal["retrieval", "context", "generation"]
"""A span-wrapped part of the pipeline."""
Path = Literal["invoke", "ainvoke", "stream", "astream", "batch", "abatch"]
"""How the pipeline was called, by its outermost call."""
Channel = Hook
"""What a metric observes: the same five names as the hooks."""
OnError = Literal["open", "raise", "block"]
"""What happens to a stage when a defense raises: go on undefended, raise, or withhold its text."""

HOOKS: tuple[Hook, ...] = get_args(Hook)


@dataclass
class Document:
    """What a retriever returned: ``content`` is its text, ``metadata`` what else the framework keeps of it.

    ``id`` is the framework's, or made from the content's digest where the framework has none.
    ``score`` is in the store's own unit (a distance or a similarity); ``None`` where it gave none.
    """

    content: str
    id: str
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Message:
    """One message for a model: ``content`` is its text, ``role`` is ``system``, ``user``, ``assistant`` or ``tool``."""

    role: str
    content: str


class Entity(NamedTuple):
    """A named entity in a text: ``text == source[start:end]``, ``type`` one of ``ragtrace.ner.TYPES``."""

    type: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Canary:
    """A random string planted in one document, looked for by exact match.

    ``text`` is the string, ``family`` its kind (``email``, ``person``, ``phone``, ``id`` or ``phrase``), and
    ``document_id`` the document that holds it.
    """

    text: str
    family: str
    document_id: str


@dataclass(frozen=True)
class Probe:
    """One query sent on purpose, with its ground truth.

    ``probe_id`` is the same in every arm, so that arms can be compared probe by probe. An attack with several
    queries a target calls the first ``x`` and the others ``x/1``, ``x/2`` … ``detail`` holds what else its score needs
    to know of the query (what was masked, which answer is expected), as JSON values.

    The truth about it: ``corpus`` and ``seed`` that it was made with, the document it is about (``target_id``,
    ``target_text``), whether that is indexed (``is_member``), and the ``canary`` looked for; ``None`` where the attack
    has no such thing.
    """

    probe_id: str
    attack: str
    query: str
    corpus: str = ""
    seed: int = 0
    target_id: str | None = None
    target_text: str | None = None
    is_member: bool | None = None
    canary: str | None = None
    detail: dict[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Corpus:
    """What an attack may aim at.

    ``members`` are indexed; ``non_members`` come from the same distribution and are not.
    ``canaries`` have been planted in the members already.
    """

    name: str
    seed: int
    members: tuple[Document, ...]
    non_members: tuple[Document, ...] = ()
    canaries: tuple[Canary, ...] = ()
