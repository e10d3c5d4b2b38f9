"""LangChain's objects to ours, and back: what a defense left alone goes back as the very object that came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from numbers import Real
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, Generation, GenerationChunk

from ragtrace.record import first_token as candidates
from ragtrace.record.capture import digest
from ragtrace.record.first_token import Candidates
from ragtrace.record.matching import rebuilt
from ragtrace.types import Document, Message

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_MESSAGES: dict[str, type[BaseMessage]] = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
_SCORE_KEYS = ("score", "relevance_score")


def documents(found: Sequence[LangChainDocument], scores: Sequence[Any], key: bytes = b"") -> list[Document]:
    """``scores`` are the (document, score, …) tuples that the vector store returned on the way; ``key`` is for digests.

    :raises TypeError: for anything but a list of documents.
    """
    if not isinstance(found, list) or not all(isinstance(d, LangChainDocument) for d in found):
        raise TypeError(f"the retriever returned {_found(found)}, expected a list of documents; they are not recorded")
    by_object = {id(document): score for document, score, *_ in scores}
    return [
        Document(
            d.page_content,
            d.id if d.id is not None else digest(d.page_content, key),
            _number(by_object[id(d)]) if id(d) in by_object else _own_score(d.metadata),
            dict(d.metadata),
        )
        for d in found
    ]


def _found(found: Any) -> str:
    kind = type(found).__name__
    return f"a list of {', '.join(sorted({type(d).__name__ for d in found}))}" if isinstance(found, list) else kind


def _own_score(metadata: dict[str, Any]) -> float | None:
    return next((n for k in _SCORE_KEYS if (n := _number(metadata.get(k))) is not None), None)


def _number(value: Any) -> float | None:
    if value is None or type(value) is float:  # asking an abstract class costs more than all the rest
        return value
    return float(value) if isinstance(value, Real) and value is not True and value is not False else None


def documents_back(
    theirs: Sequence[LangChainDocument], ours: Sequence[Document], kept: Sequence[Document]
) -> list[LangChainDocument]:
    """The documents for the app. ``ours`` are as translated, ``kept`` as the defenses left them."""
    origin: dict[str, list[tuple[LangChainDocument, Document]]] = defaultdict(list)
    for their, our in zip(theirs, ours, strict=True):
        origin[our.id].append((their, our))
    out = []
    for document in kept:
        if not (known := origin.get(document.id)):
            out.append(LangChainDocument(page_content=document.content, metadata=document.metadata, id=document.id))
            continue
        their, our = known.pop(0) if len(known) > 1 else known[0]
        metadata = document.metadata
        if document.score != our.score and not (document.score != document.score and our.score != our.score):
            metadata = metadata | {k: document.score for k in _SCORE_KEYS if k in metadata}
        if document.content != our.content or metadata != our.metadata:
            their = their.model_copy(update={"page_content": document.content, "metadata": metadata})
        out.append(their)
    return out


def messages(theirs: Sequence[BaseMessage]) -> list[Message]:
    """Role and readable text; other content blocks (images, tool calls) stay with the original."""
    return [Message(_role(m), str(m.text)) for m in theirs]


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    kind = message.type.removesuffix("MessageChunk").lower()
    return _ROLES.get(kind, kind)


def messages_back(theirs: Sequence[BaseMessage], kept: Sequence[Message]) -> list[BaseMessage]:
    """The messages for the model: each of theirs is used again, for the same text, else for the first with its role."""
    return rebuilt(theirs, messages(theirs), kept, with_text, _made)


def _made(message: Message) -> BaseMessage:
    kind = _MESSAGES.get(message.role)
    return kind(content=message.content) if kind else ChatMessage(role=message.role, content=message.content)


def with_text(message: BaseMessage, text: str) -> BaseMessage:
    """A copy of ``message`` that says ``text``; the message itself where it already does."""
    if str(message.text) == text:
        return message
    content: Any = text
    if isinstance(message.content, list):
        others = [b for b in message.content if isinstance(b, dict) and b.get("type") != "text"]
        content = [{"type": "text", "text": text}, *others]
    update: dict[str, Any] = {"content": content}
    if isinstance(message, AIMessage):  # the tokens' own record spells the text that was replaced
        update["response_metadata"] = without_logprobs(message.response_metadata)
    return message.model_copy(update=update)


def generation_with_text(generation: Generation, text: str) -> Generation:
    """A copy of a model's ``generation`` that says ``text``."""
    info = without_logprobs(generation.generation_info) or None
    if isinstance(generation, ChatGeneration):
        message = with_text(generation.message, text)
        return type(generation)(message=message, generation_info=info)
    kind = GenerationChunk if isinstance(generation, GenerationChunk) else Generation
    return kind(text=text, generation_info=info)


def without_logprobs(metadata: Any) -> Any:
    """A model's metadata without the tokens' own record, under any provider's name for it."""
    return {k: v for k, v in metadata.items() if "logprob" not in k} if isinstance(metadata, dict) else metadata


def logprobs(metadata: dict[str, Any] | None) -> list[float]:
    """The tokens' log-probabilities (natural log) in OpenAI's form, where the model gives them.

    Without the end-of-text token, whose text is empty: some servers send it, but not when they stream.
    """
    found = (metadata or {}).get("logprobs")
    content = found.get("content") if isinstance(found, dict) else None
    if not isinstance(content, list):
        return []
    tokens = [t for t in content if isinstance(t, dict) and t.get("token") != ""]
    return [t["logprob"] for t in tokens if isinstance(t.get("logprob"), int | float)]


def first_token(*metadata: Any) -> Candidates:
    """The candidates for the answer's first token, from the first place that tells any."""
    places = (m.get("logprobs") for m in metadata if isinstance(m, dict))
    return next((found for place in places if (found := candidates.first_token(place))), [])
