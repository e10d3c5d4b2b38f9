"""LangSmith's OpenTelemetry export: ``langsmith.span.kind``; inputs and outputs of any span in GenAI's oldest keys."""

from __future__ import annotations

from typing import Any

from ragtrace.ingest.dialects._shapes import documents
from ragtrace.ingest.dialects.base import Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_KIND = "langsmith.span.kind"


class _LangSmith:
    name, rank = "langsmith", 25

    def owns(self, span: Seen) -> bool:
        return _KIND in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = span.get(_KIND)
        if kind == "retriever":
            return {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load("gen_ai.prompt", "input.value")),
                a.RETRIEVAL_DOCUMENTS: documents(span.load("gen_ai.completion", "output.value")),
            }
        return {} if kind == "llm" else {a.STAGE: None}  # a model call is told in GenAI's words


DIALECT = _LangSmith()
