"""What real instrumentors wrote of one question about two documents, read into the views; samples are named by version.

``ingest_samples.json`` is what they exported, run offline with a fake model, less the attributes that nobody reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest_fixtures import ROW, SPAN, START, TRACE, Store, otlp, pairs, span, store

from ragtrace.ingest.dialects import Seen
from ragtrace.ingest.dialects.base import dialects, tell

__all__ = ["store"]
SAMPLES: dict[str, ROW] = json.loads(Path(__file__).with_name("ingest_samples.json").read_text())
ALICE, BOB = "Alice Smith pays with card 77.", "Bob lives in Paris."
ASKED = f"be kind\n\ncontext: {ALICE} question: who pays?"
TWO = [(None, ALICE), (None, BOB)]  # score and text of the documents
NEAREST = [(0.9950371384620667, ALICE), (0.09950369596481323, BOB)]
ANSWERED = ("stub-1-2024", 17, 7)
FOUND = f"{ALICE}\n{BOB}"


def prompt(*parts: str) -> str:
    return "\n\n".join(("be kind", *parts))


# name: (dialect and framework of its stages, retrievals, generations: prompt (its end, after …), answer, model, tokens)
EXPECTED: dict[str, tuple[set[tuple[str, str | None]], list[tuple[str | None, Any]], list[tuple[Any, ...]]]] = {
    "openlit 1.45.0": ({("vector_db", None)}, [("who pays?", [])], []),
    "openlit 1.33.23": (
        {("vector_db", None), ("otel_genai", None)}, [("who pays?", [])],
        [(f"system: be kind\nuser: context: {ALICE} question: who pays?", ALICE, *ANSWERED)]),
    "openlit 1.45.0, langchain": (
        {("otel_genai", None)}, [("who pays?", TWO)], [("…] who pays?", ALICE, *ANSWERED)]),
    "langtrace-python-sdk 3.8.21": (
        {("langtrace", None)}, [("who pays?", [(0.03999999538064003, BOB), (0.17640002071857452, ALICE)])],
        [(ASKED, ALICE, *ANSWERED)]),
    "langtrace-python-sdk 3.8.21, langchain": (
        {("langtrace", "langchain")}, [("who pays?", TWO)], [("…] who pays?", ALICE, *ANSWERED)]),
    "langtrace-python-sdk 3.8.21, milvus": ({("langtrace", None)}, [(None, NEAREST)], []),
    "opentelemetry-instrumentation-milvus 0.60.0": ({("vector_db", None)}, [(None, NEAREST)], []),
    "haystack-ai 2.18.1": (
        {("haystack", "haystack")}, [("who pays card Paris", [(1.9185323747641343, ALICE), (1.693484588868048, BOB)])],
        [(f"be kind\n\n{ALICE} {BOB} who pays?", ALICE, *ANSWERED)]),
    "pydantic-ai-slim 2.31.1": (
        {("otel_genai", None)}, [], [(prompt("who pays?", f'["{ALICE}","{BOB}"]'), ALICE, *ANSWERED)]),
    "litellm 1.97.0": ({("openllmetry", None)}, [], [(ASKED, ALICE, *ANSWERED)]),
    "strands-agents 1.62.0": (
        {("otel_genai", None)}, [], [(prompt("who pays?", FOUND), ALICE, "stub-1", 17, 7)]),
    "strands-agents 1.62.0, latest conventions": (
        {("otel_genai", None)}, [], [(prompt("who pays?", FOUND), ALICE, "stub-1", 17, 7)]),
    "llama-index-observability-otel 0.7.0": (
        {("llama_index", "llama_index")}, [("who pays?", [(0.9999999999999998, BOB), (0.9999999999999998, ALICE)])],
        [("…\nQuery: who pays?\nAnswer: ", ALICE, *ANSWERED)]),
    "google-adk 1.19.0": (
        {("google_adk", "google_adk")}, [], [(f'…pays?\n\n{{"documents":["{ALICE}","{BOB}"]}}', ALICE, *ANSWERED)]),
    "google-adk 2.13.0": ({("otel_genai", None)}, [], [(None, None, "stub-1", 17, 7)]),  # texts are in its log records
    "logfire 3.9.1": ({("logfire", None)}, [], [(ASKED, ALICE, "stub-1", 17, 7)]),
    "logfire 5.4.0": ({("logfire", None)}, [], [(ASKED, ALICE, *ANSWERED)]),
    "opentelemetry-instrumentation-qdrant 0.62.4": ({("vector_db", None)}, [(None, [])], []),
    "langfuse 5.0.4": ({("langfuse", "langchain")}, [("who pays?", TWO)], [("…] who pays?", ALICE, *ANSWERED)]),
    "langsmith 0.15.1": (
        {("langsmith", "langchain")}, [("who pays?", TWO)], [("…] who pays?", ALICE, "stub-1", 17, 7)]),
    "azure-ai-inference 1.0.0b9": ({("otel_genai", None)}, [], [(ASKED, ALICE, *ANSWERED)]),
    "mlflow 3.17.2, through OTLP": ({("mlflow", None)}, [("who pays?", TWO)], [("…] who pays?", ALICE, *ANSWERED)]),
    "lmnr 0.8.2": (
        {("laminar", "langchain"), ("laminar", None)}, [("who pays?", TWO)],
        [('{"q":"q"}', "hi", None, None, None), ("…] who pays?", ALICE, *ANSWERED)]),
    "genkit 1.42.0 (JavaScript)": (
        {("genkit", "genkit")}, [("who pays?", TWO)],
        [("…- [d2]: Bob lives in Paris.\n\n", ALICE, "stub/stub-1", 17, 7)]),
    "ai 6.0.326 (Vercel, JavaScript)": ({("vercel", "vercel")}, [], [(prompt("who pays?"), ALICE, *ANSWERED)]),
    "agentops 0.4.21": ({("agentops", None)}, [], [(None, ALICE, "stub-1", 17, 7)]),  # it writes no messages
}  # fmt: skip
DEFENSES = {
    "langfuse 5.0.4": ["mask"], "agentops 0.4.21": ["mask"],
    "llama-index-observability-otel 0.7.0": ["SimilarityPostprocessor"],
}  # fmt: skip


def exported(name: str) -> ROW:
    """The sample as an OTLP request."""
    told = []
    for number, one in enumerate(SAMPLES[name]["spans"]):
        start, end = (str(START + ms * 1_000_000) for ms in one["ms"])
        more: ROW = {"parentSpanId": f"{one['parent'] + 1:016x}"} if "parent" in one else {}
        more |= {
            "name": one["name"],
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "spanId": f"{number + 1:016x}",
        }
        told.append(span(one["attributes"], events=one.get("events", ()), **more))
    return otlp(*told, scope=SAMPLES[name]["scope"])


def test_each_sample_has_an_expectation() -> None:
    assert SAMPLES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_what_an_instrumentor_wrote(store: Store, name: str) -> None:
    said, retrievals, generations = EXPECTED[name]
    assert store.took(exported(name)).spans == len(SAMPLES[name]["spans"])  # what is not known is kept
    assert set(store.rows("SELECT dialect, framework FROM stages")) == said
    found = store.rows("SELECT span_id, query FROM stages WHERE stage = 'retrieval' ORDER BY start_time")
    documents = [
        store.rows(f"SELECT score, content FROM documents WHERE span_id = '{span_id}' ORDER BY rank")
        for span_id, _ in found
    ]
    assert [(query, rows) for (_, query), rows in zip(found, documents, strict=True)] == retrievals
    calls = store.rows("SELECT prompt, response, model, prompt_tokens, completion_tokens FROM generations "
                       "ORDER BY start_time")  # fmt: skip
    assert len(calls) == len(generations)
    for (asked, *told), (wanted, *expected) in zip(calls, generations, strict=True):
        assert tuple(told) == tuple(expected)
        if wanted and wanted.startswith("…"):
            assert asked.endswith(wanted[1:])
        else:
            assert asked == wanted
    assert store.rows("SELECT defense, verdict FROM verdicts") == [(d, "unknown") for d in DEFENSES.get(name, ())]


def test_names_of_scopes_are_not_needed(store: Store) -> None:
    """The SDK's console exporter writes none."""
    name = "llama-index-observability-otel 0.7.0"
    request = exported(name)
    del request["resourceSpans"][0]["scopeSpans"][0]["scope"]
    store.took(request)
    assert store.rows("SELECT stage, dialect FROM stages ORDER BY start_time") == [
        ("retrieval", "llama_index"), ("generation", "llama_index"),
    ]  # fmt: skip


# From documentation and public source alone: attributes, and what they must become.
DOCUMENTED: dict[str, tuple[ROW, tuple[Any, ...]]] = {
    "Spring AI, a vector store": (
        {"db.operation.name": "query", "db.system": "pg_vector", "spring.ai.kind": "vector_store",
         "db.vector.query.content": "who pays?", "db.vector.query.top_k": 4,
         "db.vector.query.response.documents": json.dumps([ALICE, BOB])},
        ("retrieval", "who pays?", "vector_db", ALICE)),
    "Spring AI, texts with quotes and lines": (
        {"db.operation.name": "query", "db.vector.query.content": "who pays?",
         "db.vector.query.response.documents": f'["{ALICE}\n"Alice" is one", "{BOB}"]'},
        ("retrieval", "who pays?", "vector_db", f'{ALICE}\n"Alice" is one')),
    "Braintrust, a model": (
        {"braintrust.span_attributes": '{"type":"llm"}', "braintrust.metadata": '{"model":"m","provider":"openai"}',
         "braintrust.input_json": json.dumps([{"role": "user", "content": "who pays?"}]),
         "braintrust.output_json": json.dumps([{"index": 0, "message": {"role": "assistant", "content": ALICE}}]),
         "braintrust.metrics": '{"prompt_tokens":17,"completion_tokens":7}'},
        ("generation", None, "braintrust", ("who pays?", ALICE, "m", 17, 7))),
    "Microsoft.Extensions.AI, a model": (
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.system": "openai",
         "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "who pays?"}]}]),
         "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ALICE}]}]),
         "gen_ai.usage.input_tokens": 17, "gen_ai.usage.output_tokens": 7},
        ("generation", None, "otel_genai", ("who pays?", ALICE, "m", 17, 7))),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_documentation_says(store: Store, name: str) -> None:
    attributes, (stage, query, dialect, told) = DOCUMENTED[name]
    store.took(otlp(span(attributes)))
    assert store.row("SELECT stage, query, dialect FROM stages") == (stage, query, dialect)
    if stage == "retrieval":
        assert store.rows("SELECT content FROM documents ORDER BY rank") == [(told,), (BOB,)]
    else:
        columns = "prompt, response, model, prompt_tokens, completion_tokens"
        assert store.row(f"SELECT {columns} FROM generations") == told


@pytest.mark.parametrize(
    "attributes",
    [
        {"langtrace.service.name": "Qdrant", "langtrace.service.type": "vectordb", "db.operation": "upsert"},
        {
            "langtrace.service.name": "Langchain",
            "langtrace.service.type": "framework",
            "langchain.task.name": "chatmodel",
            "langchain.outputs": '{"model_name":"m"}',
        },
        {"gen_ai.operation.name": "vectordb", "db.operation.name": "UPSERT", "db.vector.query.top_k": 1},
        {"gen_ai.operation.name": "vectordb", "db.operation.name": "GET", "db.query.text": "['d1']"},
        {"db.system": "postgresql", "db.query.text": "SELECT 1", "db.response.returned_rows": 1},
        {"request_data": '{"input":"x","model":"e"}', "logfire.span_type": "span"},
        {"request_data": '{"messages":[],"stream":true}', "logfire.span_type": "span"},
        {"braintrust.span_attributes": '{"type":"task"}', "gen_ai.request.model": "m", "gen_ai.completion": "x"},
        {"gcp.vertex.agent.llm_request": "{}", "gen_ai.operation.name": "execute_tool"},
        {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"query":"q"}', "lmnr.span.output": '["a"]'},
        {"agentops.span.kind": "tool", "gen_ai.request.model": "m", "gen_ai.completion": "x"},
    ],
)
def test_what_is_no_stage(store: Store, attributes: ROW) -> None:
    store.took(otlp(span(attributes)))
    assert store.row("SELECT count(*) FROM stages") == (0,)
    assert store.row("SELECT count(*) FROM spans") == (1,)


def test_a_failed_call_is_a_call(store: Store) -> None:
    """Of Logfire's, one without an answer is the first half of a stream, or one that raised."""
    asked = {"request_data": '{"model":"m"}', "logfire.span_type": "span", "gen_ai.operation.name": "chat"}
    failed = [("exception", {"exception.type": "openai.APIConnectionError"})]
    store.took(otlp(span(asked), span(asked, spanId="2" * 16, events=failed)))
    assert store.rows("SELECT span_id FROM generations") == [("2" * 16,)]


@pytest.mark.parametrize(
    ("events", "query", "documents"),
    [
        ([("db.query.match", {"db.query.match.id": "d1", "db.query.match.score": 0.5,
                              "db.query.match.metadata": '{"text": "one", "page": 3}'})],
         "null", [("d1", 0.5, "one", {"page": 3})]),
        ([("db.query.match", {"_id": "d1", "text": "one", "score": 0.5})], "", [("d1", 0.5, "one", None)]),
        ([("db.response", {"db.response": "what nobody reads"})], {"query": "who?"}, []),
    ],
)  # fmt: skip
def test_hits_of_langtrace_by_their_source(store: Store, events: Any, query: Any, documents: Any) -> None:
    """Pinecone and MongoDB, as its patches of them write their hits (read, not run)."""
    asked = {"langtrace.service.name": "x", "langtrace.service.type": "vectordb", "db.operation": "query"}
    store.took(otlp(span(asked | {"db.query": query if isinstance(query, str) else json.dumps(query)}, events=events)))
    found = store.rows("SELECT document_id, score, content, metadata FROM documents ORDER BY rank")
    assert [(*row[:3], row[3] and json.loads(row[3])) for row in found] == documents
    assert store.row("SELECT query FROM stages") == ("who?" if "query" in query else None,)


def test_a_rerankers_two_sides(store: Store) -> None:
    """LlamaIndex's events have both (their fields, from its source): the effect is known, and no more is claimed."""
    nodes = [{"node": {"id_": i, "text": t, "class_name": "TextNode"}, "score": s}
             for i, t, s in (("d1", "one", 0.5), ("d2", "two", 0.25))]  # fmt: skip
    events = [("ReRankStartEvent", {"query.query_str": "who?", "nodes": json.dumps(nodes), "top_n": 1}),
              ("ReRankEndEvent", {"nodes": json.dumps(nodes[1:])})]  # fmt: skip
    store.took(otlp(span({}, events=events, name="LLMRerank._postprocess_nodes")))
    assert store.rows("SELECT phase, rank, document_id, content FROM documents ORDER BY phase, rank") == [
        ("after_defense", 1, "d2", "two"), ("retrieved", 1, "d1", "one"), ("retrieved", 2, "d2", "two"),
    ]  # fmt: skip
    assert store.rows("SELECT DISTINCT defense FROM verdicts") == [("LLMRerank",)]


def printed(attributes: ROW, body: Any = None, span_id: str = SPAN, name: str = "") -> ROW:
    """A log record as the Python SDK's console exporter prints it."""
    return {"body": body, "severity_number": 9, "severity_text": "INFO", "attributes": attributes,
            "dropped_attributes": 0, "timestamp": None, "observed_timestamp": "2026-11-30T19:16:58.374614Z",
            "trace_id": f"0x{TRACE}", "span_id": f"0x{span_id}", "trace_flags": 1, "event_name": name,
            "resource": {"attributes": {"service.name": "x"}, "schema_url": ""}}  # fmt: skip


GIVEN = [{"role": "user", "parts": [{"type": "text", "content": "who pays?"}]}]
TOLD = [{"role": "assistant", "parts": [{"type": "text", "content": ALICE}], "finish_reason": "stop"}]


@pytest.mark.parametrize(
    "records",
    [
        [printed({"gen_ai.input.messages": GIVEN, "gen_ai.output.messages": TOLD},
                 name="gen_ai.client.inference.operation.details")],
        [printed({"event.name": "gen_ai.user.message"}, json.dumps({"role": "user", "content": "who pays?"})),
         printed({"event.name": "gen_ai.choice"}, json.dumps({"index": 0, "message": {"content": ALICE}}))],
        [printed({}, {"content": [{"text": "who pays?"}]}, name="gen_ai.user.message"),
         printed({}, {"index": 0, "message": {"content": [{"text": ALICE}]}}, name="gen_ai.choice")],
    ],
    ids=["google-adk 2.13.0", "semantic-kernel 1.45.0", "opentelemetry-instrumentation-botocore 0.66b2"],
)  # fmt: skip
def test_spans_and_log_records_on_one_console(store: Store, records: list[ROW]) -> None:
    """An app with both exporters prints them in turns; a record outside of any span has zeros for ids."""
    call = {"name": "chat", "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{SPAN}"}, "parent_id": None,
            "start_time": "2026-11-30T19:16:58.3Z", "end_time": "2026-11-30T19:16:58.4Z", "events": [],
            "attributes": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}}  # fmt: skip
    nowhere = printed({}, {"content": "x"}, span_id="0" * 16, name="gen_ai.user.message") | {
        "trace_id": "0x" + "0" * 32
    }
    values = [*records, printed({}, "plain", name="app.started"), nowhere, call]
    assert store.took("\n".join(json.dumps(v, indent=4) for v in values).encode()).spans == 1
    assert store.row("SELECT prompt, response, model FROM generations") == ("who pays?", ALICE, "m")


def test_logs_of_python_through_otlp(store: Store) -> None:
    """Semantic Kernel writes its events by Python's logging, which leaves JSON in a text."""
    record = {"traceId": TRACE, "spanId": SPAN, "attributes": pairs({"event.name": "gen_ai.user.message"}),
              "body": {"stringValue": json.dumps({"role": "user", "content": "who pays?"})}}  # fmt: skip
    broken = record | {"body": {"stringValue": '{"role": "user"'}}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, broken]}]}]}
    call = otlp(span({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}))
    store.took(b"\n".join(json.dumps(v).encode() for v in (logs, call)))
    assert store.row("SELECT prompt FROM generations") == ("who pays?",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["role", "content", "text", "parts", "query", "id", "score", "messages", "message", "config",
                         "function_response", "response", "contents", "toolRequest", "toolResponse", "toolUse",
                         "toolResult", "usage", "type", "node",
                         "system_instruction", "query_texts", "metadata", "entity", "response_metadata"]),
        inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
VALUES = JSON | JSON.map(json.dumps) | JSON.map(repr).map("texts={}".format)
SPANS = [one for sample in SAMPLES.values() for one in sample["spans"]]
KEYS = sorted(
    {key for one in SPANS for key in one["attributes"]} | {k for told, _ in DOCUMENTED.values() for k in told}
)
EVENTS = sorted({name for one in SPANS for name, _ in one.get("events", ())} | {
    "ReRankStartEvent", "ReRankEndEvent", "db.search.result", "db.query.match"})  # fmt: skip
MEMBERS = sorted({key for one in SPANS for _, told in one.get("events", ()) for key in told})
NAMES = sorted({one["name"] for one in SPANS})
WORDS = ["vectordb", "chat", "query", "framework", "llm", "retriever", "chatmodel", "log", "LLM", '{"type":"llm"}']


@given(
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), VALUES | st.sampled_from(WORDS), max_size=8),
    st.lists(st.fixed_dictionaries({"name": st.sampled_from(EVENTS) | JSON,
        "attributes": st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=4)}), max_size=3),
)  # fmt: skip
def test_no_dialect_raises_whatever_is_said(name: str, attributes: ROW, events: list[ROW]) -> None:
    seen = Seen(name, "s", attributes, events)
    for dialect in dialects():
        if dialect.owns(seen):
            dialect.translate(seen)
    json.dumps(tell(seen).attributes)
