"""How LlamaIndex's streams, jobs and workflows end: each span once, with what was delivered."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_pipelines import (
    CHAT,
    COMPLETE,
    QUERY,
    STREAMS,
    ChatEcho,
    Echo,
    Shelf,
    agent,
    aread,
    call,
    context_chat,
    instrumented,  # noqa: F401
    query_engine,
    read,
    recorded,  # noqa: F401
    simple_chat,
)
from opentelemetry import trace

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # workflows' own
    pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning"),  # async_utils' own
]

SAID = [ChatMessage(role="user", content="q1"), ChatMessage(role="user", content="q2")]


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("make", [lambda m: query_engine(m, streaming=True), lambda m: m])
def test_a_stream_that_breaks_keeps_what_was_delivered(llama_traces: Any, path: str, make: Any) -> None:
    pipeline = make(ChatEcho(fail_at=2))
    methods, given = (CHAT, SAID[:1]) if isinstance(pipeline, ChatEcho) else (QUERY, "q")
    if isinstance(pipeline, ChatEcho):
        pipeline.fail_at = 1
    with pytest.raises(OSError):
        call(path, methods, pipeline, [given])
    [generation], [root] = llama_traces.stages("generation"), llama_traces.roots()
    [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] in ("echo: You", "echo:")
    assert generation.status.status_code.name == root.status.status_code.name == "ERROR"


STARTS = {
    "query engine": (lambda: query_engine(streaming=True), QUERY, "q", "echo: You"),
    "chat": (ChatEcho, CHAT, SAID, "echo: q1"),
    "chat of a text model": (Echo, CHAT, SAID, "echo: user:"),
    "completion": (Echo, COMPLETE, "q r", "echo: q"),
}


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("way", ["close", "gc", "unread"])
@pytest.mark.parametrize("name", STARTS)
def test_leaving_a_stream_early_is_no_error(llama_traces: Any, caplog: Any, path: str, way: str, name: str) -> None:
    make, methods, given, said = STARTS[name]
    method = getattr(make(), methods.get(path) or methods["ainvoke" if path == "astream" else "invoke"])

    def sync() -> None:
        stream = method(given)
        stream = getattr(stream, "response_gen", stream)
        if way != "unread":
            next(stream), next(stream)
        if way == "close":
            stream.close()

    async def asynchronous() -> None:
        stream = await method(given)
        stream = getattr(stream, "response_gen", stream)
        if way != "unread":
            await anext(stream), await anext(stream)
        if way == "close":
            await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0)

    sync() if path == "stream" else asyncio.run(asynchronous())
    gc.collect()
    generations, [root] = llama_traces.stages("generation"), llama_traces.roots()
    for span in (*generations, root):
        assert span.status.status_code.name == "UNSET"
        assert span.attributes["ragtrace.stopped_early"] is True
        assert span.end_time <= root.end_time
    if way != "unread":  # where nothing was read, a query engine has not even asked its model
        [generation] = generations
        [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
        assert answer["parts"][0]["content"] == said
        assert answer["finish_reason"] == "unknown"
    assert "detach" not in caplog.text and "ragtrace" not in caplog.text


def test_a_stream_made_in_one_event_loop_and_read_in_another(llama_instrumented: Any) -> None:
    engine = query_engine(streaming=True)
    expected = str(asyncio.run(engine.aquery("q")))
    traces = llama_instrumented()
    response = asyncio.run(engine.aquery("q"))
    assert traces.roots() == []
    assert str(response) == expected and asyncio.run(response.get_response()).response == expected
    assert len(traces.roots()) == 1


@pytest.mark.parametrize("use", [str, lambda r: r.get_response().response])
def test_a_streaming_response_is_whole(llama_instrumented: Any, capsys: Any, use: Any) -> None:
    expected = use(query_engine(streaming=True).query("q"))
    traces = llama_instrumented()
    response = query_engine(streaming=True).query("q")
    assert [n.node_id for n in response.source_nodes] == ["alpha", "beta"]
    assert use(response) == use(response) == expected
    query_engine(streaming=True).query("q").print_response_stream()
    assert capsys.readouterr().out == expected
    assert len(traces.roots()) == 2


@pytest.mark.parametrize("make", [simple_chat, context_chat])
@pytest.mark.parametrize("path", STREAMS)
def test_a_chat_engines_stream_goes_into_its_memory(llama_traces: Any, make: Any, path: str) -> None:
    """Its own thread or task reads it to the end, whether or not the consumer does."""
    engine = make()

    async def asynchronous() -> Any:
        response = await engine.astream_chat("q")
        task = response.awrite_response_to_history_task
        assert task is not None
        await task
        return response

    if path == "stream":
        response = engine.stream_chat("q")
        response.write_response_to_history_thread.join()
    else:
        response = asyncio.run(asynchronous())
    assert isinstance(response, StreamingAgentChatResponse) and response.response.startswith("echo:")
    if make is context_chat:  # the writer may be reading it already, so it is left in its place
        assert (response.chat_stream or response.achat_stream).__name__ == "wrapped_gen"
    assert [m.role.value for m in engine.chat_history] == ["user", "assistant"]
    [generation], [root] = llama_traces.stages("generation"), llama_traces.roots()
    assert root.end_time >= generation.end_time and "ragtrace.stopped_early" not in root.attributes
    [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == response.response


def test_condensed_questions(llama_traces: Any) -> None:
    from llama_index.core.chat_engine import CondensePlusContextChatEngine, CondenseQuestionChatEngine
    from llama_pipelines import memory

    for kind, below in ((CondenseQuestionChatEngine, query_engine()), (CondensePlusContextChatEngine, Shelf())):
        for path in ("invoke", "ainvoke", *STREAMS):
            engine = kind.from_defaults(below, llm=ChatEcho(), memory=memory())
            engine._memory.put(ChatMessage(role="user", content="before"))
            llama_traces.clear()
            call(path, CHAT, engine, ["q"])
            gc.collect()
            [root] = llama_traces.roots()
            assert {s.attributes["ragtrace.path"] for s in llama_traces.spans} == {path}
            assert root.name == f"pipeline {kind.__name__}"
            assert len(llama_traces.stages("generation")) >= 1 and len(llama_traces.stages("retrieval")) == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_engines_around_engines_know_beforehand_that_they_stream(llama_traces: Any, streaming: bool) -> None:
    from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
    from llama_index.core.query_engine import RouterQueryEngine, SubQuestionQueryEngine, TransformQueryEngine
    from llama_index.core.selectors import LLMSingleSelector
    from llama_index.core.tools import QueryEngineTool
    from ragtrace_llama_index.foresight import streams

    inner = query_engine(streaming=streaming)
    transforming = TransformQueryEngine(inner, IdentityQueryTransform())
    tools = [QueryEngineTool.from_defaults(transforming, name="a", description="a")]
    router = RouterQueryEngine(LLMSingleSelector.from_defaults(ChatEcho()), tools, llm=ChatEcho())
    assert streams(transforming) is streams(router) is streaming
    summing = SubQuestionQueryEngine.from_defaults(
        tools, llm=ChatEcho(), response_synthesizer=query_engine()._response_synthesizer, question_gen=object()
    )
    assert streams(summing) is False  # its parts' answers are read inside
    circle = TransformQueryEngine(inner, IdentityQueryTransform())
    circle._query_engine = circle  # type: ignore[assignment]
    assert streams(circle) is False
    answer = transforming.query("q")
    str(answer)
    assert {s.attributes["ragtrace.path"] for s in llama_traces.spans} == {"stream" if streaming else "invoke"}
    assert len(llama_traces.roots()) == 1


def test_cancelling_is_no_error(llama_traces: Any, caplog: Any) -> None:
    begun: list[asyncio.Event] = []

    class Slow(ChatEcho):
        async def achat(self, *args: Any, **kwargs: Any) -> Any:
            begun[0].set()
            await asyncio.Event().wait()

    async def cancelled() -> None:
        begun.append(asyncio.Event())
        task = asyncio.create_task(query_engine(Slow()).aquery("q"))
        await begun[0].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    for span in (*llama_traces.stages("generation"), *llama_traces.roots()):
        assert span.status.status_code.name == "UNSET" and span.attributes["ragtrace.stopped_early"] is True
    assert "detach" not in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # LlamaIndex's spans, without us too
def test_jobs_that_nobody_waits_for_any_more(llama_traces: Any, caplog: Any) -> None:
    """The first failure ends the batch; the others are closed by the garbage collector, in another context."""
    from llama_index.core.async_utils import run_async_tasks

    class Stuck(Shelf):
        async def _aretrieve(self, query_bundle: Any) -> Any:
            if query_bundle.query_str == "bad":
                raise LookupError("bad one")
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with pytest.raises(LookupError):
        run_async_tasks([Stuck().aretrieve("good"), Stuck().aretrieve("bad")])
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    asyncio.set_event_loop(None)
    del task, loop
    gc.collect()
    assert sorted(r.status.status_code.name for r in llama_traces.roots()) == ["ERROR", "UNSET"]
    assert "detach" not in caplog.text


def test_between_two_chunks_the_consumers_own_context_is_current(llama_traces: Any) -> None:
    tracer = trace.get_tracer("app")
    with tracer.start_as_current_span("handler"):
        before = trace.get_current_span()
        for stream in (query_engine(streaming=True).query("q").response_gen, ChatEcho().stream_chat(SAID)):
            for _ in stream:
                assert trace.get_current_span() is before


def test_workflows_of_the_apps_own(llama_traces: Any) -> None:
    from workflows import Workflow, step
    from workflows.events import Event as FlowEvent
    from workflows.events import StartEvent, StopEvent

    class Found(FlowEvent):
        nodes: Any

    class Flow(Workflow):
        @step
        async def look(self, ev: StartEvent) -> Found:
            return Found(nodes=await Shelf().aretrieve(ev.query))

        @step
        async def say(self, ev: Found) -> StopEvent:
            said = await ChatEcho().achat([ChatMessage(role="user", content=ev.nodes[0].text)])
            return StopEvent(result=said.message.content)

    async def streamed() -> Any:
        handler = Flow().run(query="q")
        seen = [type(e).__name__ async for e in handler.stream_events()]
        return seen[-1], await handler

    assert asyncio.run(streamed()) == ("StopEvent", "echo: alpha for q")
    [root] = llama_traces.roots()
    assert root.name == "pipeline Flow" and root.attributes["ragtrace.path"] == "ainvoke"
    stages = [s for s in llama_traces.spans if s.parent]
    assert {s.attributes["ragtrace.stage"] for s in stages} == {"retrieval", "context", "generation"}
    assert all(s.parent.span_id == root.context.span_id for s in stages)


@pytest.mark.parametrize("way", ["asked", "cancelled", "failed"])
def test_how_a_workflow_ends(llama_traces: Any, way: str) -> None:
    from workflows import Workflow, step
    from workflows.errors import WorkflowCancelledByUser
    from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

    class Asking(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> InputRequiredEvent:
            if way == "failed":
                raise LookupError("no")
            return InputRequiredEvent(prefix="may I?")

        @step
        async def hear(self, ev: HumanResponseEvent) -> StopEvent:
            return StopEvent(result=ev.response)

    async def run() -> Any:
        handler = Asking(timeout=None).run()
        if way == "failed":
            with pytest.raises(LookupError):
                await handler
            return None
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert llama_traces.roots() == []
                if way == "cancelled":
                    await handler.cancel_run()
                    break
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        if way == "cancelled":
            with pytest.raises(WorkflowCancelledByUser):
                await handler
            return None
        return await handler

    assert asyncio.run(run()) == ("yes" if way == "asked" else None)
    [root] = llama_traces.roots()
    assert root.status.status_code.name == ("ERROR" if way == "failed" else "UNSET")
    assert root.attributes.get("ragtrace.stopped_early", False) is (way == "cancelled")


@pytest.mark.parametrize("kind", ["workflow", "chat engine"])
def test_what_the_event_loop_leaves_behind_is_no_error(llama_traces: Any, caplog: Any, kind: str) -> None:
    class Slow(ChatEcho):
        async def astream_chat(self, *args: Any, **kwargs: Any) -> Any:
            async def chunks() -> Any:
                yield self._said("echo:", "echo:")
                await asyncio.Event().wait()

            return chunks()

    async def begin() -> Any:
        if kind == "workflow":
            return agent().run("q")
        return await simple_chat(Slow()).astream_chat("q")

    asyncio.run(begin())
    gc.collect()
    [root] = llama_traces.roots()
    assert root.status.status_code.name == "UNSET" and root.attributes["ragtrace.stopped_early"] is True
    assert all(s.end_time <= root.end_time for s in llama_traces.spans)
    assert "detach" not in caplog.text


@pytest.mark.parametrize("path", STREAMS)
def test_a_chat_engine_that_writes_no_memory(llama_traces: Any, path: str) -> None:
    """Nobody but the consumer reads its stream: the request ends with that."""
    from llama_index.core.chat_engine.types import BaseChatEngine

    class Forgetful(BaseChatEngine):
        chat = achat = reset = chat_history = None  # type: ignore[assignment]

        def stream_chat(self, message: str, chat_history: Any = None) -> Any:
            stream = ChatEcho().stream_chat([ChatMessage(content=message)])
            return StreamingAgentChatResponse(chat_stream=stream, is_writing_to_memory=False)

        async def astream_chat(self, message: str, chat_history: Any = None) -> Any:
            stream = await ChatEcho().astream_chat([ChatMessage(content=message)])
            return StreamingAgentChatResponse(achat_stream=stream, is_writing_to_memory=False)

    async def asynchronous() -> list[str]:
        response = await Forgetful().astream_chat("q")
        assert llama_traces.roots() == []
        return await aread(response)

    if path == "stream":
        response = Forgetful().stream_chat("q")
        assert llama_traces.roots() == []
        assert read(response) == ["echo:", " q"]
    else:
        assert asyncio.run(asynchronous()) == ["echo:", " q"]
    [root], [generation] = llama_traces.roots(), llama_traces.stages("generation")
    assert root.end_time >= generation.end_time and root.attributes["ragtrace.path"] == path
    assert "ragtrace.stopped_early" not in root.attributes
