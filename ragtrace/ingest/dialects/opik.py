"""Opik: ``opik.*``, as our reader writes what an export says. It knows models and guardrails, and no retrievers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import integer, messages
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.record import attributes as a

_TYPE = "opik.type"


class _Opik:
    name, rank = "opik", 17

    def owns(self, span: Seen) -> bool:
        return _TYPE in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = span.get(_TYPE)
        known: dict[str, Any] = {a.FRAMEWORK: span.get("opik.metadata.created_from")}
        if kind == "llm":
            return known | _generation(span)
        return known | ({a.STAGE: "defense", PART: span.name} if kind == "guardrail" else {a.STAGE: None})


def _generation(span: Seen) -> dict[str, Any]:
    usage = span.load("opik.usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return {
        a.STAGE: "generation",
        a.PROVIDER: span.get("opik.provider", "opik.metadata.ls_provider"),
        a.REQUEST_MODEL: span.get("opik.model", "opik.metadata.ls_model_name"),
        a.INPUT_MESSAGES: messages(span.load("opik.input"), "user"),
        a.OUTPUT_MESSAGES: messages(span.load("opik.output"), "assistant"),
        a.INPUT_TOKENS: integer(usage.get("prompt_tokens")),
        a.OUTPUT_TOKENS: integer(usage.get("completion_tokens")),
    }


DIALECT = _Opik()
