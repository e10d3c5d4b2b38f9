"""AgentOps: ``agentops.span.kind``; its model calls are told in GenAI's older words."""

from __future__ import annotations

from typing import Any

from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.record import attributes as a

_KIND = "agentops.span.kind"


class _AgentOps:
    name, rank = "agentops", 23

    def owns(self, span: Seen) -> bool:
        return _KIND in span.attributes

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = span.get(_KIND)
        if kind == "guardrail":
            return {a.STAGE: "defense", PART: span.name.removesuffix(".guardrail")}
        return {} if kind == "llm" else {a.STAGE: None}


DIALECT = _AgentOps()
