"""OpenTelemetry's GenAI semantic conventions: attributes of today, attributes and events of before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, integer, messages, nested
from ragtrace.ingest.dialects.base import Seen
from ragtrace.ingest.dialects.openinference import query_in
from ragtrace.record import attributes as a

_MARKS = frozenset(("gen_ai.operation.name", "gen_ai.system", "gen_ai.provider.name", "gen_ai.request.model"))
_GENERATES = ("chat", "text_completion", "generate_content", "completion", "completions")
_RETRIEVES = ("retrieval", "retrieve", "vector_db_retrieve")  # the first is the convention's
_DETAILS = "gen_ai.client.inference.operation.details"
_SYSTEM = "gen_ai.system_instructions"
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
        if operation in _RETRIEVES:
            return {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: span.get(a.RETRIEVAL_QUERY, "gen_ai.retrieval.query")
                or query_in(span.load("input.value")),
                a.RETRIEVAL_DOCUMENTS: documents(span.load(a.RETRIEVAL_DOCUMENTS, "output.value")),
            }
        if operation is not None and operation not in _GENERATES:
            return {a.STAGE: None}
        known = generation(span)
        if operation is None and not (known[a.INPUT_MESSAGES] or known[a.OUTPUT_MESSAGES] or _spent(span)):
            return {}
        return known


def generation(span: Seen) -> dict[str, Any]:
    """A model call, of which no more is asked than that it is one."""
    details = _details(span)
    return {
        a.STAGE: "generation",
        a.REQUEST_MODEL: span.get(a.REQUEST_MODEL),
        a.RESPONSE_MODEL: span.get(a.RESPONSE_MODEL),
        a.INPUT_MESSAGES: _given(span, details),
        a.OUTPUT_MESSAGES: _answer(span, details),
        a.INPUT_TOKENS: integer(span.get(a.INPUT_TOKENS, "gen_ai.usage.prompt_tokens")),
        a.OUTPUT_TOKENS: integer(span.get(a.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens")),
    }


def _details(span: Seen) -> Mapping[str, Any]:
    """What events say of the call: one has all of it, or each a part (Strands)."""
    found: dict[str, Any] = {}
    for event in span.events:
        if event.get("name") == _DETAILS and isinstance(event.get("attributes"), Mapping):
            found = {**event["attributes"], **found}
    return found


def _spent(span: Seen) -> bool:
    return span.get(a.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens") is not None and "agent" not in span.name


def _given(span: Seen, details: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    told = span.load(a.INPUT_MESSAGES) or span.parsed(details.get(a.INPUT_MESSAGES), a.INPUT_MESSAGES)
    system = span.load(_SYSTEM, "gen_ai.system.instructions") or span.parsed(details.get(_SYSTEM), _SYSTEM)
    found = messages(told, "user")
    if found is None:
        found = _older(span, "gen_ai.prompt", ("gen_ai.content.prompt",)) or _of_events(span, choice=False)
    if system and not (found and found[0]["role"] == "system"):
        found = (messages(system, "system") or []) + (found or [])
    return found or None


def _answer(span: Seen, details: Mapping[str, Any]) -> list[dict[str, Any]] | None:
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
        if not isinstance(name, str) or name not in _ROLES or (name == "gen_ai.choice") != choice:
            continue
        held = event.get("attributes")
        attributes = held if isinstance(held, Mapping) else event
        body = span.parsed(attributes.get("gen_ai.event.content"), name) or event.get("body") or attributes
        found += messages(_body(body, span, name), _ROLES[name]) or []
    return found or None


def _body(body: Any, span: Seen, name: str) -> Any:
    if not isinstance(body, Mapping):
        return body
    if (inner := span.parsed(body.get("message"), name)) is not None:
        finish = body.get("finish_reason")
        if isinstance(inner, Mapping):
            return {"role": "assistant", **inner, "finish_reason": finish}
        told = _blocks(inner)
        return {"role": "assistant", "content": told, "finish_reason": finish} if told is not None else inner
    kept = {k: span.parsed(v, name) if k == "tool_calls" else v for k, v in body.items()}
    told = _blocks(span.parsed(kept.get("content"), name))
    if told is not None:
        kept["content"] = told
    return {"role": body.get("role") or _ROLES[name], **{k: v for k, v in kept.items() if k != "role"}}


def _blocks(value: Any) -> list[dict[str, Any]] | None:
    """Bedrock's blocks, which Strands writes as JSON, as parts of a message; None for anything else."""
    if not isinstance(value, list) or not value:
        return None
    found = [_block(each) if isinstance(each, Mapping) and len(each) == 1 else None for each in value]
    return [part for part in found if part] if all(found) else None


def _block(value: Mapping[str, Any]) -> dict[str, Any] | None:
    [(kind, held)] = value.items()
    if kind == "text" and isinstance(held, str):
        return {"type": "text", "content": held}
    if kind == "toolUse" and isinstance(held, Mapping):
        return {"type": "tool_use", "id": held.get("toolUseId"), "name": held.get("name"), "input": held.get("input")}
    if kind == "toolResult" and isinstance(held, Mapping):
        said = _blocks(held.get("content"))
        text = "\n".join(str(part.get("content")) for part in said) if said else held.get("content")
        return {"type": "tool_result", "id": held.get("toolUseId"), "content": text}
    return None


DIALECT = _OtelGenAI()
