"""Where texts are not kept, the app's own code cannot write them on our spans either."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Status, StatusCode
from ragtrace_langchain import LangChainInstrumentor

TEXT = "zq7f31c9"


def write() -> None:
    """All that the interface of a span has for text."""
    span = trace.get_current_span()
    span.set_attribute("app.question", TEXT)
    span.set_attributes({"app.words": [TEXT], "app.rank": 3, "app.hit": True, "app.time": 0.5, "user.id": "u-7"})
    span.add_event(TEXT, {"text": TEXT})
    span.record_exception(ValueError(TEXT), {"text": TEXT})
    span.set_status(Status(StatusCode.ERROR, TEXT))
    span.set_status(StatusCode.ERROR, TEXT)
    span.update_name(TEXT)
    span.add_link(SpanContext(1, 2, True), {"text": TEXT, "n": 1})
    copy.copy(span).set_attribute("app.copied", TEXT)


def passed(question: str) -> str:
    write()
    return question


class Writing(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        write()
        with trace.get_tracer("app").start_as_current_span("child"):
            return [Document("text", id="d")]


def spans_of(mode: Any) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider, capture=mode)
    try:
        chain = RunnableLambda(passed) | Writing()
        assert [d.id for d in chain.invoke("question")] == ["d"]
    finally:
        instrumentor.uninstrument()
    return {span.name: span for span in exporter.get_finished_spans()}


@pytest.mark.parametrize("mode", ["digest", "none", "masked"])
def test_what_the_app_writes_on_our_spans_is_no_text(mode: Any) -> None:
    spans = spans_of(mode)
    assert set(spans) == {"pipeline RunnableSequence", "retrieval Writing"}
    for span in spans.values():
        assert TEXT not in span.to_json()
        assert TEXT not in str([link.attributes for link in span.links])
        told = {k: v for k, v in span.attributes.items() if k.startswith(("app.", "user."))}
        assert told == {"app.rank": 3, "app.hit": True, "app.time": 0.5, "user.id": "u-7"}
        assert [(e.name, dict(e.attributes)) for e in span.events] == [("exception", {"exception.type": "ValueError"})]
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
        assert [dict(link.attributes) for link in span.links] == [{"n": 1}]
        [loss] = [each for each in json.loads(span.attributes["ragtrace.losses"]) if "other code" in each]
        assert "numbers and ids" in loss


def test_in_full_it_is_the_span_itself() -> None:
    spans = spans_of("full")
    assert TEXT in spans[TEXT].to_json()
    assert spans[TEXT].attributes["app.question"] == TEXT


def test_a_hidden_side_guards_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", "true")
    assert all(TEXT not in span.to_json() for span in spans_of("full").values())


def test_what_is_no_text_costs_no_loss() -> None:
    from ragtrace.record.capture import Capture
    from ragtrace.record.guard import current

    provider = TracerProvider(shutdown_on_exit=False)
    losses: list[str] = []
    span = provider.get_tracer("t").start_span("s")
    seen = trace.get_current_span(current(span, Capture("digest"), losses, None))
    seen.set_attributes({"n": 1})
    seen.set_status(StatusCode.OK)
    assert losses == []
    assert seen.name == "s"  # type: ignore[attr-defined]
    assert seen.is_recording()
    seen.end()
    assert not span.is_recording()
