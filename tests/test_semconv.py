"""Our spans in the eyes of others: the GenAI semantic conventions, as two packages of other people's know them.

``pytest-genai-semconv`` carries the registry (names, types, allowed values, required attributes, span kinds), and
``opentelemetry-util-genai`` the conventions' own models of messages and documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from langchain_openai import AzureChatOpenAI, ChatOpenAI, OpenAI
from llama_index.llms.openai_like import OpenAILike
from llama_pipelines import Echo as LlamaEcho
from llama_pipelines import Shelf as LlamaShelf
from llama_pipelines import instrumented as llama_instrumented
from llama_pipelines import query_engine, recorded, simple_chat
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util.genai.types import InputMessage, OutputMessage
from pipelines import Echo, Shelf, TextEcho, Traces, call, lcel, text_chain
from pydantic import TypeAdapter
from pytest_genai_semconv import GenAISpanComplianceError, assert_chat_span, assert_genai_span_compliant

import ragtrace
from ragtrace.record import handles
from ragtrace.record.capture import Capture
from ragtrace.record.hooks import Recorder
from ragtrace.record.providers import OTHER, provider_of

__all__ = ["llama_instrumented", "recorded"]
GIVEN, SAID = TypeAdapter(list[InputMessage]), TypeAdapter(list[OutputMessage])
ANSWER = {
    "id": "r", "object": "chat.completion", "created": 1, "model": "gpt-x-2026",
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Ann."}}],
}  # fmt: skip


def complies(span: Any, full: bool = True) -> None:
    """What the conventions ask of every span of a stage. Their list of providers is open; the package's is not."""
    try:
        assert_genai_span_compliant(span)
    except GenAISpanComplianceError as error:
        others = [v for v in error.violations if OTHER not in v]
        assert not others and span.attributes["gen_ai.provider.name"] == OTHER, error
    told = span.attributes
    operation = told["gen_ai.operation.name"]
    assert span.name.partition(" ")[0] == operation and span.kind is SpanKind.CLIENT
    if operation == "retrieval":
        for row in json.loads(told.get("gen_ai.retrieval.documents", "[]")):
            assert isinstance(row["id"], str) and isinstance(row["score"], float)
    else:
        assert span.name == f"{operation} {told['gen_ai.request.model']}"
        for kind, key in ((GIVEN, "gen_ai.input.messages"), (SAID, "gen_ai.output.messages")):
            if key in told:
                found = json.loads(told[key])
                kind.validate_python(found)
                # a model of a text without its text passes as a part of any other kind
                assert {"content" in part for message in found for part in message["parts"]} <= {full}
                assert all("finish_reason" in message for message in found) == (kind is SAID)
    failed = span.status.status_code is StatusCode.ERROR
    assert ("error.type" in told) == failed


def all_comply(traces: Traces, stages: list[str], full: bool = True) -> list[Any]:
    spans = [s for s in traces.spans if s.attributes.get("ragtrace.stage") in ("retrieval", "generation")]
    assert sorted({s.attributes["gen_ai.operation.name"] for s in spans}) == stages
    for span in spans:
        complies(span, full)
    return spans


@pytest.mark.parametrize("path", ["invoke", "ainvoke", "stream", "astream", "batch"])
def test_langchain(traces: Traces, path: str) -> None:
    call(path, lcel(), ["who?"])
    spans = all_comply(traces, ["chat", "retrieval"])
    assert [s.attributes.get("gen_ai.request.stream") for s in spans] == [None, True if "stream" in path else None]


def test_langchain_text_model(traces: Traces) -> None:
    text_chain().invoke("who?")
    list(text_chain().stream("who?"))
    all_comply(traces, ["retrieval", "text_completion"])


@pytest.mark.parametrize("model", [Echo, TextEcho])
@pytest.mark.parametrize("path", ["invoke", "stream"])
def test_langchain_model_that_fails(traces: Traces, model: Any, path: str) -> None:
    chain = lcel(model(fail_at=2)) if model is Echo else text_chain(model(fail_at=2))
    with pytest.raises(OSError):
        call(path, chain, ["who?"])
    _, generation = all_comply(traces, sorted(["retrieval", "chat" if model is Echo else "text_completion"]))
    assert generation.attributes["error.type"] == "OSError"
    if path == "stream":
        [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
        assert answer["finish_reason"] == "error"


def test_langchain_retriever_that_fails(traces: Traces) -> None:
    with pytest.raises(KeyError):
        lcel(retriever=Shelf(error=KeyError("x"))).invoke("who?")
    [retrieval] = all_comply(traces, ["retrieval"])
    assert retrieval.attributes["error.type"] == "KeyError"


def test_a_stream_that_is_left_says_no_reason(traces: Traces) -> None:
    stream = lcel().stream("who?")
    next(stream)
    stream.close()
    *_, generation = all_comply(traces, ["chat", "retrieval"])
    assert json.loads(generation.attributes["gen_ai.output.messages"])[0]["finish_reason"] == "unknown"
    assert "gen_ai.response.finish_reasons" not in generation.attributes


@pytest.mark.parametrize("mode", ["masked", "digest", "none"])
def test_whatever_is_captured(instrumented: Callable[..., Traces], mode: str) -> None:
    traces = instrumented(capture=mode)
    lcel().invoke("who?")
    all_comply(traces, ["chat", "retrieval"], full=mode == "masked")


def test_openai_client(traces: Traces) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=ANSWER))
    with httpx.Client(transport=transport) as client:
        lcel(ChatOpenAI(model="gpt-x", api_key="k", http_client=client, max_retries=0)).invoke("who?")  # type: ignore[arg-type]
    _, generation = all_comply(traces, ["chat", "retrieval"])
    assert_chat_span(generation, request_model="gpt-x")  # strictly: this provider is in the list
    told = generation.attributes
    assert (told["gen_ai.provider.name"], told["gen_ai.response.model"]) == ("openai", "gpt-x-2026")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (9, 2)
    assert told["gen_ai.response.finish_reasons"] == ("stop",)


@pytest.mark.parametrize("streaming", [False, True])
def test_llama_index(llama_traces: Traces, streaming: bool) -> None:
    answer = query_engine(streaming=streaming).query("who?")
    if streaming:
        list(answer.response_gen)
    all_comply(llama_traces, ["chat", "retrieval"])
    generation = llama_traces.stages("generation")[0]
    assert generation.attributes.get("gen_ai.request.stream") == (True if streaming else None)


def test_llama_index_chat(llama_traces: Traces) -> None:
    simple_chat().chat("who?")
    list(simple_chat().stream_chat("who?").response_gen)
    LlamaEcho().complete("who?")
    list(LlamaEcho().stream_complete("who?"))
    all_comply(llama_traces, ["chat", "text_completion"])


def test_llama_index_failures(llama_traces: Traces) -> None:
    with pytest.raises(OSError):
        query_engine(LlamaEcho(fail_at=0)).query("who?")
    with pytest.raises(OSError):
        list(query_engine(LlamaEcho(fail_at=2), streaming=True).query("who?").response_gen)
    with pytest.raises(KeyError):
        query_engine(retriever=LlamaShelf(error=KeyError("x"))).query("who?")
    spans = all_comply(llama_traces, ["retrieval", "text_completion"])
    assert [s.attributes.get("error.type") for s in spans if s.status.status_code is StatusCode.ERROR] == [
        "OSError", "OSError", "KeyError"
    ]  # fmt: skip


def test_without_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    recorder = Recorder(provider.get_tracer("ragtrace"), "none", Capture("full"))
    monkeypatch.setattr(handles, "_set_up", (recorder,))
    with ragtrace.pipeline("app"):
        with ragtrace.retrieval("who?") as search:
            search.documents([ragtrace.Document("Ann", id="a", score=0.5)])
        with ragtrace.generation("Ann. who?", model="m") as model:
            model.response("Ann.")
    assert len(all_comply(Traces(memory), ["chat", "retrieval"])) == 2


@pytest.fixture
def models() -> Iterator[dict[str, Any]]:
    azure = {"azure_endpoint": "http://127.0.0.1:9", "api_version": "1", "azure_deployment": "d"}
    yield {
        "openai": [ChatOpenAI(api_key="k"), OpenAI(api_key="k"), OpenAILike(model="m", api_key="k")],  # type: ignore[arg-type]
        "azure.ai.openai": [AzureChatOpenAI(api_key="k", **azure)],  # type: ignore[arg-type]
        OTHER: [Echo(), TextEcho(), LlamaEcho()],
    }


def test_providers(models: dict[str, Any]) -> None:
    assert {name: {provider_of(m) for m in some} for name, some in models.items()} == {n: {n} for n in models}


@pytest.mark.parametrize(
    "module,name,expected",
    [
        ("langchain_mistralai.chat_models", "ChatMistralAI", "mistral_ai"),
        ("langchain_google_genai.chat_models", "ChatGoogleGenerativeAI", "gcp.gemini"),
        ("langchain_ollama.chat_models", "ChatOllama", "ollama"),
        ("llama_index.llms.bedrock_converse.base", "BedrockConverse", "aws.bedrock"),
        ("llama_index.llms.azure_openai.base", "AzureOpenAI", "azure.ai.openai"),
        ("langchain_community.chat_models.x", "ChatX", OTHER),
        ("llama_index.core.llms.mock", "MockLLM", OTHER),
        ("myapp", "Mine", OTHER),
    ],
)
def test_providers_by_their_package(module: str, name: str, expected: str) -> None:
    """The classes of packages that are not installed here, by the names that they have; and apps' own below them."""
    theirs = type(name, (), {"__module__": module})
    assert provider_of(theirs()) == provider_of(type("Own", (theirs,), {"__module__": "app"})()) == expected
