"""Haystack: ``haystack.component.*``, one span a component; inputs and outputs where content tracing is on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_TYPE, _INPUT, _OUTPUT = (f"haystack.component.{name}" for name in ("type", "input", "output"))
_PARTS = ("Ranker", "Cleaner", "Redactor", "Masker", "Filter", "Anonymizer")


class _Haystack:
    name, rank = "haystack", 27

    def owns(self, span: Seen) -> bool:
        return _TYPE in span.attributes or span.name.startswith("haystack.pipeline")

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = str(span.get(_TYPE) or "")
        known: dict[str, Any] = {a.FRAMEWORK: "haystack", a.STAGE: None}
        if kind.endswith("Retriever"):
            return known | {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load(_INPUT)),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(_OUTPUT)),
            }
        if kind.endswith("Generator"):
            return known | _generation(span)
        return known | {a.STAGE: "defense", PART: kind} if kind.endswith(_PARTS) else known


def _generation(span: Seen) -> dict[str, Any]:
    output = span.load(_OUTPUT)
    output = output if isinstance(output, Mapping) else {}
    told = output.get("replies")
    meta = next((m for m in (output.get("meta") or ()) if isinstance(m, Mapping)), _meta(told))
    usage = meta.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return {
        a.STAGE: "generation",
        a.REQUEST_MODEL: meta.get("model"),
        a.INPUT_MESSAGES: messages(span.load(_INPUT), "user"),
        a.OUTPUT_MESSAGES: messages(told, "assistant"),
        a.INPUT_TOKENS: integer(usage.get("prompt_tokens", usage.get("input_tokens"))),
        a.OUTPUT_TOKENS: integer(usage.get("completion_tokens", usage.get("output_tokens"))),
    }


def _meta(replies: Any) -> Mapping[str, Any]:
    """Of a chat generator, each message has its own."""
    first = replies[0] if isinstance(replies, list) and replies else None
    found = first.get("meta", first.get("_meta")) if isinstance(first, Mapping) else None
    return found if isinstance(found, Mapping) else {}


DIALECT = _Haystack()
