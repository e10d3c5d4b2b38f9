"""LlamaIndex's own spans (llama-index-observability-otel): named after methods, with its events flat in the span's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.record import attributes as a

_SCOPE = "llamaindex."
_EVENTS = frozenset(
    f"{name}{edge}Event"
    for name in ("Retrieval", "LLMChat", "LLMCompletion", "ReRank", "Embedding", "Query", "Synthesize", "LLMPredict")
    for edge in ("Start", "End")
)


class _LlamaIndex:
    name, rank = "llama_index", 29

    def owns(self, span: Seen) -> bool:
        if span.scope.startswith(_SCOPE):
            return True
        name = span.events[0].get("name") if span.events else None
        return isinstance(name, str) and name in _EVENTS

    def translate(self, span: Seen) -> dict[str, Any]:
        known: dict[str, Any] = {a.FRAMEWORK: "llama_index", a.STAGE: None}
        names = {event.get("name") for event in span.events if isinstance(event.get("name"), str)}
        if not names.isdisjoint(("RetrievalStartEvent", "RetrievalEndEvent")):
            return known | _retrieval(span)
        if not names.isdisjoint(("LLMChatStartEvent", "LLMChatEndEvent", "LLMCompletionStartEvent")):
            return known | _generation(span)
        if not names.isdisjoint(("ReRankStartEvent", "ReRankEndEvent")):
            return known | _reranked(span)
        if span.name.endswith("._postprocess_nodes"):
            return known | {a.STAGE: "defense", PART: span.name.rpartition(".")[0]}
        return known


def _event(span: Seen, name: str) -> Mapping[str, Any]:
    return span.event(name) or {}


def _nodes(span: Seen, event: Mapping[str, Any], key: str = "nodes") -> list[dict[str, Any]] | None:
    value = event.get(key)
    return documents(span.parsed(value, "events")) if value is not None else None


def _retrieval(span: Seen) -> dict[str, Any]:
    start, end = _event(span, "RetrievalStartEvent"), _event(span, "RetrievalEndEvent")
    keys = ("str_or_query_bundle.query_str", "str_or_query_bundle")
    asked = next((e[key] for e in (start, end) for key in keys if e.get(key)), None)
    return {
        a.STAGE: "retrieval",
        a.RETRIEVAL_QUERY: asked if isinstance(asked, str) else None,
        a.RETRIEVAL_DOCUMENTS: _nodes(span, end),
    }


def _generation(span: Seen) -> dict[str, Any]:
    start = _event(span, "LLMChatStartEvent") or _event(span, "LLMCompletionStartEvent")
    end = _event(span, "LLMChatEndEvent") or _event(span, "LLMCompletionEndEvent")
    given = next((e[key] for e in (start, end) for key in ("messages", "prompt") if e.get(key)), None)
    told = span.parsed(end.get("response.message.blocks"), "events") or end.get("response.message.content")
    told = told or end.get("response.text")
    return {
        a.STAGE: "generation",
        a.REQUEST_MODEL: _first(start, "model_dict.model", "model_dict.model_name"),
        a.RESPONSE_MODEL: _first(end, "response.raw.model"),
        a.INPUT_MESSAGES: messages(span.parsed(given, "events"), "user"),
        a.OUTPUT_MESSAGES: messages({"role": "assistant", "content": told}, "assistant") if told else None,
        a.INPUT_TOKENS: integer(_first(end, "response.raw.usage.prompt_tokens", "response.raw.usage.input_tokens")),
        a.OUTPUT_TOKENS: integer(
            _first(end, "response.raw.usage.completion_tokens", "response.raw.usage.output_tokens")
        ),
    }


def _reranked(span: Seen) -> dict[str, Any]:
    """Both sides are known here, so it is told what it did to the documents; no more than that."""
    start, end = _event(span, "ReRankStartEvent"), _event(span, "ReRankEndEvent")
    before, after = _nodes(span, start), _nodes(span, end)
    both = before is not None and after is not None
    return {
        a.STAGE: "defense",
        PART: span.name.rpartition(".")[0] or span.name,
        a.RETRIEVAL_QUERY: _first(start, "query.query_str", "query"),
        a.RETRIEVAL_DOCUMENTS: before if both else None,
        a.AFTER_DEFENSE: after if both else None,
    }


def _first(event: Mapping[str, Any], *keys: str) -> Any:
    """Nothing is ``null`` in a text there."""
    return next((event[key] for key in keys if event.get(key) not in (None, "", "null")), None)


DIALECT = _LlamaIndex()
