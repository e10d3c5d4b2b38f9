"""LangSmith's OpenTelemetry export, and its runs: ``langsmith.span.kind``; inputs and outputs of any span in GenAI's
oldest keys."""

from __future__ import annotations

from typing import Any

from ragtrace.ingest.dialects._shapes import documents
from ragtrace.ingest.dialects.base import Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_KIND, _META = "langsmith.span.kind", "langsmith.metadata."
_LANGCHAIN = ("ls_retriever_name", "ls_integration", "lc_versions", "langgraph_step")


class _LangSmith:
    name, rank = "langsmith", 25

    def owns(self, span: Seen) -> bool:
        return _KIND in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = span.get(_KIND)
        known: dict[str, Any] = {a.FRAMEWORK: _framework(span)}
        if kind == "retriever":
            return known | {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load("gen_ai.prompt", "input.value")),
                a.RETRIEVAL_DOCUMENTS: documents(span.load("gen_ai.completion", "output.value")),
            }
        return known if kind == "llm" else known | {a.STAGE: None}  # a model call is told in GenAI's words


def _framework(span: Seen) -> str | None:
    """LangChain's own tracer marks its runs; what ``@traceable`` made has none of these."""
    return "langchain" if any(_META + key in span.attributes for key in _LANGCHAIN) else None


DIALECT = _LangSmith()
