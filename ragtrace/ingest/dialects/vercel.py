"""Vercel's AI SDK: ``ai.*`` beside some ``gen_ai.*``; the outer ai.generateText repeats what the inner calls say."""

from __future__ import annotations

from typing import Any

from ragtrace.ingest.dialects._shapes import integer, messages
from ragtrace.ingest.dialects.base import Seen
from ragtrace.record import attributes as a

_OPERATION = "ai.operationId"
_GENERATES = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")


class _Vercel:
    name, rank = "vercel", 15

    def owns(self, span: Seen) -> bool:
        return _OPERATION in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        if not str(span.get(_OPERATION)).startswith(_GENERATES):
            return {a.STAGE: None, a.FRAMEWORK: "vercel"}
        text = span.get("ai.response.text", "ai.response.object")
        calls = span.load("ai.response.toolCalls")
        answer = {"role": "assistant", "content": text, "tool_calls": calls or []} if text or calls else None
        finish = span.get("ai.response.finishReason")
        told = messages(answer, "assistant")
        if told and finish:
            told[-1].setdefault("finish_reason", str(finish))
        return {
            a.STAGE: "generation",
            a.FRAMEWORK: "vercel",
            a.REQUEST_MODEL: span.get("gen_ai.request.model", "ai.model.id"),
            a.RESPONSE_MODEL: span.get("gen_ai.response.model", "ai.response.model"),
            a.INPUT_MESSAGES: messages(span.load("ai.prompt.messages", "ai.prompt"), "user"),
            a.OUTPUT_MESSAGES: told,
            a.INPUT_TOKENS: integer(span.get("ai.usage.inputTokens", "ai.usage.promptTokens", a.INPUT_TOKENS)),
            a.OUTPUT_TOKENS: integer(span.get("ai.usage.outputTokens", "ai.usage.completionTokens", a.OUTPUT_TOKENS)),
        }


DIALECT = _Vercel()
