"""OpenTelemetry's GenAI semantic conventions: attributes of today, attributes and events of before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages, nested
from ragtrace.ingest.dialects.base import Seen
from ragtrace.record import attributes as a

_MARKS = frozenset(("gen_ai.operation.name", "gen_ai.system", "gen_ai.provider.name", "gen_ai.request.model"))
_GENERATES = ("chat", "text_completion", "generate_content", "completion", "completions")
_DETAILS = "gen_ai.client.inference.operation.details"
_ROLES = {
    "gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool", "gen_ai.choice": "assistant",
}  # fmt: skip


class _OtelGenAI:
    name, rank = "otel_genai", 80

    def owns(self, span: Seen) -> bool:
        return not _MARKS.isdisjoint(span.attributes)

    def translate(self, span: Seen) -> dict[str, Any]:
        operation = span.get("gen_ai.operation.name")
        if operation == "retrieval":
            return {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: span.get(a.RETRIEVAL_QUERY, "gen_ai.retrieval.query"),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(a.RETRIEVAL_DOCUMENTS)),
            }
        given, answer = _given(span), _answer(span)
        if operation not in _GENERATES and not (operation is None and (given or answer or _spent(span))):
            return {a.STAGE: None} if operation is not None else {}
        return {
            a.STAGE: "generation",
            a.REQUEST_MODEL: span.get(a.REQUEST_MODEL),
            a.RESPONSE_MODEL: span.get(a.RESPONSE_MODEL),
            a.INPUT_MESSAGES: given,
            a.OUTPUT_MESSAGES: answer,
            a.INPUT_TOKENS: integer(span.get(a.INPUT_TOKENS, "gen_ai.usage.prompt_tokens")),
            a.OUTPUT_TOKENS: integer(span.get(a.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens")),
        }


def _spent(span: Seen) -> bool:
    return span.get(a.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens") is not None and "agent" not in span.name


def _given(span: Seen) -> list[dict[str, Any]] | None:
    details = span.event(_DETAILS) or {}
    told = span.load(a.INPUT_MESSAGES) or span.parsed(details.get(a.INPUT_MESSAGES), a.INPUT_MESSAGES)
    system = span.load("gen_ai.system_instructions", "gen_ai.system.instructions") or span.parsed(
        details.get("gen_ai.system_instructions"), "gen_ai.system_instructions"
    )
    found = messages(told, "user")
    if found is None:
        found = _older(span, "gen_ai.prompt", ("gen_ai.content.prompt",)) or _of_events(span, choice=False)
    if system and not (found and found[0]["role"] == "system"):
        found = (messages(system, "system") or []) + (found or [])
    return found or None


def _answer(span: Seen) -> list[dict[str, Any]] | None:
    details = span.event(_DETAILS) or {}
    told = span.load(a.OUTPUT_MESSAGES) or span.parsed(details.get(a.OUTPUT_MESSAGES), a.OUTPUT_MESSAGES)
    found = messages(told, "assistant")
    if found is None:
        found = _older(span, "gen_ai.completion", ("gen_ai.content.completion",)) or _of_events(span, choice=True)
    return found


def _older(span: Seen, key: str, events: tuple[str, ...]) -> list[dict[str, Any]] | None:
    """``gen_ai.prompt.0.content``, ``gen_ai.prompt`` as JSON, or an event that has it."""
    role = "user" if key == "gen_ai.prompt" else "assistant"
    if (flat := nested(span.attributes, key)) is not None:
        found = span.parsed(flat, key)
        if isinstance(found, list):
            found = [_whole(m) for m in found]
        return messages(found, role)
    for name in events:
        attributes = span.event(name)
        value = (attributes or {}).get(key) or span.get(name)
        if value:
            return messages(span.parsed(value, key), role)
    return None


def _whole(found: Any) -> Any:
    """A content that is JSON itself (OpenLLMetry writes lists of parts so)."""
    if isinstance(found, Mapping) and isinstance(found.get("content"), str) and found["content"][:2] == "[{":
        parts = messages(Seen("", None, {}).parsed(found["content"], "content"), "user")
        if parts and len(parts) == 1 and "role" in found:
            return {**found, "content": parts[0]["parts"]}
    return found


def _of_events(span: Seen, choice: bool) -> list[dict[str, Any]] | None:
    """One event a message: in the span's events, or in the attribute where some SDKs keep them."""
    listed = span.load("events", "all_messages_events")
    found: list[dict[str, Any]] = []
    for event in (*span.events, *(listed if isinstance(listed, list) else ())):
        if not isinstance(event, Mapping):
            continue
        name = event.get("event.name") or event.get("name")
        if name not in _ROLES or (name == "gen_ai.choice") != choice:
            continue
        held = event.get("attributes")
        attributes = held if isinstance(held, Mapping) else event
        body = span.parsed(attributes.get("gen_ai.event.content"), str(name)) or event.get("body") or attributes
        found += messages(_body(body, span, str(name)), _ROLES[str(name)]) or []
    return found or None


def _body(body: Any, span: Seen, name: str) -> Any:
    if not isinstance(body, Mapping):
        return body
    if (inner := span.parsed(body.get("message"), name)) is not None:
        finish = body.get("finish_reason")
        return {"role": "assistant", **inner, "finish_reason": finish} if isinstance(inner, Mapping) else inner
    kept = {k: span.parsed(v, name) if k == "tool_calls" else v for k, v in body.items()}
    return {"role": body.get("role") or _ROLES[name], **{k: v for k, v in kept.items() if k != "role"}}


DIALECT = _OtelGenAI()
