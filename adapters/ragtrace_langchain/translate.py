"""LangChain's objects to ours, and back: what a defense left alone goes back as the very object that came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, Generation, GenerationChunk

from ragtrace.record.capture import digest
from ragtrace.types import Document, Message

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "system": "system", "tool": "tool"}
_MESSAGES: dict[str, type[BaseMessage]] = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
_SCORE_KEYS = ("score", "relevance_score")


def documents(found: Sequence[LangChainDocument], scores: Sequence[tuple[Any, Any]]) -> list[Document]:
    """``scores`` are the (document, score) pairs that the vector store returned on the way."""
    by_object = {id(document): score for document, score in scores}
    return [
        Document(
            d.page_content,
            d.id if d.id is not None else digest(d.page_content),
            by_object.get(id(d), next((d.metadata[k] for k in _SCORE_KEYS if k in d.metadata), None)),
            dict(d.metadata),
        )
        for d in found
    ]


def documents_back(
    theirs: Sequence[LangChainDocument], ours: Sequence[Document], kept: Sequence[Document]
) -> list[LangChainDocument]:
    """The documents for the app. ``ours`` are as translated, ``kept`` as the defenses left them."""
    origin: dict[str, list[tuple[LangChainDocument, float | None]]] = defaultdict(list)
    for their, our in zip(theirs, ours, strict=True):
        origin[our.id].append((their, our.score))
    out = []
    for document in kept:
        if not (known := origin.get(document.id)):
            out.append(LangChainDocument(page_content=document.content, metadata=document.metadata, id=document.id))
            continue
        their, score = known.pop(0) if len(known) > 1 else known[0]
        metadata = document.metadata
        if document.score != score:
            metadata = metadata | {k: document.score for k in _SCORE_KEYS if k in metadata}
        if document.content != their.page_content or metadata != their.metadata:
            their = their.model_copy(update={"page_content": document.content, "metadata": metadata})
        out.append(their)
    return out


def messages(theirs: Sequence[BaseMessage]) -> list[Message]:
    """Role and readable text; other content blocks (images, tool calls) stay with the original."""
    return [Message(_role(m), str(m.text)) for m in theirs]


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    return _ROLES.get(message.type, message.type)


def messages_back(theirs: Sequence[BaseMessage], kept: Sequence[Message]) -> list[BaseMessage]:
    """The messages for the model: each of theirs is used again for the first of ours with its role."""
    left = list(theirs)
    out: list[BaseMessage] = []
    for message in kept:
        their = next((m for m in left if _role(m) == message.role), None)
        if their is None:
            kind = _MESSAGES.get(message.role)
            made = kind(content=message.content) if kind else ChatMessage(role=message.role, content=message.content)
            out.append(made)
            continue
        left.remove(their)
        out.append(with_text(their, message.content))
    return out


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
        update["response_metadata"] = {k: v for k, v in message.response_metadata.items() if k != "logprobs"}
    return message.model_copy(update=update)


def generation_with_text(generation: Generation, text: str) -> Generation:
    """A copy of a model's ``generation`` that says ``text``."""
    info = {k: v for k, v in (generation.generation_info or {}).items() if k != "logprobs"} or None
    if isinstance(generation, ChatGeneration):
        message = with_text(generation.message, text)
        return type(generation)(message=message, generation_info=info)
    kind = GenerationChunk if isinstance(generation, GenerationChunk) else Generation
    return kind(text=text, generation_info=info)


def logprobs(metadata: dict[str, Any] | None) -> list[float]:
    """The tokens' log-probabilities (natural log) in OpenAI's form, where the model gives them."""
    found = (metadata or {}).get("logprobs")
    content = found.get("content") if isinstance(found, dict) else None
    if not isinstance(content, list):
        return []
    return [t["logprob"] for t in content if isinstance(t, dict) and isinstance(t.get("logprob"), int | float)]
