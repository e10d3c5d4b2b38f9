"""What back ends and other tracers export: the same retrieval and model call out of each, and what they cannot know."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ingest_fixtures import ROW, START, TRACE, Store, otlp, pairs, span, store

__all__ = ["store"]
ROOT, FOUND, SAID = "1" * 16, "2" * 16, "3" * 16
DOCS = [("d0", 0.5, "Alice, room 0"), ("d1", 0.25, "Bob, room 1")]
PROMPT, ANSWER = "Alice? Bob? who?", "Alice."
NS, US, MS = START, START // 1_000, START // 1_000_000
ISO = "2026-09-21T14:13:20.000000+00:00"
EXPECTED = {
    "stages": [("generation", "who?", "m", None), ("retrieval", "who?", None, None)],
    "documents": [(1, "d0", 0.5, "Alice, room 0"), (2, "d1", 0.25, "Bob, room 1")],
    "generations": [(PROMPT, ANSWER, "m", 11, 3, None)],
    "spans": [(TRACE, ROOT, None), (TRACE, FOUND, ROOT), (TRACE, SAID, ROOT)],
}
QUERIES = {
    "stages": "SELECT stage, query, model, path FROM stages ORDER BY stage",
    "documents": "SELECT rank, document_id, score, content FROM documents ORDER BY rank",
    "generations": "SELECT prompt, response, model, prompt_tokens, completion_tokens, path FROM generations",
    "spans": "SELECT trace_id, span_id, parent_span_id FROM spans ORDER BY span_id",
}
OPENINFERENCE: dict[str, ROW] = {
    FOUND: {"openinference.span.kind": "RETRIEVER", "input.value": "who?"}
    | {
        f"retrieval.documents.{i}.document.{key}": value
        for i, row in enumerate(DOCS)
        for key, value in zip(("id", "score", "content"), row, strict=True)
    },
    SAID: {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.prompt": 11,
        "llm.token_count.completion": 3, "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": PROMPT, "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": ANSWER,
    },
    ROOT: {"openinference.span.kind": "CHAIN"},
}  # fmt: skip


def told(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {name: store.rows(query) for name, query in QUERIES.items()}


def nested(attributes: ROW) -> ROW:
    """The lists that stand flat, as Phoenix gives them."""
    documents = [{f"document.{k}": v for k, v in zip(("id", "score", "content"), row, strict=True)} for row in DOCS]
    messages = {key: [{"message.role": role, "message.content": text}]
                for key, role, text in (("llm.input_messages", "user", PROMPT),
                                        ("llm.output_messages", "assistant", ANSWER))}  # fmt: skip
    kept = {k: v for k, v in attributes.items() if not k.startswith(("retrieval.documents.", "llm.input_messages.",
                                                                     "llm.output_messages."))}  # fmt: skip
    if attributes["openinference.span.kind"] == "RETRIEVER":
        return kept | {"retrieval.documents": documents}
    return kept | messages if attributes["openinference.span.kind"] == "LLM" else kept


def phoenix_rows(time: Any) -> list[ROW]:
    return [
        {"name": "x", "span_kind": attributes["openinference.span.kind"], "parent_id": None if id == ROOT else ROOT,
         "start_time": time, "end_time": time, "status_code": "OK", "status_message": "", "events": [],
         "context.span_id": id, "context.trace_id": TRACE}
        | {f"attributes.{key}": value for key, value in nested(attributes).items()}
        for id, attributes in OPENINFERENCE.items()
    ]  # fmt: skip


def phoenix_csv() -> bytes:
    rows = phoenix_rows("2026-09-21 14:13:20.000000+00:00")
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def columns(rows: list[ROW]) -> ROW:
    names = dict.fromkeys(key for row in rows for key in row)
    return {name: {row["context.span_id"]: row.get(name) for row in rows} for name in names}


def jaeger() -> ROW:
    def tag(key: str, value: Any) -> ROW:
        kinds = {bool: "bool", int: "int64", float: "float64", str: "string"}
        return {"key": key, "type": kinds[type(value)], "value": value}

    spans = [
        {"traceID": TRACE.lstrip("0"), "spanID": id, "operationName": "x", "startTime": US, "duration": 5_000,
         "references": [] if id == ROOT else [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": ROOT}],
         "tags": [tag(k, v) for k, v in attributes.items()] + [tag("span.kind", "client")],
         "logs": [{"timestamp": US, "fields": [tag("event", "exception"), tag("exception.type", "E")]}],
         "processID": "p1", "warnings": None}
        for id, attributes in OPENINFERENCE.items()
    ]  # fmt: skip
    process = {"serviceName": "shop", "tags": [tag("host.name", "h")]}
    return {"data": [{"traceID": TRACE, "spans": spans, "processes": {"p1": process}}], "total": 0, "errors": None}


def zipkin() -> list[ROW]:
    return [
        {"traceId": TRACE, "id": id, "name": "x", "timestamp": US, "duration": 5_000, "kind": "CLIENT",
         "localEndpoint": {"serviceName": "shop"}, "tags": {k: str(v) for k, v in attributes.items()}}
        | ({} if id == ROOT else {"parentId": ROOT})
        for id, attributes in OPENINFERENCE.items()
    ]  # fmt: skip


def sent() -> list[ROW]:
    return [
        span(attributes, spanId=id, **({} if id == ROOT else {"parentSpanId": ROOT}))
        for id, attributes in OPENINFERENCE.items()
    ]


def tempo(holder: str) -> ROW:
    [resource] = otlp(*sent())["resourceSpans"]
    return {"batches": [resource]} if holder == "batches" else {"trace": {"resourceSpans": [resource]}}


def lines_of_spans() -> bytes:
    """OTLP's spans one a line, values with all their members, as typed libraries write them."""

    def whole(value: ROW) -> ROW:
        return {kind: value.get(kind) for kind in ("stringValue", "intValue", "doubleValue", "boolValue")}

    lines = [
        {**each, "attributes": [{"key": p["key"], "value": whole(p["value"])} for p in each["attributes"]]}
        for each in sent()
    ]
    return b"\n".join(json.dumps(line).encode() for line in lines)


def mlflow() -> ROW:
    def id64(hex: str) -> str:
        return base64.b64encode(bytes.fromhex(hex)).decode()

    documents = [{"page_content": text, "metadata": {}, "id": id, "score": score} for id, score, text in DOCS]
    answer = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}], "model": "m"}
    values: dict[str, tuple[str, Any, Any]] = {
        ROOT: ("CHAIN", {"q": "who?"}, ANSWER),
        FOUND: ("RETRIEVER", {"query": "who?"}, documents),
        SAID: ("CHAT_MODEL", {"messages": [{"role": "user", "content": PROMPT}], "model": "m"}, answer),
    }
    usage = {"mlflow.chat.tokenUsage": json.dumps({"input_tokens": 11, "output_tokens": 3, "total_tokens": 14})}
    spans = [
        {"trace_id": id64(TRACE), "span_id": id64(id), "parent_span_id": None if id == ROOT else id64(ROOT),
         "name": "x", "start_time_unix_nano": NS, "end_time_unix_nano": NS + 5, "events": [], "links": [],
         "status": {"code": "STATUS_CODE_OK", "message": ""},
         "attributes": {"mlflow.spanType": json.dumps(kind), "mlflow.spanInputs": json.dumps(given),
                        "mlflow.spanOutputs": json.dumps(got), "mlflow.traceRequestId": '"tr-1"'}
         | (usage if kind == "CHAT_MODEL" else {})}
        for id, (kind, given, got) in values.items()
    ]  # fmt: skip
    return {"info": {"trace_id": "tr-1", "request_time": ISO, "state": "OK"}, "data": {"spans": spans}}


def mlflow_2() -> ROW:
    """As ``Trace.to_json`` of MLflow 2.22 writes it (looked at beside one that it wrote)."""
    trace = mlflow()
    spans = [
        {"name": s["name"], "context": {"span_id": id, "trace_id": TRACE}, "parent_id": None if id == ROOT else ROOT,
         "start_time": s["start_time_unix_nano"], "end_time": s["end_time_unix_nano"], "status_code": "OK",
         "status_message": "", "attributes": s["attributes"], "events": []}
        for id, s in zip((ROOT, FOUND, SAID), trace["data"]["spans"], strict=True)
    ]  # fmt: skip
    info = {"request_id": "tr-1", "experiment_id": "0", "timestamp_ms": NS // 1_000_000, "execution_time_ms": 5,
            "status": "OK", "request_metadata": {}, "tags": {}, "assessments": []}  # fmt: skip
    return {"info": info, "data": {"spans": spans, "request": '{"q": "who?"}', "response": json.dumps(ANSWER)}}


def table(names: str, resource: Any) -> bytes:
    """Rows of somebody's table, one a line; ``names`` are those of its columns."""
    columns = names.split()
    rows = [
        dict(zip(columns, [TRACE, id, "" if id == ROOT else ROOT, "x", "2026-09-21T14:13:20Z", attributes, "shop", "y",
                           resource], strict=True))
        for id, attributes in OPENINFERENCE.items()
    ]  # fmt: skip
    return b"\n".join(json.dumps(row).encode() for row in rows)


FORMATS: dict[str, Any] = {
    "ClickHouse": table(
        "TraceId SpanId ParentSpanId SpanName Timestamp SpanAttributes ServiceName ScopeName ResourceAttributes",
        {"host.name": "h"},
    ),
    "Logfire": table(
        "trace_id span_id parent_span_id span_name start_timestamp attributes service_name "
        "otel_scope_name otel_resource_attributes",
        {"host.name": "h"},
    ),
    "Phoenix, JSON by rows": phoenix_rows(ISO),
    "Phoenix, JSON lines": b"\n".join(json.dumps(row).encode() for row in phoenix_rows(MS)),
    "Phoenix, JSON by columns": columns(phoenix_rows(MS)),
    "Phoenix, CSV": phoenix_csv(),
    "Jaeger": jaeger(),
    "Zipkin": zipkin(),
    "Tempo": tempo("trace"),
    "Tempo, older": tempo("batches"),
    "OTLP spans alone": lines_of_spans(),
    "MLflow": mlflow(),
    "MLflow 2": mlflow_2(),
}


@pytest.mark.parametrize("name", FORMATS)
def test_format(store: Store, name: str) -> None:
    report = store.took(FORMATS[name])
    assert report.spans == 3
    assert told(store) == EXPECTED
    assert store.row("SELECT count(*) FROM spans WHERE epoch_ns(start_time) <> 1790000000000000000") == (0,)
    if name in ("Jaeger", "Zipkin", "Tempo", "ClickHouse", "Logfire"):
        assert store.rows("SELECT DISTINCT service FROM spans") == [("shop",)]
    if name in ("ClickHouse", "Logfire"):
        assert store.rows("SELECT DISTINCT scope, resource->>'$.\"host.name\"' FROM spans") == [("y", "h")]
    if name in ("Jaeger", "Zipkin"):
        assert store.rows("SELECT DISTINCT kind, duration_ms, dialect FROM spans") == [("CLIENT", 5.0, "openinference")]
    assert store.took(FORMATS[name], "again").spans == 0


def test_the_kinds_of_a_table_are_opentelemetrys(store: Store) -> None:
    row = {"TraceId": TRACE, "SpanId": SAID, "SpanName": "x", "Timestamp": "2026-09-21 14:13:20.000000001",
           "Duration": 5_000_000, "SpanKind": "SPAN_KIND_CLIENT", "StatusCode": "STATUS_CODE_ERROR",
           "StatusMessage": "out", "SpanAttributes": {"a": 1}}  # fmt: skip
    store.took(row)
    assert store.row("SELECT kind, status, status_message, dialect, duration_ms FROM spans") == (
        "CLIENT", "ERROR", "out", "otel", 5.0,
    )  # fmt: skip


def run(id: str, kind: str, inputs: Any, outputs: Any, **more: Any) -> ROW:
    """As LangSmith's API has it: LangChain's objects in their serialised form."""
    return {
        "id": f"018f0000-0000-7000-8000-00000000000{id}", "trace_id": "018f0000-0000-7000-8000-000000000001",
        "parent_run_id": None if id == "1" else "018f0000-0000-7000-8000-000000000001", "name": "x",
        "run_type": kind, "start_time": "2026-09-21T14:13:20.000000", "end_time": "2026-09-21T14:13:21.000000",
        "error": None, "inputs": inputs, "outputs": outputs, "dotted_order": "x",
        "extra": {"metadata": {"session_id": "s1", "user_id": "u1", "lc_versions": {}} | more.pop("metadata", {})},
    } | more  # fmt: skip


def constructed(kind: str, **kwargs: Any) -> ROW:
    return {"lc": 1, "type": "constructor", "id": ["langchain", kind], "kwargs": kwargs}


def runs() -> list[ROW]:
    documents = [constructed("Document", page_content=t, id=i, metadata={"score": s}) for i, s, t in DOCS]
    usage = {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}
    answer = constructed("AIMessage", content=ANSWER, type="ai", usage_metadata=usage)
    return [
        run("1", "chain", {"input": "who?"}, {"output": ANSWER}),
        run("2", "retriever", {"query": "who?"}, {"documents": documents}),
        run("3", "llm", {"messages": [[constructed("HumanMessage", content=PROMPT, type="human")]]},
            {"generations": [[{"text": ANSWER, "type": "ChatGeneration", "message": answer}]], "llm_output": None},
            metadata={"ls_model_name": "m", "ls_provider": "openai", "ls_model_type": "chat"}),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", ["list", "lines", "runs", "children"])
def test_langsmith(store: Store, shape: str) -> None:
    [root, *others] = runs()
    content: Any = {"list": [root, *others], "runs": {"runs": [root, *others]}}.get(shape)
    if shape == "lines":
        content = b"\n".join(json.dumps(each).encode() for each in (root, *others))
    if shape == "children":
        content = root | {"child_runs": [{k: v for k, v in r.items() if k != "parent_run_id"} for r in others]}
    assert store.took(content).spans == 3
    found = told(store)
    assert found["stages"] == EXPECTED["stages"] and found["generations"] == EXPECTED["generations"]
    assert [(i, c) for _, i, _, c in found["documents"]] == [("d0", "Alice, room 0"), ("d1", "Bob, room 1")]
    [(trace, above)] = {(t, p) for t, _, p in found["spans"] if p}
    assert trace == "018f0000000070008000000000000001" and above in {s for _, s, p in found["spans"] if not p}
    assert store.rows("SELECT DISTINCT dialect, framework FROM stages") == [("langsmith", "langchain")]
    assert store.rows("""SELECT DISTINCT attributes->>'$."session.id"', attributes->>'$."user.id"' FROM spans""") == [
        ("s1", "u1")
    ]


def test_a_run_that_failed(store: Store) -> None:
    store.took(run("1", "llm", {"prompts": ["who?"]}, None, error="OSError: out"))
    assert store.row("SELECT prompt, response, status FROM generations") == ("who?", None, "ERROR")


def test_langfuse_rows(store: Store) -> None:
    """As its scheduled exports write them: one observation a line, names and times as in its tables."""
    documents = json.dumps([{"id": i, "score": s, "page_content": t} for i, s, t in DOCS])
    values: dict[str, ROW] = {
        ROOT: {"type": "SPAN", "input": "who?", "output": ANSWER},
        FOUND: {"type": "RETRIEVER", "input": '{"query": "who?"}', "output": documents},
        SAID: {"type": "GENERATION", "input": json.dumps([{"role": "user", "content": PROMPT}]), "output": ANSWER,
               "provided_model_name": "m", "usage_details": {"input": 11, "output": 3, "total": 14}},
    }  # fmt: skip
    lines = [
        {"id": id, "trace_id": TRACE, "parent_observation_id": None if id == ROOT else ROOT, "name": "x",
         "start_time": "2026-09-21 14:13:20.000000", "end_time": "2026-09-21 14:13:20.005000", "level": "DEFAULT",
         "trace_name": "t", "user_id": "u1", "session_id": "s1", "metadata": {}} | row
        for id, row in values.items()
    ]  # fmt: skip
    store.took(b"\n".join(json.dumps(line).encode() for line in lines))
    assert told(store) == EXPECTED
    assert store.rows("""SELECT DISTINCT attributes->>'$."session.id"', attributes->>'$."user.id"' FROM spans""") == [
        ("s1", "u1")
    ]


def test_haystack(store: Store) -> None:
    documents = [{"id": i, "score": s, "content": t, "meta": {}} for i, s, t in DOCS]
    meta = {"model": "m", "usage": {"prompt_tokens": 11, "completion_tokens": 3}}

    def component(kind: str, given: Any, got: Any) -> ROW:
        return {f"haystack.component.{k}": v if k == "type" else json.dumps(v)
                for k, v in (("type", kind), ("input", given), ("output", got))}  # fmt: skip

    values = {
        FOUND: component("InMemoryBM25Retriever", {"query": "who?"}, {"documents": documents}),
        SAID: component("OpenAIGenerator", {"prompt": PROMPT}, {"replies": [ANSWER], "meta": [meta]}),
        ROOT: component("PromptBuilder", {}, {}),
    }
    spans = [span(v, spanId=id, **({} if id == ROOT else {"parentSpanId": ROOT})) for id, v in values.items()]
    store.took(otlp(*spans, scope="haystack"))
    assert told(store) == EXPECTED
    assert store.rows("SELECT DISTINCT dialect, framework FROM stages") == [("haystack", "haystack")]


def log(name: str, attributes: ROW, body: Any = None, **more: Any) -> ROW:
    record = {"timeUnixNano": str(NS), "traceId": TRACE, "spanId": SAID, "eventName": name,
              "attributes": pairs(attributes)} | more  # fmt: skip
    if body is not None:
        record["body"] = {"kvlistValue": {"values": pairs(body)}}
    return record


def logs(*records: ROW) -> ROW:
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {"name": "x"}, "logRecords": list(records)}]}]}


MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": PROMPT}]}]
SPAN = span({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, spanId=SAID)


@pytest.mark.parametrize(
    "records",
    [
        [log("gen_ai.client.inference.operation.details", {
            "gen_ai.input.messages": MESSAGES,
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]})],
        [log("gen_ai.user.message", {}, {"content": PROMPT}),
         log("gen_ai.choice", {}, {"index": 0, "finish_reason": "stop", "message": {"content": ANSWER}})],
        [log("", {"event.name": "gen_ai.user.message"}, {"content": PROMPT}),
         log("", {"event.name": "gen_ai.choice"}, {"message": {"role": "assistant", "content": ANSWER}})],
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [True, False])
def test_messages_in_log_records(store: Store, records: list[ROW], before: bool) -> None:
    """A collector's file exporter writes logs and spans to one file, in any order."""
    values = [logs(*records), otlp(SPAN)] if before else [otlp(SPAN), logs(*records)]
    values.append({"resourceMetrics": []})
    assert store.took(b"\n".join(json.dumps(v).encode() for v in values)).spans == 1
    assert store.row("SELECT prompt, response, model FROM generations") == (PROMPT, ANSWER, "m")


def test_log_records_of_something_else(store: Store) -> None:
    records = [log("gen_ai.user.message", {}, {"content": "elsewhere"}, spanId="9" * 16), log("app.started", {}),
               {"body": {"stringValue": "plain"}}]  # fmt: skip
    assert store.took([otlp(SPAN), logs(*records)]).spans == 1
    assert store.row("SELECT prompt FROM generations") == (None,)


def ways_to_be_wrong() -> dict[str, tuple[Any, str]]:
    short, cut = jaeger(), phoenix_csv()
    short["data"][0]["spans"][1]["spanID"] = "2" * 17
    odd = zipkin()
    odd[2]["timestamp"] = "today"
    unknown = mlflow()
    unknown["data"]["spans"][2]["span_id"] = "AAAA"
    nobody = run("1", "llm", {}, {})
    return {
        "Jaeger, an id too long": (short, r"span id '22222222222222222'; expected 16 hex digits"),
        "Zipkin, a time that is none": (odd, "time 'today'; expected microseconds"),
        "MLflow, an id too short": (unknown, "span id 'AAAA'; expected 16 hex digits"),
        "LangSmith, no id": (nobody | {"id": ""}, "no run id"),
        "LangSmith, no time": (nobody | {"start_time": None}, "has no start time"),
        "Phoenix CSV, a line too long": (cut + b"," * 60 + b"\n", "more cells in a line than columns"),
        "Phoenix CSV, no UTF-8": (cut + b"\xff\n", "CSV that cannot be read"),
        "Phoenix, no time": ([*phoenix_rows(ISO)[:2], phoenix_rows(None)[2]], "has no start time"),
        "logs alone": (logs(log("gen_ai.choice", {})), "logs or metrics, and no span"),
        "OTLP attributes of no kind": (
            {**SPAN, "attributes": [{"key": "k", "value": {"stringValue": 1}}]}, "attribute 'k' has",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ways_to_be_wrong())
def test_nothing_of_a_wrong_file_is_stored(store: Store, name: str) -> None:
    content, message = ways_to_be_wrong()[name]
    [failed] = store.take(store.write(content)).failed
    assert message in failed and "nothing of this file is stored" in failed
    assert store.row("SELECT count(*) FROM spans") == (0,)


def test_a_csv_of_something_else(store: Store) -> None:
    [failed] = store.take(store.write(b"a,b\n1,2\n")).failed
    assert "neither JSON, Parquet nor OTLP/protobuf" in failed


def test_cells_are_never_run(store: Store) -> None:
    """What looks like an expression is a text."""
    row = phoenix_rows(ISO)[0] | {
        "attributes.note": "[__import__('os').getpid()]",
        "attributes.input.value": '{"a": 1}',
    }
    out = io.StringIO()
    writer = csv.DictWriter(out, list(row))
    writer.writeheader()
    writer.writerow(row)
    store.took(out.getvalue().encode())
    [(note, given)] = store.rows("SELECT attributes->>'note', attributes->>'$.\"input.value\"' FROM spans")
    assert (note, given) == ("[__import__('os').getpid()]", '{"a": 1}')


@pytest.mark.parametrize("shape", ["parquet", "csv", "rows"])
def test_our_own_spans_back_from_phoenix(store: Store, shape: str) -> None:
    """It keeps no scope, and nests what it does not know: ours are ours all the same, and their own keys win."""
    documents = json.dumps([{"id": "ours", "score": 0.5, "content": "Alice", "chars": 5}])
    row = phoenix_rows(ISO)[0] | {
        "attributes.ragtrace": {"capture": "full", "stage": "retrieval", "path": "stream", "framework": "langchain"},
        "attributes.gen_ai": {"operation": {"name": "retrieval"},
                              "retrieval": {"query": {"text": "who?"}, "documents": documents}},
    }  # fmt: skip
    if shape == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), store.folder / "p")
        assert store.take(store.folder / "p").failed == []
    elif shape == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(row))
        writer.writeheader()
        writer.writerow(row)
        store.took(out.getvalue().encode())
    else:
        store.took([row])
    assert store.rows("SELECT stage, query, path, framework, dialect FROM stages") == [
        ("retrieval", "who?", "stream", "langchain", "ragtrace")
    ]
    assert store.rows("SELECT document_id, content FROM documents") == [("ours", "Alice")]


def test_what_a_dialect_cannot_know(store: Store) -> None:
    """No path, no effect, no coverage; a defense seen there is unknown, and neither unchanged nor bypassed."""
    part = span(
        {"openinference.span.kind": "CHAIN"}, spanId="4" * 16, parentSpanId=ROOT, name="Masker.compress_documents"
    )
    store.took(otlp(*sent(), part))
    assert store.rows("SELECT DISTINCT path, run_id, probe_id, arm FROM stages") == [(None, None, None, None)]
    assert store.rows("SELECT path FROM generations") == [(None,)]
    assert store.rows("SELECT DISTINCT path FROM span_data") == [(None,)]
    for view in ("coverage", "probes", "scores", "canary_hits"):
        assert store.row(f"SELECT count(*) FROM {view}") == (0,), view
    assert store.rows("SELECT status, text_changed, order_changed, chars_before, chars_after, path FROM effects") in (
        [], [(None, None, None, None, None, None)],
    )  # fmt: skip
    verdicts = store.rows("SELECT defense, runtime_status, verdict FROM verdicts")
    assert [(d, v) for d, _, v in verdicts] == [("Masker", "unknown")]
