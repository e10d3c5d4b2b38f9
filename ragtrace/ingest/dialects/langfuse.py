"""Langfuse: ``langfuse.observation.*``, as its SDK sends it and as our reader writes what an export says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_OBSERVATION = "langfuse.observation."
_IN = ("input", "prompt_tokens", "inputTokens", "promptTokens", "input_tokens")
_OUT = ("output", "completion_tokens", "outputTokens", "completionTokens", "output_tokens")


class _Langfuse:
    name, rank = "langfuse", 90

    def owns(self, span: Seen) -> bool:
        return _OBSERVATION + "type" in span.attributes or span.scope == "langfuse-sdk"

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = str(span.get(_OBSERVATION + "type") or "").lower()
        known: dict[str, Any] = {a.FRAMEWORK: _framework(span)}
        if kind == "generation":
            return known | _generation(span)
        if kind == "retriever":
            return known | {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load(_OBSERVATION + "input")),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(_OBSERVATION + "output")),
            }
        if kind == "guardrail":
            return known | {a.STAGE: "defense", PART: span.name}
        return known


def _framework(span: Seen) -> str | None:
    mark = _OBSERVATION + "metadata."
    return (
        "langchain"
        if any(
            mark + k in span.attributes for k in ("ls_provider", "ls_model_name", "ls_retriever_name", "langgraph_step")
        )
        else None
    )


def _generation(span: Seen) -> dict[str, Any]:
    usage = span.load(_OBSERVATION + "usage_details")
    usage = usage if isinstance(usage, Mapping) else {}
    return {
        a.STAGE: "generation",
        a.REQUEST_MODEL: span.get(_OBSERVATION + "model.name", _OBSERVATION + "metadata.ls_model_name"),
        a.INPUT_MESSAGES: messages(span.load(_OBSERVATION + "input"), "user"),
        a.OUTPUT_MESSAGES: messages(span.load(_OBSERVATION + "output"), "assistant"),
        a.INPUT_TOKENS: integer(next((usage[k] for k in _IN if k in usage), None)),
        a.OUTPUT_TOKENS: integer(next((usage[k] for k in _OUT if k in usage), None)),
    }


DIALECT = _Langfuse()
