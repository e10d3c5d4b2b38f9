"""Laminar: OpenLLMetry's spans under names of its own, and ``lmnr.span.input`` and ``output`` for any function."""

from __future__ import annotations

from typing import Any

from ragtrace.ingest.dialects._shapes import documents, messages
from ragtrace.ingest.dialects.base import Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_TYPE, _INPUT, _OUTPUT = "lmnr.span.type", "lmnr.span.input", "lmnr.span.output"
_RETRIEVES = ("vector_db_retrieve", "retrieval", "retrieve")
_FRAMEWORKS = {"langchain": "langchain", "llamaindex": "llama_index", "llama_index": "llama_index"}


class _Laminar:
    name, rank = "laminar", 19

    def owns(self, span: Seen) -> bool:
        return _TYPE in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        scope = span.get("lmnr.span.instrumentation_scope.name")
        known: dict[str, Any] = {a.FRAMEWORK: _FRAMEWORKS.get(str(scope))}
        operation = span.get("gen_ai.operation.name")
        if operation in _RETRIEVES:
            return known | {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load(_INPUT)),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(_OUTPUT)),
            }
        if span.get(_TYPE) != "LLM":
            return known | {a.STAGE: None}
        if span.get(a.INPUT_MESSAGES, a.OUTPUT_MESSAGES) is not None or operation is not None:
            return known  # told in GenAI's words
        return known | {
            a.STAGE: "generation",
            a.INPUT_MESSAGES: messages(span.load(_INPUT), "user"),
            a.OUTPUT_MESSAGES: messages(span.load(_OUTPUT), "assistant"),
        }


DIALECT = _Laminar()
