"""Google's Agent Development Kit, version 1: a model's request and response whole, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ragtrace.ingest.dialects._shapes import integer, messages
from ragtrace.ingest.dialects.base import Seen
from ragtrace.record import attributes as a

_REQUEST, _RESPONSE = "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"


class _GoogleADK:
    name, rank = "google_adk", 22

    def owns(self, span: Seen) -> bool:
        return _REQUEST in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        known: dict[str, Any] = {a.FRAMEWORK: "google_adk", a.STAGE: None}
        if span.get("gen_ai.operation.name") == "execute_tool":  # both are there, and empty
            return known
        asked, answer = _object(span.load(_REQUEST)), _object(span.load(_RESPONSE))
        system = _object(asked.get("config")).get("system_instruction")
        given = (messages(system, "system") or []) + _said(asked.get("contents"), "user")
        content, usage = answer.get("content"), _object(answer.get("usage_metadata"))
        told = _said([content] if content else None, "assistant")
        if told and answer.get("finish_reason"):
            told[-1].setdefault("finish_reason", str(answer["finish_reason"]).lower())
        return known | {
            a.STAGE: "generation",
            a.REQUEST_MODEL: span.get(a.REQUEST_MODEL) or asked.get("model"),
            a.RESPONSE_MODEL: answer.get("model_version"),
            a.INPUT_MESSAGES: given or None,
            a.OUTPUT_MESSAGES: told or None,
            a.INPUT_TOKENS: integer(span.get(a.INPUT_TOKENS) or usage.get("prompt_token_count")),
            a.OUTPUT_TOKENS: integer(span.get(a.OUTPUT_TOKENS) or usage.get("candidates_token_count")),
        }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _said(contents: Any, role: str) -> list[dict[str, Any]]:
    if not isinstance(contents, list):
        return messages(contents, role) or []
    found: list[dict[str, Any]] = []
    for content in contents:
        if isinstance(content, Mapping) and isinstance(content.get("parts"), list):
            content = {**content, "parts": [_part(part) for part in content["parts"]]}
        found += messages(content, role) or []
    return found


def _part(part: Any) -> Any:
    """A tool's answer is an object of its own making; as a part of a message it is text."""
    returned = part.get("function_response") if isinstance(part, Mapping) else None
    if not isinstance(returned, Mapping):
        return part
    said = orjson.dumps(returned.get("response"), default=str).decode()
    return {"type": "tool_call_response", "id": returned.get("id"), "content": said}


DIALECT = _GoogleADK()
