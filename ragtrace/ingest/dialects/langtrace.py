"""Langtrace: ``langtrace.service.*``; a framework's inputs and outputs, a vector database's hits as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects import otel_genai
from ragtrace.ingest.dialects._shapes import documents, integer, messages
from ragtrace.ingest.dialects.base import Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.ingest.dialects.vector_db import hit
from ragtrace.record import attributes as a

_SERVICE, _TYPE = "langtrace.service.name", "langtrace.service.type"
_INPUT, _OUTPUT = "langchain.inputs", "langchain.outputs"
_CALLS = ("invoke", "ainvoke", "stream", "astream", "get_relevant_documents", "aget_relevant_documents")
_SEARCHES = ("query", "search", "query_batch", "search_batch", "recommend", "discover", "generate", "aggregate")
_MODELS = ("chatmodel", "language_model", "llm", "chat_model")


class _Langtrace:
    name, rank = "langtrace", 18

    def owns(self, span: Seen) -> bool:
        return _SERVICE in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = span.get(_TYPE)
        if "db.operation" in span.attributes:
            return _search(span)
        if kind == "framework":
            return _framework(span)
        if kind == "llm" and span.name.endswith(".responses.create"):
            return _response(span)
        return {}  # a model call in GenAI's words


def _response(span: Seen) -> dict[str, Any]:
    """OpenAI's other API, whose operation has a name of its own."""
    known = otel_genai.generation(span)
    system = messages(span.get("instructions"), "system")
    return known | {a.INPUT_MESSAGES: (system or []) + (known[a.INPUT_MESSAGES] or []) or None}


def _search(span: Seen) -> dict[str, Any]:
    if span.get("db.operation") not in _SEARCHES:
        return {a.STAGE: None}
    hits = [held for event in span.events if (held := _held(event))]
    found = [hit(each) for each in hits]
    asked = span.load("db.query")
    if isinstance(asked, Mapping):
        asked = asked.get("query_texts") or query_in(asked)
    if isinstance(asked, list):
        asked = asked[0] if asked else None
    return {
        a.STAGE: "retrieval",
        a.RETRIEVAL_QUERY: asked if isinstance(asked, str) and asked != "null" else None,
        a.RETRIEVAL_DOCUMENTS: [row for row in found if row] or None,
    }


def _held(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """A hit, whatever its members are called: ``db.query.match.id`` with one database, ``id`` with another."""
    name, held = str(event.get("name")), event.get("attributes")
    if not name.endswith((".match", ".result")) or not isinstance(held, Mapping):
        return None
    return {str(key).rpartition(f"{name}.")[2]: value for key, value in held.items()}


def _framework(span: Seen) -> dict[str, Any]:
    service = str(span.get(_SERVICE)).lower()
    known: dict[str, Any] = {a.FRAMEWORK: service.split()[0] if service else None, a.STAGE: None}
    task, called = span.get("langchain.task.name"), span.name.rpartition(".")[2]
    if called not in _CALLS:
        return known
    given = span.load(_INPUT)
    if isinstance(given, list) and given:  # the call's arguments: what comes after the first is how, not what
        given = given[0]
    if task == "retriever":
        return known | {
            a.STAGE: "retrieval",
            a.RETRIEVAL_QUERY: query_in(given),
            a.RETRIEVAL_DOCUMENTS: documents(span.load(_OUTPUT)),
        }
    if task in _MODELS:
        told = span.load(_OUTPUT)
        meta = told.get("response_metadata") if isinstance(told, Mapping) else None
        meta = meta if isinstance(meta, Mapping) else {}
        answer = messages(told, "assistant")
        if answer and meta.get("finish_reason"):
            answer[-1].setdefault("finish_reason", str(meta["finish_reason"]))
        return known | {
            a.STAGE: "generation",
            a.REQUEST_MODEL: span.get(a.REQUEST_MODEL),
            a.RESPONSE_MODEL: meta.get("model_name"),
            a.INPUT_MESSAGES: messages(given, "user"),
            a.OUTPUT_MESSAGES: answer,
            a.INPUT_TOKENS: integer(span.get(a.INPUT_TOKENS)),
            a.OUTPUT_TOKENS: integer(span.get(a.OUTPUT_TOKENS)),
        }
    return known


DIALECT = _Langtrace()
