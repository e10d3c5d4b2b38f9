"""The option to write OpenInference's keys beside ours: by the names of its own package, and never instead of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from ingest_fixtures import Store, otlp, span, store
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_openai import ChatOpenAI
from llama_pipelines import instrumented as llama_instrumented
from llama_pipelines import query_engine
from openinference.semconv.trace import DocumentAttributes, MessageAttributes, OpenInferenceSpanKindValues
from openinference.semconv.trace import SpanAttributes as Names
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import Echo, Hooked, Traces, lcel
from ragtrace_langchain import LangChainInstrumentor
from test_semconv import ANSWER

import ragtrace
from ragtrace.errors import UsageError

__all__ = ["llama_instrumented", "store"]
CANARY = "quillon-7731"
KIND = Names.OPENINFERENCE_SPAN_KIND
WORDS = {k: v.value for k, v in OpenInferenceSpanKindValues.__members__.items()}
OTHERS = ("openinference.", "input.", "output.", "llm.", "retrieval.")
Instrument = Callable[..., Traces]


class Papers(BaseRetriever):
    """Gives ``n`` documents."""

    n: int = 2

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        return [
            Document(page_content=f"{CANARY} {i}", id=f"p{i}", metadata={"score": i / 4, "by": CANARY})
            for i in range(self.n)
        ]


def theirs(span: Any) -> dict[str, Any]:
    return {k: v for k, v in span.attributes.items() if k.startswith(OTHERS)}


def documents(told: dict[str, Any]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for key, value in told.items():
        if key.startswith(Names.RETRIEVAL_DOCUMENTS + "."):
            number, _, name = key.removeprefix(Names.RETRIEVAL_DOCUMENTS + ".").partition(".")
            rows.setdefault(number, {})[name] = value
    return [rows[str(number)] for number in range(len(rows))]


def test_langchain(instrumented: Instrument) -> None:
    traces = instrumented(also="openinference")
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, json=ANSWER))) as client:
        model = ChatOpenAI(model="gpt-x", api_key="k", http_client=client)  # type: ignore[arg-type]
        ids = {"session_id": "s1", "user_id": "u1"}
        lcel(model, Papers()).invoke("who?", {"metadata": ids})
    [retrieval], [generation], [context] = (traces.stages(s) for s in ("retrieval", "generation", "context"))
    assert theirs(retrieval) == {
        KIND: WORDS["RETRIEVER"],
        Names.INPUT_VALUE: "who?",
        **{
            f"{Names.RETRIEVAL_DOCUMENTS}.{i}.{name}": value
            for i in range(2)
            for name, value in (
                (DocumentAttributes.DOCUMENT_ID, f"p{i}"),
                (DocumentAttributes.DOCUMENT_SCORE, i / 4),
                (DocumentAttributes.DOCUMENT_CONTENT, f"{CANARY} {i}"),
                (
                    DocumentAttributes.DOCUMENT_METADATA,
                    json.dumps({"score": i / 4, "by": CANARY}, separators=(",", ":")),
                ),
            )
        },
    }
    prompt = f"{CANARY} 0 | {CANARY} 1 ? who?"
    said = [(Names.LLM_INPUT_MESSAGES, 0, "system", "Be brief."), (Names.LLM_INPUT_MESSAGES, 1, "user", prompt),
            (Names.LLM_OUTPUT_MESSAGES, 0, "assistant", "Ann.")]  # fmt: skip
    assert theirs(generation) == {
        KIND: WORDS["LLM"], Names.LLM_MODEL_NAME: "gpt-x", Names.INPUT_VALUE: prompt, Names.OUTPUT_VALUE: "Ann.",
        Names.LLM_TOKEN_COUNT_PROMPT: 9, Names.LLM_TOKEN_COUNT_COMPLETION: 2, Names.LLM_TOKEN_COUNT_TOTAL: 11,
        **{f"{p}.{i}.{MessageAttributes.MESSAGE_ROLE}": role for p, i, role, _ in said},
        **{f"{p}.{i}.{MessageAttributes.MESSAGE_CONTENT}": text for p, i, _, text in said},
    }  # fmt: skip
    [root] = traces.roots()
    assert theirs(root) == {KIND: WORDS["CHAIN"], Names.INPUT_VALUE: "who?", Names.OUTPUT_VALUE: "Ann."}
    assert theirs(context) == {KIND: WORDS["CHAIN"]}
    for each in traces.spans:
        assert (each.attributes[Names.SESSION_ID], each.attributes[Names.USER_ID]) == ("s1", "u1")
    assert traces.losses() == []


def test_llama_index(llama_instrumented: Instrument) -> None:
    traces = llama_instrumented(also="openinference")
    query_engine().query("who?")
    [retrieval], [generation] = traces.stages("retrieval"), traces.stages("generation")
    assert [d[DocumentAttributes.DOCUMENT_ID] for d in documents(theirs(retrieval))] == ["alpha", "beta"]
    told = theirs(generation)
    assert told[KIND] == WORDS["LLM"] and "who?" in told[Names.INPUT_VALUE]
    assert "who?" in told[f"{Names.LLM_INPUT_MESSAGES}.1.{MessageAttributes.MESSAGE_CONTENT}"]


@pytest.mark.parametrize("mode", ["digest", "none"])
def test_no_content_where_none_is_captured(instrumented: Instrument, mode: str) -> None:
    traces = instrumented(also="openinference", capture=mode)
    lcel(retriever=Papers()).invoke(f"{CANARY}?")
    [retrieval], [generation], [root] = traces.stages("retrieval"), traces.stages("generation"), traces.roots()
    ids = {DocumentAttributes.DOCUMENT_ID: "p1", DocumentAttributes.DOCUMENT_SCORE: 0.25}
    assert documents(theirs(retrieval))[1] == ids
    assert theirs(generation).keys() == {KIND, Names.LLM_MODEL_NAME} | {
        f"{p}.{i}.{MessageAttributes.MESSAGE_ROLE}"
        for p, i in ((Names.LLM_INPUT_MESSAGES, 0), (Names.LLM_INPUT_MESSAGES, 1), (Names.LLM_OUTPUT_MESSAGES, 0))
    }
    assert theirs(root) == {KIND: WORDS["CHAIN"]}
    assert CANARY not in traces.text()


def test_masked(instrumented: Instrument) -> None:
    traces = instrumented(also="openinference", capture="masked")
    lcel().invoke("is ann.lee@corp.com here?")
    [root] = traces.roots()
    assert root.attributes[Names.INPUT_VALUE].startswith("is <") and "ann.lee" not in traces.text()


def test_what_the_app_got(instrumented: Instrument) -> None:
    """Where a defense has rewritten documents, these; their scores and what is left of them."""

    def cut(found: list[Any]) -> list[Any]:
        found[1].content = "[cut]"
        return found

    traces = instrumented(also="openinference", defenses=[Hooked("content", cut)])
    lcel(retriever=Papers(n=3)).invoke("who?")
    [retrieval] = traces.stages("retrieval")
    found = documents(theirs(retrieval))
    assert [d[DocumentAttributes.DOCUMENT_CONTENT] for d in found] == [f"{CANARY} 0", "[cut]", f"{CANARY} 2"]
    assert [d[DocumentAttributes.DOCUMENT_SCORE] for d in found] == [0.0, 0.25, 0.5]
    assert json.loads(retrieval.attributes["gen_ai.retrieval.documents"])[1]["content"] == f"{CANARY} 1"


def limited(instrumented: Instrument, room: int | None, **options: Any) -> Traces:
    """Sixty documents, under a limit of the span's attributes."""
    memory = InMemorySpanExporter()
    limits = SpanLimits(max_span_attributes=SpanLimits.UNSET if room is None else room)
    provider = TracerProvider(span_limits=limits)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    instrumented(tracer_provider=provider, **options)
    lcel(retriever=Papers(n=60)).invoke("who?")
    LangChainInstrumentor().uninstrument()
    return Traces(memory)


@pytest.mark.parametrize("room", [8, 12, 13, 20, 128])
def test_ours_come_first(instrumented: Instrument, room: int) -> None:
    """Whatever the span's limit, nothing of ours is dropped for theirs, and what is left out is said."""
    plain = limited(instrumented, room)
    traces = limited(instrumented, room, also="openinference")
    for without, beside in zip(plain.spans, traces.spans, strict=True):
        assert without.attributes.items() <= beside.attributes.items() and len(beside.attributes) <= room
    [retrieval] = traces.stages("retrieval")
    kept = documents(theirs(retrieval))
    ours = len(plain.stages("retrieval")[0].attributes)
    assert len(kept) == max(room - ours - 3, 0) // 4 and all(len(d) == 4 for d in kept)
    if room > ours + 2:  # the kind, and the losses
        said = json.loads(retrieval.attributes["ragtrace.losses"])
        assert said == [
            f"openinference: {len(kept)} of 60 documents in retrieval.documents: a span has room for {room}"
        ]


def test_without_a_limit(instrumented: Instrument) -> None:
    traces = limited(instrumented, None, also="openinference")
    [retrieval] = traces.stages("retrieval")
    assert len(documents(theirs(retrieval))) == 60 and traces.losses() == []


def test_a_value_that_the_sdk_has_cut(instrumented: Instrument) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(span_limits=SpanLimits(max_span_attribute_length=40))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    instrumented(tracer_provider=provider, also="openinference")
    assert lcel(retriever=Papers()).invoke("who?").startswith("echo:")
    [retrieval] = Traces(memory).stages("retrieval")
    assert theirs(retrieval) == {KIND: "RETRIEVER", Names.INPUT_VALUE: "who?"}


def test_off_by_default(traces: Traces) -> None:
    lcel().invoke("who?")
    assert [theirs(s) for s in traces.spans] == [{}] * 4


def test_failing_calls(instrumented: Instrument) -> None:
    traces = instrumented(also="openinference")
    with pytest.raises(OSError):
        lcel(Echo(fail_at=0)).invoke("who?")
    [generation] = traces.stages("generation")
    assert generation.attributes["error.type"] == "OSError" and Names.OUTPUT_VALUE not in generation.attributes
    assert generation.attributes[f"{Names.LLM_INPUT_MESSAGES}.1.{MessageAttributes.MESSAGE_ROLE}"] == "user"


def test_by_the_environment(
    instrumented: Instrument, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAGTRACE_ALSO", "OpenInference")
    assert "RAGTRACE_ALSO" not in caplog.text
    traces = instrumented()
    lcel().invoke("who?")
    assert all(KIND in s.attributes for s in traces.spans)
    monkeypatch.setenv("RAGTRACE_ALSO", "phoenix")
    assert ragtrace.record.capture.Capture().also is None  # a wrong word stops no app
    assert "RAGTRACE_ALSO is not known" in caplog.text
    monkeypatch.setenv("RAGTRACE_ALSO", "openinference")
    assert ragtrace.record.capture.Capture(also="").also is None


def test_an_unknown_word(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"also='phoenix'; expected 'openinference'"):
        ragtrace.setup(tmp_path / "t.duckdb", also="phoenix")  # type: ignore[arg-type]


SEEN = """
SELECT s.stage, s.query, s.dialect, s.path, s.framework, d.document_id, d.phase
FROM stages s LEFT JOIN documents d USING (trace_id, span_id) WHERE s.stage = 'retrieval' ORDER BY ALL
"""


@pytest.mark.parametrize("scope", ["ragtrace", None])
def test_they_come_back_as_ours(instrumented: Instrument, store: Store, scope: str | None) -> None:
    """Through any back end that keeps attributes: our own keys win, and nothing is there twice."""
    traces = instrumented(also="openinference")
    lcel(retriever=Papers()).invoke("who?")
    sent = [span(dict(s.attributes), **_ids(s), name=s.name) for s in traces.spans]
    store.took(otlp(*sent, scope=scope or ""))
    common = ("retrieval", "who?", "ragtrace", "invoke", "langchain")
    assert store.rows(SEEN) == [(*common, f"p{i}", "retrieved") for i in range(2)]
    assert store.row("SELECT count(*), any_value(response) FROM generations")[0] == 1
    assert store.rows("SELECT DISTINCT dialect FROM spans") == [("ragtrace",)]


def _ids(s: Any) -> dict[str, Any]:
    made = {"traceId": f"{s.context.trace_id:032x}", "spanId": f"{s.context.span_id:016x}"}
    return made | ({"parentSpanId": f"{s.parent.span_id:016x}"} if s.parent else {})
