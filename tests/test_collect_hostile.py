"""Spans made by somebody who means harm: whatever is in them, they are merged, and no view fails on them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from ingest_fixtures import otlp, span
from test_collect import Posting

import ragtrace

ROOT = Path(__file__).resolve().parent.parent / "ragtrace"
_NAMESPACES = "ragtrace|gen_ai|llm|openinference|traceloop|langfuse|retrieval|input|output|embedding|reranker|ai|tool"
_KEY = re.compile(rf"""["'](({_NAMESPACES})[._][a-z_.]+)["']""")
# All attributes that any code or view of ours looks at.
KEYS = sorted(
    {m[1] for f in ROOT.rglob("*") if f.suffix in (".py", ".sql") for m in _KEY.finditer(f.read_text("utf-8"))}
)
SCOPES = ("ragtrace", "openinference.instrumentation.langchain", "opentelemetry.instrumentation.langchain", "ai", "")
KINDS = ("LLM", "RETRIEVER", "RERANKER", "workflow", "task", "chat", "retrieval", "generation", "context", 5)
MEMBERS = ("role", "content", "parts", "id", "score", "type", "text", "document", "documents", "message", "kwargs")
PLAIN = (
    "", "x", "{", "[1,2,{}]", '[{"role":1,"parts":"x"},null,3,"s"]', '{"a":[{"content":1}]}', "NaN",
    0, -(2**63), True, 1e308,
)  # fmt: skip


def _value(r: random.Random, depth: int = 0) -> Any:
    match r.randrange(15 if depth < 3 else 11):
        case 11:
            return [_value(r, depth + 1) for _ in range(r.randrange(4))]
        case 12:
            return {r.choice(MEMBERS): _value(r, depth + 1) for _ in range(r.randrange(4))}
        case 13:
            return json.dumps([_value(r, depth + 1) for _ in range(3)])
        case 14:
            return json.dumps({r.choice(MEMBERS): _value(r, depth + 1) for _ in range(3)})
        case plain:
            return PLAIN[plain]


def _attributes(r: random.Random) -> dict[str, Any]:
    made = {r.choice(KEYS): _value(r) for _ in range(r.randrange(1, 12))}
    kinds = ("openinference.span.kind", "traceloop.span.kind", "gen_ai.operation.name", "ragtrace.stage")
    return made | {key: r.choice(KINDS) for key in kinds if r.random() < 0.4}


def _span(r: random.Random, number: int) -> dict[str, Any]:
    """One of few traces, its parent any other span or itself."""
    names = ("gen_ai.content.prompt", "gen_ai.client.inference.operation.details", "exception")
    events = [(r.choice(names), {r.choice(KEYS): _value(r)}) for _ in range(r.randrange(2))]
    more = {
        "spanId": f"{number:016x}", "traceId": f"{r.randrange(1, 9):032x}", "name": r.choice(("", "chat m", "\0")),
        "parentSpanId": r.choice((f"{r.randrange(1, 1_000):016x}", "")), "events": events,
    }  # fmt: skip
    return span(_attributes(r), **more)


@pytest.mark.parametrize("told", ['{"type": {}, "x": 1}', '{"type": [""], "parts": 0}', '[{"role": 0, "type": ["x"]}]'])
async def test_what_no_dialect_has_thought_of_keeps_nobody_out(tmp_path: Path, told: str) -> None:
    post = Posting(tmp_path / "t.duckdb")
    hostile = span({"gen_ai.operation.name": "chat", "gen_ai.prompt": told, "gen_ai.system_instructions": told})
    assert (await post(otlp(hostile))).status_code == 200
    assert (await post(otlp(span({"gen_ai.operation.name": "chat"}, spanId="b" * 16)))).status_code == 200
    assert post.rows("SELECT count(*) FROM spans") == [(2,)]
    assert post.segments() == []


@pytest.mark.parametrize("seed", range(4))
async def test_hostile_spans_are_merged_and_every_view_answers(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    post = Posting(tmp_path / "t.duckdb")
    for batch in range(16):
        spans = [_span(r, batch * 50 + i + 1) for i in range(50)]
        assert (await post(otlp(*spans, scope=r.choice(SCOPES)))).content == b"{}"
    assert len(KEYS) > 50
    assert post.rows("SELECT count(*) FROM spans") == [(800,)]
    with ragtrace.open(post.database) as db:
        views = [name for (name,) in db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
        assert len(views) > 15
        for view in views:
            db.execute(f"SELECT * FROM {view}").fetchall()
    assert post.segments() == []
