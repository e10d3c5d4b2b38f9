"""Braintrust's SDKs of other languages than Python: ``braintrust.*``, JSON each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages
from ragtrace.ingest.dialects.base import Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_KIND = "braintrust.span_attributes"
_INPUT, _OUTPUT = (("braintrust." + name + "_json", "braintrust." + name) for name in ("input", "output"))
_MARKS = frozenset((_KIND, *_INPUT, *_OUTPUT))


class _Braintrust:
    name, rank = "braintrust", 24

    def owns(self, span: Seen) -> bool:
        return not _MARKS.isdisjoint(span.attributes)

    def translate(self, span: Seen) -> dict[str, Any]:
        said = span.load(_KIND)
        kind = said.get("type") if isinstance(said, Mapping) else span.get(_KIND + ".type")
        if kind == "llm":
            return _generation(span)
        if kind in ("retrieval", "retriever"):
            return {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: query_in(span.load(*_INPUT)),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(*_OUTPUT)),
            }
        return {} if kind is None else {a.STAGE: None}


def _generation(span: Seen) -> dict[str, Any]:
    metrics, metadata = _object(span, "braintrust.metrics"), _object(span, "braintrust.metadata")
    return {
        a.STAGE: "generation",
        a.REQUEST_MODEL: span.get(a.REQUEST_MODEL) or metadata.get("model"),
        a.INPUT_MESSAGES: messages(span.load(*_INPUT), "user"),
        a.OUTPUT_MESSAGES: messages(span.load(*_OUTPUT), "assistant"),
        a.INPUT_TOKENS: integer(metrics.get("prompt_tokens", span.get("braintrust.metrics.prompt_tokens"))),
        a.OUTPUT_TOKENS: integer(metrics.get("completion_tokens", span.get("braintrust.metrics.completion_tokens"))),
    }


def _object(span: Seen, key: str) -> Mapping[str, Any]:
    found = span.load(key)
    return found if isinstance(found, Mapping) else {}


DIALECT = _Braintrust()
