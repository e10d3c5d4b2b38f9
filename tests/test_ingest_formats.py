"""Containers: the same span out of every format, found by content, never by name."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.internal.encoder import _VarintBytes
from google.protobuf.json_format import ParseDict
from ingest_fixtures import ROW, SPAN, START, TRACE, Store, otlp, span, store
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.store import add

__all__ = ["store"]
ATTRIBUTES = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "gen_ai.usage.input_tokens": 3,
    "gen_ai.usage.output_tokens": 5, "ok": True, "share": 0.25, "tags": ["a", "b"],
    "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"hé"}]}]',
}  # fmt: skip
MORE = {"parentSpanId": "1" * 16, "kind": 3, "status": {"code": 1}}
EXPECTED = (
    TRACE, SPAN, "1" * 16, "x", "CLIENT", "OK", "shop", "somebody", "otel_genai", START, 5.0, "hé", "m-1", 5, 3,
    '["a","b"]',
)  # fmt: skip
COLUMNS = """
SELECT trace_id, span_id, parent_span_id, name, kind, s.status, service, scope, s.dialect, epoch_ns(s.start_time),
    s.duration_ms, response, model, completion_tokens, prompt_tokens, (s.attributes->'tags')::VARCHAR
FROM spans s JOIN generations USING (trace_id, span_id)
"""
REQUEST = otlp(span(ATTRIBUTES, **MORE))


def protobuf(request: ROW) -> bytes:
    """The same request in protobuf's own encoding; its JSON has ids in base64."""
    mine = json.loads(json.dumps(request))
    for holder in mine["resourceSpans"]:
        for scoped in holder["scopeSpans"]:
            for each in scoped["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in each:
                        each[key] = base64.b64encode(bytes.fromhex(each[key])).decode()
    return bytes(ParseDict(mine, ExportTraceServiceRequest()).SerializeToString())


BINARY = protobuf(REQUEST)
LENGTH = len(BINARY).to_bytes(4, "big")


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue())


def console(**more: Any) -> ROW:
    """As the Python SDK's console exporter has it."""
    return {
        "name": "x",
        "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{SPAN}", "trace_state": "[]"},
        "kind": "SpanKind.CLIENT",
        "parent_id": "0x" + "1" * 16,
        "start_time": "2026-09-21T14:13:20.000000Z",
        "end_time": "2026-09-21T14:13:20.005000Z",
        "status": {"status_code": "OK"},
        "attributes": ATTRIBUTES,
        "events": [],
        "links": [],
        "resource": {"attributes": {"service.name": "shop"}, "schema_url": ""},
        "instrumentation_scope": {"name": "somebody"},
    } | more


def go() -> ROW:
    """As Go's stdouttrace has it."""

    def pairs(attributes: ROW) -> list[ROW]:
        kinds = {bool: "BOOL", int: "INT64", float: "FLOAT64", str: "STRING", list: "STRINGSLICE"}
        return [{"Key": k, "Value": {"Type": kinds[type(v)], "Value": v}} for k, v in attributes.items()]

    return {
        "Name": "x",
        "SpanContext": {"TraceID": TRACE, "SpanID": SPAN, "TraceFlags": "01", "TraceState": "", "Remote": False},
        "Parent": {"TraceID": TRACE, "SpanID": "1" * 16},
        "SpanKind": 3, "StartTime": "2026-09-21T14:13:20Z", "EndTime": "2026-09-21T14:13:20.005Z",
        "Attributes": pairs(ATTRIBUTES), "Events": None, "Links": None, "Status": {"Code": "Ok", "Description": ""},
        "Resource": pairs({"service.name": "shop"}), "InstrumentationScope": {"Name": "somebody", "Version": ""},
    }  # fmt: skip


def javascript() -> ROW:
    """As OpenInference's and the JavaScript SDK's spans look when they are written as JSON."""
    return {
        "name": "x", "spanContext": {"traceId": TRACE, "spanId": SPAN}, "parentSpanContext": {"spanId": "1" * 16},
        "kind": 3, "startTime": [START // 10**9, START % 10**9], "endTime": [START // 10**9, START % 10**9 + 5_000_000],
        "status": {"code": 1}, "attributes": ATTRIBUTES, "events": [],
        "resource": {"attributes": {"service.name": "shop"}}, "instrumentationScope": {"name": "somebody"},
    }  # fmt: skip


def snake(value: Any) -> Any:
    if isinstance(value, list):
        return [snake(v) for v in value]
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake(v) for k, v in value.items()}
    return value


def dump(value: Any, **how: Any) -> bytes:
    return json.dumps(value, **how).encode()


FORMATS = {
    "OTLP/JSON": dump(REQUEST),
    "OTLP/JSON, a byte order mark": b"\xef\xbb\xbf" + dump(REQUEST),
    "OTLP/JSON, snake case": dump(snake(REQUEST)),
    "OTLP/JSON, ids in base64": dump(REQUEST).replace(
        TRACE.encode(), base64.b64encode(bytes.fromhex(TRACE))).replace(
        SPAN.encode(), base64.b64encode(bytes.fromhex(SPAN))),
    "OTLP/JSON, a line each (collector)": dump(REQUEST) + b"\n" + dump(REQUEST) + b"\n",
    "OTLP/JSON, a list": dump([REQUEST]),
    "OTLP/JSON, older name of scopes": dump(REQUEST).replace(b'"scopeSpans"', b'"instrumentationLibrarySpans"').replace(
        b'"scope"', b'"instrumentationLibrary"'),
    "OTLP/JSON, gzip": gzip.compress(dump(REQUEST)),
    "OTLP/JSON, gzip in two members": gzip.compress(dump(REQUEST) + b"\n") + gzip.compress(dump(REQUEST)),
    "OTLP/JSON, zstd": zstd(dump(REQUEST)),
    "OTLP/protobuf": BINARY,
    "OTLP/protobuf, gzip": gzip.compress(BINARY),
    "OTLP/protobuf, lengths of four bytes (collector)": LENGTH + BINARY + LENGTH + BINARY,
    "OTLP/protobuf, varint lengths": _VarintBytes(len(BINARY)) + BINARY,
    "OTLP/protobuf, each message zstd (collector)":
        2 * (len(zstd(BINARY)).to_bytes(4, "big") + zstd(BINARY)),
    "SDK console, one": dump(console(), indent=4),
    "SDK console, a list": dump([console()]),
    "SDK console, one after the other": dump(console(), indent=4) + b"\n" + dump(console(), indent=4) + b"\n",
    "SDK console, a line each": dump(console()) + b"\n" + dump(console()),
    "SDK console, in {spans}": dump({"spans": [console()]}),
    "Go's console": dump(go(), indent=1),
    "JavaScript": dump([javascript()]),
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_one_span_out_of_every_format(store: Store, format: str) -> None:
    report = store.took(FORMATS[format], "file.parquet")  # a name that means nothing
    assert (report.spans, report.files) == (1, 1)
    assert store.row(COLUMNS) == EXPECTED
    assert store.took(FORMATS["OTLP/JSON"], "again").spans == 0


def test_events_are_kept(store: Store) -> None:
    events = [("one", {"a": 1}), ("two", {})]
    both = otlp(span(events=events)), protobuf(otlp(span(spanId="2" * 16, events=events)))
    for number, content in enumerate(both):
        store.took(content, f"file{number}")
    told = [{"name": n, "time_ns": START, "attributes": a} for n, a in events]
    assert [json.loads(e) for (e,) in store.rows("SELECT events FROM spans")] == [told, told]


def test_times_and_odd_values(store: Store) -> None:
    store.took([console(start_time="2026-09-21T16:13:20.123456789+02:00", end_time=None, parent_id=None)])
    assert store.row("SELECT end_time, parent_span_id FROM spans") == (None, None)
    assert store.row("SELECT start_ns FROM span_data") == (START + 123_456_789,)
    odd = dump(console(context={"trace_id": TRACE, "span_id": "2" * 16}, attributes={"n": float("nan"), "big": 2**70}))
    store.took(odd.replace(b'"x"', b'"cut \\ud83d"'), "odd")
    name, attributes = store.row("SELECT name, attributes FROM spans WHERE span_id = '2222222222222222'")
    assert name == "cut ?" and json.loads(attributes)["n"] == "NaN"


def langfuse(**more: Any) -> ROW:
    """As the public API has it; see the real ones among the samples."""
    observation = {
        "id": SPAN, "traceId": TRACE, "type": "GENERATION", "name": "answer", "startTime": "2026-09-21T14:13:20.000Z",
        "endTime": "2026-09-21T14:13:21.000Z", "parentObservationId": None, "model": "gpt-x", "level": "DEFAULT",
        "input": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}],
        "output": {"role": "assistant", "content": "hi"}, "usageDetails": {"input": 7, "output": 2, "total": 9},
        "metadata": {"resourceAttributes": {"service.name": "shop"}, "scope": {"name": "langfuse-sdk"}},
    }  # fmt: skip
    return observation | more


GENERATION = "SELECT prompt, response, model, prompt_tokens, completion_tokens FROM generations"
SAID = ("be kind\n\nhello", "hi", "gpt-x", 7, 2)


@pytest.mark.parametrize("wrapped", ["export", "page", "list", "trace", "lines"])
def test_langfuse(store: Store, wrapped: str) -> None:
    trace = {"id": TRACE, "name": "t", "userId": "u", "sessionId": "s", "input": "hello", "tags": ["a"]}
    one = langfuse()
    content: Any = {
        "export": {"trace": trace, "observations": [one]}, "page": {"data": [one], "meta": {"page": 1}}, "list": [one],
        "trace": trace | {"observations": [one]}, "lines": dump(one) + b"\n" + dump(one),
    }[wrapped]  # fmt: skip
    store.took(content)
    assert store.row(GENERATION) == SAID
    attributes = json.loads(store.row("SELECT attributes FROM spans")[0])
    if wrapped in ("export", "trace"):
        assert (attributes["user.id"], attributes["session.id"]) == ("u", "s")
        assert attributes["langfuse.trace.input"] == "hello" and attributes["langfuse.trace.tags"] == ["a"]
    assert store.row("SELECT dialect, service, scope FROM spans") == ("langfuse", "shop", "langfuse-sdk")


def test_langfuse_retriever_and_ids_of_its_own(store: Store) -> None:
    found = [{"page_content": "text one", "metadata": {"a": 1}, "id": "d1"}, {"content": "text two", "score": 0.5}]
    retriever = langfuse(id="obs-1", traceId="trace-1", type="RETRIEVER", input="who?", output=found)
    child = langfuse(id="obs-2", traceId="trace-1", parentObservationId="obs-1", level="ERROR", statusMessage="no")
    store.took({"trace": {"id": "trace-1"}, "observations": [retriever, child]})
    assert store.row("SELECT query FROM stages WHERE stage = 'retrieval'") == ("who?",)
    assert store.rows("SELECT rank, document_id, score, content FROM documents ORDER BY rank") == [
        (1, "d1", None, "text one"), (2, None, 0.5, "text two"),
    ]  # fmt: skip
    assert store.row("SELECT query, status FROM generations") == ("who?", "ERROR")
    assert store.row(
        "SELECT a.attributes->>'langfuse.observation.id', length(a.span_id), length(a.trace_id) "
        "FROM spans a JOIN spans b ON a.span_id = b.parent_span_id AND a.trace_id = b.trace_id"
    ) == ("obs-1", 16, 32)


def phoenix(**more: Any) -> ROW:
    return {
        "name": "x", "span_kind": "LLM", "parent_id": None, "start_time": "2026-09-21T14:13:20+00:00",
        "end_time": "2026-09-21T14:13:21+00:00", "status_code": "OK", "status_message": "", "events": [],
        "context.span_id": SPAN, "context.trace_id": TRACE,
    } | more  # fmt: skip


def test_phoenix_data_frame(store: Store) -> None:
    rows = [
        phoenix(**{
            "attributes.llm.model_name": "m", "attributes.llm.token_count.prompt": 7.0,
            "attributes.llm.token_count.completion": 2.0, "attributes.openinference.span.kind": "LLM",
            "attributes.llm.input_messages": [
                {"message.role": "system", "message.content": "be kind", "message.tool_calls": None},
                {"message.role": "user", "message.content": "hello", "message.tool_calls": None}],
            "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "hi"}]}),
        phoenix(**{
            "context.span_id": "2" * 16, "parent_id": SPAN, "span_kind": "RETRIEVER", "attributes.input.value": "who?",
            "attributes.openinference.span.kind": "RETRIEVER",
            "attributes.retrieval.documents": [
                {"document.content": "text one", "document.id": "d1", "document.score": 0.5,
                 "document.metadata": {"a": 1}},
                {"document.content": "text two", "document.id": None, "document.score": float("nan"),
                 "document.metadata": None}]}),
    ]  # fmt: skip
    names = sorted({name for row in rows for name in row})
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    for column in ("start_time", "end_time"):  # pandas writes times as such
        place = table.schema.get_field_index(column)
        times = pa.array([row[column] for row in rows]).cast(pa.timestamp("ns", "UTC"))
        table = table.set_column(place, column, times)
    path = store.folder / "frame"
    pq.write_table(table, path)
    assert store.take(path).failed == []
    assert store.row(GENERATION) == ("be kind\n\nhello", "hi", "m", 7, 2)
    assert store.rows("SELECT rank, document_id, score, content FROM documents ORDER BY rank") == [
        (1, "d1", 0.5, "text one"), (2, None, None, "text two"),
    ]  # fmt: skip
    retrieval = "SELECT query, epoch_ns(start_time), status FROM stages WHERE stage = 'retrieval'"
    assert store.row(retrieval) == ("who?", START, "OK")


def test_phoenix_json(store: Store) -> None:
    """As its REST API has spans: one object each, the kind beside the attributes."""
    rows = [{k: v for k, v in phoenix().items() if not k.startswith("context.")} | {
        "id": "U3Bhbjox", "context": {"trace_id": TRACE, "span_id": SPAN},
        "attributes": {"llm.model_name": "m", "llm.input_messages.0.message.content": "hello",
                       "llm.output_messages.0.message.content": "hi"}}]  # fmt: skip
    store.took({"data": rows, "next_cursor": None})
    row = store.row("SELECT prompt, response, model, dialect FROM generations")
    assert row == ("hello", "hi", "m", "openinference")


def test_ours_stay_ours_through_other_formats(store: Store, tmp_path: Any) -> None:
    """Our spans out of an OTLP back end, the console or Phoenix tell what they told before."""
    attributes = {
        "ragtrace.stage": "retrieval", "ragtrace.framework": "langchain", "ragtrace.path": "astream",
        "ragtrace.capture": "full", "gen_ai.retrieval.query.text": "who?",
        "gen_ai.retrieval.documents": '[{"id":"a","content":"A"},{"id":"b","content":"B"}]',
        "ragtrace.documents.after_defense": '[{"id":"b","of":1}]',
        "ragtrace.effects": '[{"defense":"D","hook":"content","status":"changed"}]',
    }  # fmt: skip
    row = phoenix(**{f"attributes.{k}": v for k, v in attributes.items()}, span_kind="UNKNOWN")
    frame = store.folder / "frame"
    pq.write_table(pa.Table.from_pylist([row]), frame)
    contents = [otlp(span(attributes), scope="ragtrace"), protobuf(otlp(span(attributes), scope="ragtrace")), frame,
                console(attributes=attributes, instrumentation_scope={"name": "ragtrace"})]  # fmt: skip
    for number, content in enumerate(contents):
        mine = Store(tmp_path / str(number))
        path = content if content is frame else None
        if path is None:
            path = mine.write(content)
        assert mine.take(path).failed == []
        assert mine.row("SELECT dialect, path, query FROM stages") == ("ragtrace", "astream", "who?")
        assert mine.row("SELECT defense, hook, status FROM effects") == ("D", "content", "changed")
        assert mine.rows("SELECT phase, content FROM documents ORDER BY ALL") == [
            ("after_defense", "B"), ("retrieved", "A"), ("retrieved", "B"),
        ]  # fmt: skip
        mine.db.close()


def test_segments_and_other_files_in_one_command(store: Store, bench: Any) -> None:
    with bench.span("ours"):
        pass
    segment = bench.write()
    report = store.take(segment, store.write(REQUEST))
    assert (report.spans, report.files, report.segments) == (2, 1, 1) and segment.exists()
    assert add(store.db, [segment]).spans == 0
