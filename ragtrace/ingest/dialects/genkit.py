"""Firebase Genkit: ``genkit:metadata:subtype`` says what an action is; input and output are JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ragtrace.ingest.dialects._shapes import integer, made, messages
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.record import attributes as a

_KIND, _INPUT, _OUTPUT = "genkit:metadata:subtype", "genkit:input", "genkit:output"


class _Genkit:
    name, rank = "genkit", 21

    def owns(self, span: Seen) -> bool:
        return "genkit:type" in span.attributes or _KIND in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        known: dict[str, Any] = {a.FRAMEWORK: "genkit", a.STAGE: None}
        kind = span.get(_KIND)
        if kind not in ("model", "retriever", "reranker"):
            return known
        given, told = _object(span.load(_INPUT)), _object(span.load(_OUTPUT))
        if kind == "retriever":
            return known | {
                a.STAGE: "retrieval",
                a.RETRIEVAL_QUERY: _query(given),
                a.RETRIEVAL_DOCUMENTS: _documents(told),
            }
        if kind == "reranker":
            before, after = _documents(given), _documents(told)
            both = before is not None and after is not None
            return known | {
                a.STAGE: "defense",
                PART: span.get("genkit:name") or span.name,
                a.RETRIEVAL_QUERY: _query(given),
                a.RETRIEVAL_DOCUMENTS: before if both else None,
                a.AFTER_DEFENSE: after if both else None,
            }
        usage = _object(told.get("usage"))
        answer = _said([told["message"]] if told.get("message") else None, "assistant")
        if answer and told.get("finishReason"):
            answer[-1].setdefault("finish_reason", str(told["finishReason"]))
        return known | {
            a.STAGE: "generation",
            a.REQUEST_MODEL: span.get("genkit:name"),
            a.INPUT_MESSAGES: _said(given.get("messages"), "user"),
            a.OUTPUT_MESSAGES: answer,
            a.INPUT_TOKENS: integer(usage.get("inputTokens")),
            a.OUTPUT_TOKENS: integer(usage.get("outputTokens")),
        }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(content: Any) -> str | None:
    """Of a list of parts, the texts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return "\n".join(texts) if texts else None


def _query(given: Mapping[str, Any]) -> str | None:
    asked = given.get("query")
    return _text(asked.get("content") if isinstance(asked, Mapping) else asked)


def _documents(holder: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    listed = holder.get("documents")
    if not isinstance(listed, list):
        return None
    found = []
    for each in map(_object, listed):
        about = _object(each.get("metadata"))
        found.append(made(about.get("id"), about.get("score"), _text(each.get("content")), dict(about) or None))
    return [row for row in found if row]


def _said(listed: Any, role: str) -> list[dict[str, Any]] | None:
    found: list[dict[str, Any]] = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("content"), list):
            each = {**each, "content": [_part(part) for part in each["content"]]}
        found += messages(each, role) or []
    return found or None


def _part(part: Any) -> Any:
    if isinstance(part, Mapping) and isinstance(called := part.get("toolRequest"), Mapping):
        return {"type": "tool_call", "id": called.get("ref"), "name": called.get("name"), "input": called.get("input")}
    if isinstance(part, Mapping) and isinstance(returned := part.get("toolResponse"), Mapping):
        said = returned.get("output")
        text = said if isinstance(said, str) else orjson.dumps(said, default=str).decode()
        return {"type": "tool_call_response", "id": returned.get("ref"), "content": text}
    return part


DIALECT = _Genkit()
