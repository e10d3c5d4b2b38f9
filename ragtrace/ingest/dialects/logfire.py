"""Logfire's own instrumentation of model clients: ``request_data``, ``response_data``; two spans tell a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import integer, messages
from ragtrace.ingest.dialects.base import Seen
from ragtrace.record import attributes as a

_REQUEST, _RESPONSE, _TYPE = "request_data", "response_data", "logfire.span_type"
_MARKS = frozenset((_REQUEST, _TYPE))
_TOLD = frozenset((_RESPONSE, a.OUTPUT_MESSAGES, a.OUTPUT_TOKENS, "events"))
_OPERATION = "gen_ai.operation.name"  # since version 4; what it says, GenAI's dialect reads


class _Logfire:
    name, rank = "logfire", 28

    def owns(self, span: Seen) -> bool:
        return span.attributes.keys() >= _MARKS

    def translate(self, span: Seen) -> dict[str, Any]:
        request = span.load(_REQUEST)
        request = request if isinstance(request, Mapping) else {}
        if _is_opening(span, request):
            return {a.STAGE: None}
        response = span.load(_RESPONSE)
        response = response if isinstance(response, Mapping) else {}
        if not (request.get("messages") or response.get("message") or response.get("combined_chunk_content")):
            return {} if _OPERATION in span.attributes else {a.STAGE: None}
        usage = response.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        return {
            a.STAGE: "generation",
            a.REQUEST_MODEL: span.get(a.REQUEST_MODEL) or request.get("model"),
            a.INPUT_MESSAGES: messages(request, "user") if request.get("messages") else None,
            a.OUTPUT_MESSAGES: messages(response.get("message") or response.get("combined_chunk_content"), "assistant"),
            a.INPUT_TOKENS: integer(usage.get("prompt_tokens", usage.get("input_tokens"))),
            a.OUTPUT_TOKENS: integer(usage.get("completion_tokens", usage.get("output_tokens"))),
        }


def _is_opening(span: Seen, request: Mapping[str, Any]) -> bool:
    """The first span of a stream ends before the answer; a second one, a log, tells the whole call."""
    if span.get(_TYPE) == "log" or not _TOLD.isdisjoint(span.attributes):
        return False
    if request.get("stream") is True:
        return True
    chat = span.get(_OPERATION) == "chat" and request.get("stream") is None
    return chat and "streaming" not in span.name and span.event("exception") is None


DIALECT = _Logfire()
