"""Small LlamaIndex pipelines whose answer shows everything that went into it, and the paths to call one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from llama_index.core import get_response_synthesizer
from llama_index.core.async_utils import run_async_tasks, run_jobs
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.callbacks import CallbackManager
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import Traces
from ragtrace_llama_index import LlamaIndexInstrumentor

PATHS = ("invoke", "ainvoke", "stream", "astream", "batch", "abatch")
STREAMS = ("stream", "astream")
BATCHES = ("batch", "abatch")
asyncio.set_event_loop(None)  # else LlamaIndex's asyncio_run opens a loop that nobody closes


class Shelf(BaseRetriever):
    """Answers any query with nodes that name it."""

    def __init__(self, words: tuple[str, ...] = ("alpha", "beta"), error: Any = None) -> None:
        super().__init__()
        self.words, self.error = words, error

    def _retrieve(self, query_bundle: Any) -> Any:
        if self.error is not None:
            raise self.error
        query = query_bundle.query_str
        return [NodeWithScore(node=TextNode(text=f"{w} for {query}", id_=w), score=0.5) for w in self.words]


class Gives(BaseRetriever):
    """A retriever that returns anything at all."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what

    def _retrieve(self, query_bundle: Any) -> Any:
        return self.what

    def retrieve(self, str_or_query_bundle: Any) -> Any:
        return self.what

    async def aretrieve(self, str_or_query_bundle: Any) -> Any:
        return self.what


class Echo(CustomLLM):
    """Says its prompt again, word by word when streamed. Its chat is its completion, as with all custom models."""

    fail_at: int | None = None

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="echo-1")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        if self.fail_at is not None:
            self._break()
        return CompletionResponse(text=f"echo: {prompt}")

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        def words() -> Iterator[Any]:
            said = ""
            for place, word in enumerate(["echo:"] + [f" {w}" for w in prompt.split(" ")]):
                if place == self.fail_at:
                    self._break()
                said += word
                yield CompletionResponse(text=said, delta=word)

        return words()

    def _break(self) -> None:
        raise OSError("the model is out")


class ChatEcho(Echo):
    """The same as a chat model: its methods are its own, and its stream does work in between."""

    usage: bool = False

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="chat-echo-1", is_chat_model=True)

    def _words(self, messages: Any) -> list[str]:
        return ["echo:"] + [f" {w}" for m in messages for w in (m.content or "").split(" ")]

    def _said(self, text: str, delta: str | None = None) -> ChatResponse:
        raw = {"usage": {"prompt_tokens": 3, "completion_tokens": 4}} if self.usage else None
        return ChatResponse(message=ChatMessage(role="assistant", content=text), delta=delta, raw=raw)

    @llm_chat_callback()
    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        if self.fail_at is not None:
            self._break()
        return self._said("".join(self._words(messages)))

    @llm_chat_callback()
    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        await asyncio.sleep(0)
        if self.fail_at is not None:
            self._break()
        return self._said("".join(self._words(messages)))

    @llm_chat_callback()
    def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
        def chunks() -> Iterator[Any]:
            said = ""
            for place, word in enumerate(self._words(messages)):
                if place == self.fail_at:
                    self._break()
                said += word
                yield self._said(said, word)

        return chunks()

    @llm_chat_callback()
    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        async def chunks() -> AsyncIterator[Any]:
            said = ""
            for place, word in enumerate(self._words(messages)):
                await asyncio.sleep(0)
                if place == self.fail_at:
                    self._break()
                said += word
                yield self._said(said, word)

        return chunks()


def query_engine(model: Any = None, retriever: Any = None, mode: str = "compact", **options: Any) -> Any:
    synthesizer = get_response_synthesizer(llm=model or ChatEcho(), response_mode=mode, **options)  # type: ignore[arg-type]
    return RetrieverQueryEngine(retriever or Shelf(), synthesizer)


def fusion(*retrievers: Any, **options: Any) -> Any:
    shelves = list(retrievers) or [Shelf(), Shelf(("beta", "gamma"))]
    return QueryFusionRetriever(shelves, llm=ChatEcho(), num_queries=1, **options)


def memory() -> Any:
    return ChatMemoryBuffer.from_defaults(token_limit=100_000, tokenizer_fn=str.split)


def context_chat(model: Any = None, retriever: Any = None) -> Any:
    return ContextChatEngine.from_defaults(retriever or Shelf(), llm=model or ChatEcho(), memory=memory())


def simple_chat(model: Any = None) -> Any:
    return SimpleChatEngine.from_defaults(llm=model or ChatEcho(), memory=memory())


def agent(retriever: Any = None, generate: Any = None) -> Any:
    """An agent that looks into the shelf once, then says what it found."""
    from llama_index.core.agent.workflow import FunctionAgent

    shelf = retriever or Shelf()

    async def look(query: str = "q") -> str:
        """Looks into the shelf."""
        return " | ".join(n.text for n in await shelf.aretrieve(query))

    def answer(messages: Any, **kwargs: Any) -> Any:
        found = [m for m in messages if m.role == "tool"]
        if found:
            return ChatMessage(role="assistant", content=f"echo: {found[-1].content}")
        call = ToolCallBlock(tool_call_id="1", tool_name="look", tool_kwargs={"query": messages[-1].content})
        return ChatMessage(role="assistant", blocks=[TextBlock(text="let me look"), call])

    model = MockFunctionCallingLLM(response_generator=generate or answer)
    return FunctionAgent(tools=[FunctionTool.from_defaults(async_fn=look)], llm=model, timeout=None)


# calling

QUERY = {"invoke": "query", "ainvoke": "aquery"}
CHAT = {"invoke": "chat", "ainvoke": "achat", "stream": "stream_chat", "astream": "astream_chat"}
COMPLETE = {"invoke": "complete", "ainvoke": "acomplete", "stream": "stream_complete", "astream": "astream_complete"}
RETRIEVE = {"invoke": "retrieve", "ainvoke": "aretrieve"}
SYNTHESIZE = {"invoke": "synthesize", "ainvoke": "asynthesize"}


def call(path: str, methods: dict[str, str], pipeline: Any, inputs: list[Any]) -> list[Any]:
    """Calls ``pipeline`` along ``path``: a batch with all inputs, else with the first. A stream gives its items.

    Where the pipeline has no streaming methods, its plain ones answer with a stream.
    """
    is_async = path.startswith("a")
    name = methods.get(path) or methods["ainvoke" if is_async or path in BATCHES else "invoke"]
    method = getattr(pipeline, name)
    if path == "batch":
        return run_async_tasks([method(i) for i in inputs])
    if path == "abatch":
        return asyncio.run(run_jobs([method(i) for i in inputs]))
    if path in STREAMS:
        return asyncio.run(_aread(method(inputs[0]))) if is_async else read(method(inputs[0]))
    return [asyncio.run(method(inputs[0])) if is_async else method(inputs[0])]


def read(stream: Any) -> list[Any]:
    """All items of a sync stream, whatever holds it."""
    return list(stream.response_gen if isinstance(stream, StreamingResponse | StreamingAgentChatResponse) else stream)


async def aread(stream: Any) -> list[Any]:
    """All items of an async stream."""
    if isinstance(stream, AsyncStreamingResponse | StreamingAgentChatResponse):
        stream = stream.async_response_gen()
    return [item async for item in stream]


async def _aread(coming: Any) -> list[Any]:
    return await aread(await coming)


def told(value: Any) -> Any:
    """A value as data."""
    if isinstance(value, list | tuple):
        return [told(v) for v in value]
    return repr(value)


class Listening:
    """LlamaIndex's own listeners: what its events, spans and callbacks say."""

    def __init__(self) -> None:
        from llama_index.core.callbacks.base_handler import BaseCallbackHandler
        from llama_index_instrumentation.event_handlers import BaseEventHandler
        from llama_index_instrumentation.span_handlers import SimpleSpanHandler

        heard = self.heard = []  # type: ignore[var-annotated]

        class Events(BaseEventHandler):
            def handle(self, event: Any, **kwargs: Any) -> None:
                heard.append((type(event).__name__, str(getattr(event, "response", ""))))

        class Spans(SimpleSpanHandler):
            def prepare_to_exit_span(self, id_: str, bound_args: Any, instance: Any = None, result: Any = None,
                                     **kwargs: Any) -> Any:  # fmt: skip
                heard.append(
                    (
                        f"exit {id_.split('-')[0]}",
                        str(result) if isinstance(result, ChatResponse | CompletionResponse) else "",
                    )
                )
                return super().prepare_to_exit_span(id_, bound_args, instance, result, **kwargs)

        class Callbacks(BaseCallbackHandler):
            def __init__(self) -> None:
                super().__init__([], [])

            def start_trace(self, trace_id: Any = None) -> None: ...
            def end_trace(self, trace_id: Any = None, trace_map: Any = None) -> None: ...
            def on_event_start(self, *args: Any, **kwargs: Any) -> str:
                return ""

            def on_event_end(self, event_type: Any, payload: Any = None, **kwargs: Any) -> None:
                heard.append((f"end {event_type.value}", str([str(v) for v in (payload or {}).values()])))

        self.events, self.spans = Events(), Spans()
        self.callbacks = CallbackManager([Callbacks()])

    def text(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.heard)

    def __enter__(self) -> Listening:
        from llama_index_instrumentation import root_dispatcher

        root_dispatcher.add_event_handler(self.events)
        root_dispatcher.add_span_handler(self.spans)
        return self

    def __exit__(self, *_: Any) -> None:
        from llama_index_instrumentation import root_dispatcher

        root_dispatcher.event_handlers = [h for h in root_dispatcher.event_handlers if h is not self.events]
        root_dispatcher.span_handlers = [h for h in root_dispatcher.span_handlers if h is not self.spans]


# fixtures


@pytest.fixture(name="llama_instrumented")
def instrumented() -> Iterator[Callable[..., Traces]]:
    """Instruments LlamaIndex when called, with the options given; undone after the test."""

    def instrument(sampler: Any = None, **options: Any) -> Traces:
        exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        LlamaIndexInstrumentor().instrument(**{"tracer_provider": provider, "capture": "full"} | options)
        return Traces(exporter)

    yield instrument
    if LlamaIndexInstrumentor().is_instrumented_by_opentelemetry:
        LlamaIndexInstrumentor().uninstrument()


@pytest.fixture(name="llama_traces")
def recorded(llama_instrumented: Callable[..., Traces]) -> Traces:
    """LlamaIndex instrumented with ``capture="full"``."""
    return llama_instrumented()
