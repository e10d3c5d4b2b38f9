"""monocle: ``span.type``, entities with a number each, and what was said in the events data.input and data.output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages, nested
from ragtrace.ingest.dialects.base import Seen
from ragtrace.record import attributes as a

_ROLES = {
    "system": "system", "human": "user", "user": "user", "ai": "assistant", "assistant": "assistant",
    "model": "assistant", "tool": "tool",
}  # fmt: skip


class _Monocle:
    name, rank = "monocle", 10

    def owns(self, span: Seen) -> bool:
        return "monocle_apptrace.version" in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = str(span.get("span.type") or "")
        entities = [e for e in _entities(span) if isinstance(e, Mapping)]
        given, answer = _event(span, "data.input", "input"), _event(span, "data.output", "response")
        known: dict[str, Any] = {a.STAGE: None, a.FRAMEWORK: _framework(span, entities)}
        if kind == "retrieval":
            texts = [_plain(v) for v in given if isinstance(v, str)]
            found = [documents(_parsed(span, v)) for v in answer]
            return known | {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: texts[-1] if texts else None,
                a.RETRIEVAL_DOCUMENTS: next((d for d in found if d is not None), None),
            }
        if kind == "inference" or kind.startswith("inference."):
            spent = span.event("metadata") or {}
            return known | {
                a.STAGE: "generation",
                a.REQUEST_MODEL: _model(entities),
                a.INPUT_MESSAGES: _said(span, given, "user"),
                a.OUTPUT_MESSAGES: _said(span, answer, "assistant"),
                a.INPUT_TOKENS: integer(spent.get("prompt_tokens", spent.get("input_tokens"))),
                a.OUTPUT_TOKENS: integer(spent.get("completion_tokens", spent.get("output_tokens"))),
            }
        return known


def _entities(span: Seen) -> list[Any]:
    given = span.attributes.get("entity")
    if isinstance(given, list):
        return given
    found = nested(span.attributes, "entity")
    if isinstance(found, list):
        return found
    return [v for v in found.values() if isinstance(v, Mapping)] if isinstance(found, Mapping) else []


def _model(entities: list[Mapping[str, Any]]) -> Any:
    return next((e.get("name") for e in entities if str(e.get("type", "")).startswith("model.llm")), None)


def _framework(span: Seen, entities: list[Mapping[str, Any]]) -> str | None:
    kinds = " ".join(str(e.get("type", "")) for e in entities) + span.name
    return next((f for f in ("langgraph", "langchain", "llama_index", "haystack", "crewai") if f in kinds), None)


def _event(span: Seen, name: str, key: str) -> list[Any]:
    found = (span.event(name) or {}).get(key)
    return found if isinstance(found, list) else [] if found in (None, "") else [found]


def _parsed(span: Seen, value: Any) -> Any:
    return span.parsed(value, "events")


def _plain(value: str) -> str:
    """Texts are JSON strings in some versions."""
    parsed = Seen("", None, {}).parsed(value, "")
    if isinstance(parsed, Mapping) and len(parsed) == 1:
        [parsed] = parsed.values()
    return parsed if isinstance(parsed, str) else value


def _said(span: Seen, values: list[Any], role: str) -> list[dict[str, Any]] | None:
    """Each is a text, or an object of one member: who says what."""
    found: list[dict[str, Any]] = []
    for value in values:
        parsed = _parsed(span, value)
        if isinstance(parsed, Mapping) and parsed and parsed.keys() <= _ROLES.keys():
            for who, said in parsed.items():
                call = isinstance(said, Mapping) and said.get("type") == "tool_call"
                found += messages({"role": _ROLES[who], "content": [said] if call else said}, _ROLES[who]) or []
        else:
            found += messages(parsed, role) or []
    return found or None


DIALECT = _Monocle()
