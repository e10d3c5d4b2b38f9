"""MLflow: ``mlflow.spanType``, inputs and outputs as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_KIND, _INPUT, _OUTPUT = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"


class _MLflow:
    name, rank = "mlflow", 26

    def owns(self, span: Seen) -> bool:
        return _KIND in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = span.load(_KIND)  # a JSON string
        if kind == "RETRIEVER":
            return {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load(_INPUT)),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(_OUTPUT)),
            }
        if kind in ("LLM", "CHAT_MODEL"):
            given, usage = span.load(_INPUT), span.load("mlflow.chat.tokenUsage")
            usage = usage if isinstance(usage, Mapping) else {}
            model = given.get("model", given.get("model_name")) if isinstance(given, Mapping) else None
            return {
                a.STAGE: "generation",
                a.REQUEST_MODEL: span.load("mlflow.llm.model") or model,
                a.INPUT_MESSAGES: messages(given, "user"),
                a.OUTPUT_MESSAGES: messages(span.load(_OUTPUT), "assistant"),
                a.INPUT_TOKENS: integer(usage.get("input_tokens")),
                a.OUTPUT_TOKENS: integer(usage.get("output_tokens")),
            }
        if kind in ("RERANKER", "GUARDRAIL"):
            return {a.STAGE: "defense", PART: span.name}
        return {a.STAGE: None}


DIALECT = _MLflow()
