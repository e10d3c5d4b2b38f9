"""OpenLLMetry (Traceloop): ``traceloop.*``, and before it followed the GenAI conventions ``llm.*``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages, nested
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.ingest.dialects.vector_db import hit
from ragtrace.record import attributes as a

_MARKS = frozenset(
    ("traceloop.span.kind", "traceloop.workflow.name", "traceloop.entity.name", "llm.request.type", "llm.vendor")
)
_INPUT, _OUTPUT = "traceloop.entity.input", "traceloop.entity.output"
_RETRIEVES = ("vector_db_retrieve", "retrieval", "retrieve")
_OLDER = (("llm.request.model", "gen_ai.request.model"), ("llm.response.model", "gen_ai.response.model"))
_FOUND = "db.query.result"


class _OpenLLMetry:
    name, rank = "openllmetry", 20

    def owns(self, span: Seen) -> bool:
        return not _MARKS.isdisjoint(span.attributes) or (
            bool(span.events) and any(e.get("name") == _FOUND for e in span.events)
        )

    def translate(self, span: Seen) -> dict[str, Any]:
        entity = str(span.get("traceloop.entity.name") or "").removesuffix(".task").removesuffix(".workflow")
        known: dict[str, Any] = {a.FRAMEWORK: _framework(span)}
        kind = span.get("llm.request.type")
        if span.get("gen_ai.operation.name") in _RETRIEVES or entity.endswith("Retriever") or _hits(span):
            return known | _retrieval(span)
        if entity.endswith(("Postprocessor", "Reranker", "Rerank", "Compressor", "PIINodePostprocessor")):
            return known | {a.STAGE: "defense", PART: entity}
        if kind in ("chat", "completion"):
            return known | {a.STAGE: "generation"} | _older(span)
        if kind is not None or span.get("gen_ai.operation.name") == "execute_task":
            return known | {a.STAGE: None}
        return known | _named(span) | _llama_index(span)


def _named(span: Seen) -> dict[str, Any]:
    """LangChain's own name of the model, where the instrumentation knew none."""
    name = span.get("traceloop.association.properties.ls_model_name")
    if name and span.get(a.REQUEST_MODEL) in (None, "unknown"):
        return {a.REQUEST_MODEL: name, a.RESPONSE_MODEL: name}
    return {}


def _framework(span: Seen) -> str | None:
    if span.scope.startswith("opentelemetry.instrumentation."):
        name = span.scope.removeprefix("opentelemetry.instrumentation.")
        return {"llamaindex": "llama_index"}.get(name, name) or None
    return "langchain" if span.get("gen_ai.provider.name", "gen_ai.system") in ("langchain", "Langchain") else None


def _retrieval(span: Seen) -> dict[str, Any]:
    found = _hits(span)
    if not found:
        found = documents(span.load(_OUTPUT, "gen_ai.task.output"))
    return {
        a.STAGE: "retrieval",
        a.RETRIEVAL_QUERY: query_in(span.load(_INPUT, "gen_ai.task.input")),
        a.RETRIEVAL_DOCUMENTS: found,
    }


def _hits(span: Seen) -> list[dict[str, Any]] | None:
    """A vector database's answer: one event a document."""
    rows = [
        hit({str(key).removeprefix(f"{_FOUND}."): value for key, value in held.items()})
        for event in span.events
        if event.get("name") == _FOUND and isinstance(held := event.get("attributes"), Mapping)
    ]
    return [row for row in rows if row] or None


def _older(span: Seen) -> dict[str, Any]:
    found: dict[str, Any] = {
        a.INPUT_MESSAGES: messages(nested(span.attributes, "llm.prompts"), "user"),
        a.OUTPUT_MESSAGES: messages(nested(span.attributes, "llm.completions"), "assistant"),
        a.INPUT_TOKENS: integer(span.get("llm.usage.prompt_tokens")),
        a.OUTPUT_TOKENS: integer(span.get("llm.usage.completion_tokens")),
    }
    return found | {ours: span.get(ours, theirs) for theirs, ours in _OLDER}


def _llama_index(span: Seen) -> dict[str, Any]:
    """LlamaIndex's own calls of a model say so only by the shape of what they return."""
    if "gen_ai.operation.name" in span.attributes:
        return {}
    output = span.load(_OUTPUT)
    answer = isinstance(output, Mapping) and {"raw", "additional_kwargs", "logprobs"} & output.keys()
    if answer and {"text", "message"} & output.keys():
        given = span.load(_INPUT)
        if isinstance(given, Mapping) and isinstance(given.get("args"), list):
            given = given["args"]
        return {
            a.STAGE: "generation",
            a.INPUT_MESSAGES: messages(given, "user"),
            a.OUTPUT_MESSAGES: messages(output.get("message") or output.get("text"), "assistant"),
        }
    return {}


DIALECT = _OpenLLMetry()
