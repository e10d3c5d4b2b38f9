"""However a call ends: its spans end once, say what was delivered, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda, RunnableParallel
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import STREAMS, Echo, Hooked, Shelf, TextEcho, Traces, call, lcel, retrieval_chain, text_chain

import ragtrace
from ragtrace import defense
from ragtrace.record import scope


@pytest.fixture(autouse=True, scope="module")
def _small_heap() -> Iterator[None]:
    """What is there before the tests is not looked at by their many collections."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Ledger(SpanProcessor):
    """Which spans have begun and have ended, and how often."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.begun[span.context.span_id] += 1

    def on_end(self, span: Any) -> None:
        self.ended[span.context.span_id] += 1


@pytest.fixture
def life(instrumented: Any, caplog: Any) -> Iterator[Traces]:
    """Each span that begins in the test ends in it, once, and nobody complains."""
    exporter, ledger = InMemorySpanExporter(), Ledger()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(ledger)
    instrumented(tracer_provider=provider)
    with caplog.at_level(logging.WARNING):
        yield Traces(exporter)
    gc.collect()
    assert ledger.begun == ledger.ended and set(ledger.ended.values()) <= {1}
    assert [r for r in caplog.get_records("call") if r.name.startswith(("opentelemetry", "ragtrace"))] == []


def graph() -> Any:
    from langgraph.graph import START, MessagesState, StateGraph

    made = StateGraph(MessagesState).add_node("say", lambda s: {"messages": [Echo().invoke(s["messages"])]})
    return made.add_edge(START, "say").compile()


MESSAGES = {"messages": [HumanMessage("a b c")]}
STREAMED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lcel": (lcel, "q", {}),
    "retrieval_chain": (retrieval_chain, "q", {}),
    "text_chain": (text_chain, "q", {}),
    "chat": (Echo, "a b c", {}),
    "text": (TextEcho, "a b c", {}),
    "graph": (graph, MESSAGES, {"stream_mode": "messages"}),
    "parallel": (lambda: RunnableParallel(a=Echo(), b=TextEcho()), "a b c", {}),
}


def said(span: Any) -> str:
    [answer] = json.loads(span.attributes["gen_ai.output.messages"])
    return str(answer["parts"][0]["content"])


def stopped(traces: Traces) -> None:
    """The consumer has stopped: no error anywhere, and the root says so."""
    assert {s.status.status_code.name for s in traces.spans} == {"UNSET"}
    [root] = traces.roots()
    assert root.attributes["ragtrace.stopped_early"] is True
    assert all(s.end_time <= root.end_time for s in traces.spans)


# streams


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("way", ["end", "close", "gc", "cycle", "throw"])
@pytest.mark.parametrize("what", STREAMED)
def test_streams_however_they_are_left(life: Traces, what: str, way: str, path: str) -> None:
    make, given, options = STREAMED[what]

    def sync() -> None:
        stream = make().stream(given, **options)
        if way == "end":
            list(stream)
            return
        next(stream)
        if way == "close":
            stream.close()
        elif way == "throw":
            with pytest.raises(GeneratorExit):
                stream.throw(GeneratorExit())
        elif way == "cycle":
            held: list[Any] = [stream]
            held.append(held)
        del stream

    async def asynchronous() -> None:
        stream = make().astream(given, **options)
        if way == "end":
            async for _ in stream:
                pass
            return
        await anext(stream)
        if way == "close":
            await stream.aclose()
        elif way == "throw":
            with pytest.raises(GeneratorExit):
                await stream.athrow(GeneratorExit())
        elif way == "cycle":
            held: list[Any] = [stream]
            held.append(held)
            del held
        del stream
        gc.collect()
        await asyncio.sleep(0)

    sync() if path == "stream" else asyncio.run(asynchronous())
    gc.collect()
    [root] = life.roots()
    if way == "end":
        assert root.status.status_code.name == "UNSET" and "ragtrace.stopped_early" not in root.attributes
        assert all(said(s).startswith("echo: ") for s in life.stages("generation"))
    else:
        stopped(life)
    assert life.stages("generation") or (what in ("retrieval_chain", "parallel") and way != "end")
    assert {s.context.trace_id for s in life.spans} == {root.context.trace_id}


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_nobody_begins_has_no_span(life: Traces, path: str) -> None:
    async def asynchronous() -> None:
        lcel().astream("q")
        await lcel().astream("q").aclose()

    if path == "stream":
        lcel().stream("q")
        lcel().stream("q").close()
    else:
        asyncio.run(asynchronous())
    gc.collect()
    assert life.spans == []


def test_a_loop_that_closes_closes_its_streams(life: Traces) -> None:
    kept: list[Any] = []

    async def leave() -> None:
        kept.append(lcel().astream("q"))
        await anext(kept[0])

    asyncio.run(leave())
    stopped(life)
    assert said(life.stages("generation")[0]) == "echo:"


def test_each_step_of_a_stream_in_a_thread_of_its_own(life: Traces) -> None:
    """As web servers do with sync generators."""
    stream, chunks = lcel().stream("q"), []

    def step() -> None:
        with contextlib.suppress(StopIteration):
            chunks.append(next(stream))

    while True:
        before = len(chunks)
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
        if len(chunks) == before:
            break
    assert "".join(chunks) == "echo: Be brief. alpha for q | beta for q ? q" == said(life.stages("generation")[0])
    assert len(life.spans) == 4 and len(life.roots()) == 1


def test_a_stream_closed_by_another_thread(life: Traces) -> None:
    stream = lcel().stream("q")
    next(stream)
    thread = threading.Thread(target=stream.close)
    thread.start()
    thread.join()
    stopped(life)


@pytest.mark.parametrize("ending", ["end", "close", "cancel"])
def test_each_step_of_a_stream_in_a_task_of_its_own(life: Traces, ending: str) -> None:
    async def consume() -> str:
        stream = lcel().astream("q")
        chunks = [await asyncio.create_task(anext(stream)) for _ in range(3)]
        if ending == "close":
            await asyncio.create_task(stream.aclose())
        elif ending == "cancel":
            task = asyncio.create_task(anext(stream))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await stream.aclose()
        else:
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    chunks.append(await asyncio.create_task(anext(stream)))
        return "".join(chunks)

    text = asyncio.run(consume())
    assert said(life.stages("generation")[0]) == text
    if ending != "end":
        stopped(life)


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("fail_at", [0, 2])
@pytest.mark.parametrize("what", ["lcel", "text_chain", "chat", "text"])
def test_a_stream_that_fails_says_what_was_delivered(life: Traces, what: str, fail_at: int, path: str) -> None:
    models = {"lcel": Echo, "chat": Echo, "text_chain": TextEcho, "text": TextEcho}
    model = models[what](fail_at=fail_at)
    made = {"lcel": lcel, "text_chain": text_chain}.get(what, lambda m: m)(model)
    with pytest.raises(OSError, match="the model is out"):
        call(path, made, ["a b c"])
    [generation], [root] = life.stages("generation"), life.roots()
    for span in (generation, root):
        assert span.status.status_code.name == "ERROR" and span.attributes["error.type"] == "OSError"
        assert "ragtrace.stopped_early" not in span.attributes
    first = {"lcel": "echo: Be", "text_chain": "echo: Human:"}.get(what, "echo: a")
    assert said(generation) == (first if fail_at else "")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_consumer_that_fails_is_no_error_of_the_pipelines(life: Traces, is_async: bool) -> None:
    def sync() -> None:
        for _ in lcel().stream("q"):
            raise KeyError("the consumer's own")

    async def asynchronous() -> None:
        stream = lcel().astream("q")
        async with contextlib.aclosing(stream):
            async for _ in stream:
                raise KeyError("the consumer's own")

    with pytest.raises(KeyError):
        asyncio.run(asynchronous()) if is_async else sync()
    gc.collect()
    stopped(life)


# cancelling


class Hanging(Echo):
    """Answers never, and says when it has begun."""

    begun: Any = None

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        self.begun.set()
        await asyncio.Event().wait()

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        yield ChatGenerationChunk(message=AIMessageChunk("so far"))
        self.begun.set()
        await asyncio.Event().wait()


class HangingShelf(Shelf):
    begun: Any = None

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        self.begun.set()
        await asyncio.Event().wait()


async def _wait_in_a_lambda(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


HANGING: dict[str, Any] = {
    "model": lambda e: lcel(Hanging(begun=e)),
    "retriever": lambda e: lcel(retriever=HangingShelf(begun=e)),
    "lambda": lambda e: lcel() | RunnableLambda(lambda _: None, afunc=lambda _: _wait_in_a_lambda(e)),
    "parallel": lambda e: RunnableParallel(a=Hanging(begun=e), b=HangingShelf(begun=e), c=Echo()),
}


@pytest.mark.parametrize("how", ["cancel", "timeout", "group"])
@pytest.mark.parametrize("path", ["ainvoke", "astream", "abatch"])
@pytest.mark.parametrize("where", HANGING)
def test_genai_646_a_cancelled_call_leaves_no_span_open(life: Traces, where: str, path: str, how: str) -> None:
    async def run(chain: Any) -> Any:
        if path == "astream":
            return [c async for c in chain.astream("q")]
        return await (chain.ainvoke("q") if path == "ainvoke" else chain.abatch(["q"]))

    async def cancelled() -> None:
        begun = asyncio.Event()
        chain = HANGING[where](begun)
        if how == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run(chain), 0.05)
        elif how == "group":
            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(run(chain))
                    await begun.wait()
                    raise ValueError("of another task")
        else:
            task = asyncio.create_task(run(chain))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    gc.collect()
    stopped(life)
    if where == "model" and path == "astream":
        assert said(life.stages("generation")[0]) == "so far"


@pytest.mark.parametrize("where", ["retriever", "observed"])
def test_a_task_that_is_destroyed_with_its_loop(life: Traces, where: str) -> None:
    """The collector closes it in another context than it ran in."""
    loop = asyncio.new_event_loop()
    begun = asyncio.Event()

    @ragtrace.observe(hook="query", name="house")
    async def house(query: str) -> str:
        return str(await _wait_in_a_lambda(begun))

    async def handler() -> None:
        with ragtrace.conversation("c"), ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
            await (HangingShelf(begun=begun).ainvoke("q") if where == "retriever" else house("q"))

    async def main() -> None:
        kept.append(asyncio.create_task(handler()))
        await begun.wait()

    kept: list[Any] = []
    loop.run_until_complete(main())
    loop.close()
    kept.clear()
    del loop
    gc.collect()
    assert defense.active() == () and scope.current() is None and scope.conversation_id() is None
    if where == "retriever":
        stopped(life)
        assert [s.name for s in life.spans] == ["retrieval HangingShelf", "pipeline HangingShelf"]


@pytest.mark.parametrize("ending", ["close", "gc", "cancel"])
def test_an_agent_that_is_left_while_its_model_speaks_keeps_what_was_said(life: Traces, ending: str) -> None:
    """The model is invoked; LangGraph hears its tokens by callbacks."""
    from langgraph.graph import START, MessagesState, StateGraph

    async def consume() -> None:
        model = Hanging(begun=asyncio.Event())

        async def say(state: Any) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        made = StateGraph(MessagesState).add_node("say", say).add_edge(START, "say").compile()
        stream = made.astream(MESSAGES, stream_mode="messages")
        chunk, _ = await anext(stream)
        assert chunk.text == "so far"
        await model.begun.wait()
        if ending == "close":
            await stream.aclose()
        elif ending == "cancel":
            task = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            del stream
            gc.collect()
            await asyncio.sleep(0)

    asyncio.run(consume())
    stopped(life)
    assert said(life.stages("generation")[0]) == "so far"


@pytest.mark.parametrize("path", STREAMS)
def test_openinference_3790_the_text_so_far_is_kept_when_a_defense_watches(life: Traces, path: str) -> None:
    """A response defense has read the whole answer before its first chunk leaves."""
    with ragtrace.defend(Hooked("response", str.upper)):
        if path == "stream":
            stream = lcel().stream("q")
            assert next(stream) == "ECHO: BE BRIEF. ALPHA FOR Q | BETA FOR Q ? Q"
            stream.close()
        else:

            async def consume() -> None:
                async for chunk in lcel().astream("q"):
                    assert chunk.isupper()
                    break

            asyncio.run(consume())
    gc.collect()
    [generation] = life.stages("generation")
    assert generation.attributes["ragtrace.buffered"] is True
    assert [e["status"] for e in life.effects()] == ["changed"]
    assert {s.status.status_code.name for s in life.spans} == {"UNSET"}


def test_a_context_that_somebody_left_behind_does_not_blind_what_follows(traces: Any) -> None:
    """Instrumentations that detach late make an ended request current again: for ever, where nobody resets it."""
    from opentelemetry import context as otel

    kept: list[Any] = []
    (RunnableLambda(lambda q: kept.append(otel.get_current()) or q) | lcel()).invoke("q")
    traces.clear()
    token = otel.attach(kept[0])
    try:
        with ragtrace.defend(Hooked("response", str.upper)):
            assert lcel().invoke("q").startswith("ECHO")
    finally:
        otel.detach(token)
    assert [s.name for s in traces.spans if s.name.startswith("pipeline")] == ["pipeline RunnableSequence"]
    assert [e["status"] for e in traces.effects()] == ["changed"]
    assert len(traces.stages("retrieval")) == len(traces.stages("generation")) == 1
