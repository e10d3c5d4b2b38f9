"""LlamaIndex's objects to ours, and back: what a defense left alone goes back as the very object that came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from numbers import Real
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
    TextBlock,
)
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from ragtrace.record.matching import rebuilt
from ragtrace.types import Document, Message

Response = ChatResponse | CompletionResponse
_ROLES = {"developer": "system", "function": "tool", "chatbot": "assistant", "model": "assistant"}


def query_text(asked: Any) -> str | None:
    """The text of a query; ``None`` for what is neither a string nor a bundle."""
    text = asked.query_str if isinstance(asked, QueryBundle) else asked
    return text if isinstance(text, str) else None


def query_back(asked: Any, sent: str) -> Any:
    """The query to retrieve with. What was made from the old text (its embedding, its rewritings) goes with it."""
    if query_text(asked) == sent:
        return asked
    return QueryBundle(sent, image_path=asked.image_path) if isinstance(asked, QueryBundle) else sent


def documents(found: Any) -> list[Document]:
    """What a retriever returned. The text is the node's own, without the metadata that LlamaIndex prints above it.

    :raises TypeError: for anything but a list of nodes with scores.
    """
    if not isinstance(found, list) or not all(isinstance(n, NodeWithScore) for n in found):
        raise TypeError(f"the retriever returned {_found(found)}, expected a list of NodeWithScore; not recorded")
    return [
        Document(n.node.get_content(MetadataMode.NONE), n.node.node_id, _number(n.score), dict(n.node.metadata))
        for n in found
    ]


def _found(found: Any) -> str:
    kind = type(found).__name__
    return f"a list of {', '.join(sorted({type(d).__name__ for d in found}))}" if isinstance(found, list) else kind


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, Real) and value is not True and value is not False else None


def documents_back(
    theirs: Sequence[NodeWithScore], ours: Sequence[Document], kept: Sequence[Document]
) -> list[NodeWithScore]:
    """The nodes for the app. ``ours`` are as translated, ``kept`` as the defenses left them.

    A node is never edited: the index may hold that very object.
    """
    origin: dict[str, list[tuple[NodeWithScore, Document]]] = defaultdict(list)
    for their, our in zip(theirs, ours, strict=True):
        origin[our.id].append((their, our))
    out = []
    for document in kept:
        if not (known := origin.get(document.id)):
            node = TextNode(text=document.content, id_=document.id, metadata=document.metadata)
            out.append(NodeWithScore(node=node, score=document.score))
            continue
        their, our = known.pop(0) if len(known) > 1 else known[0]
        update: dict[str, Any] = {}
        if document.score != our.score and not (document.score != document.score and our.score != our.score):
            update["score"] = document.score
        if document.content != our.content or document.metadata != our.metadata:
            update["node"] = _node_with(their.node, document, document.content != our.content)
        out.append(their.model_copy(update=update) if update else their)
    return out


def _node_with(node: Any, document: Document, other_text: bool) -> Any:
    copy = node.model_copy(update={"metadata": document.metadata})
    if other_text:
        copy.set_content(document.content)
        copy.embedding = None  # an embedding tells of the text that was replaced
    return copy


def messages(theirs: Sequence[ChatMessage]) -> list[Message]:
    """Role and text of the text blocks; other blocks (images, tool calls) stay with the original."""
    return [Message(_role(m), m.content or "") for m in theirs]


def _role(message: ChatMessage) -> str:
    role = str(getattr(message.role, "value", message.role))
    return _ROLES.get(role, role)


def messages_back(theirs: Sequence[ChatMessage], kept: Sequence[Message]) -> list[ChatMessage]:
    """The messages for the model: each of theirs is used again, for the same text, else for the first with its role."""
    return rebuilt(theirs, messages(theirs), kept, with_text, _made)


def _made(message: Message) -> ChatMessage:
    known = message.role in {r.value for r in MessageRole}
    role = MessageRole(message.role) if known else MessageRole.USER
    return ChatMessage(role=role, blocks=[TextBlock(text=message.content)])


def with_text(message: ChatMessage, text: str) -> ChatMessage:
    """A copy of ``message`` that says ``text``, at the place of its first text; the other blocks stay."""
    blocks: list[Any] = [b for b in message.blocks if not isinstance(b, TextBlock)]
    first = next((i for i, b in enumerate(message.blocks) if isinstance(b, TextBlock)), 0)
    blocks.insert(first, TextBlock(text=text))
    return message.model_copy(update={"blocks": blocks})


def text_of(response: Response) -> str:
    """What a model's response says."""
    return response.text if isinstance(response, CompletionResponse) else response.message.content or ""


def response_with_text(response: Response, text: str) -> Response:
    """A copy of ``response`` that says ``text``, without the provider's own record, which spells the old one."""
    update: dict[str, Any] = {"raw": _usage_only(response.raw), "logprobs": None}
    if response.delta is not None:
        update["delta"] = text
    update["additional_kwargs"] = {k: v for k, v in response.additional_kwargs.items() if "logprob" not in k}
    if isinstance(response, CompletionResponse):
        update["text"] = text
    else:
        update["message"] = with_text(response.message, text)
    return response.model_copy(update=update)


def _usage_only(raw: Any) -> Any:
    return {"usage": raw["usage"]} if isinstance(raw, dict) and "usage" in raw else None


def as_chunk(response: Response) -> Response:
    """A whole response as the one chunk of a stream."""
    return response.model_copy(update={"delta": text_of(response)})
