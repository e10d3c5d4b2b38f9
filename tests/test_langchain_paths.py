"""LangChain's six paths: what the app gets is what it got before, and each request is one trace."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import traceback
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from pipelines import (
    BATCHES,
    PATHS,
    STREAMS,
    Echo,
    Hooked,
    Shelf,
    TextEcho,
    call,
    join,
    lcel,
    retrieval_chain,
    text_chain,
)
from ragtrace_langchain import LangChainInstrumentor
from ragtrace_langchain.generating import Streamed

import ragtrace
from ragtrace.record.effects import Effect
from ragtrace.record.hooks import Generation, Request, Retrieval
from ragtrace.record.scope import Scope

PIPELINES = {
    "lcel": lcel,
    "retrieval_chain": retrieval_chain,
    "text_chain": text_chain,
    "retriever": Shelf,
    "chat": Echo,
    "text": TextEcho,
}
BROKEN = {
    "lcel": lambda: lcel(Echo(fail_at=2)),
    "retrieval_chain": lambda: retrieval_chain(Echo(fail_at=2)),
    "text_chain": lambda: text_chain(TextEcho(fail_at=2)),
    "retriever": lambda: Shelf(error=LookupError("the shelf is gone")),
    "chat": lambda: Echo(fail_at=1),
    "text": lambda: TextEcho(fail_at=1),
    "lcel-retriever": lambda: lcel(retriever=Shelf(error=LookupError("the shelf is gone"))),
}


def told(value: Any) -> Any:
    """A value as data; run ids, which are random, by their form."""
    if isinstance(value, BaseMessage) or hasattr(value, "page_content"):
        value = (type(value).__name__, value.model_dump())
    elif isinstance(value, list | tuple):
        return [told(v) for v in value]
    elif isinstance(value, dict):
        return {k: told(v) for k, v in value.items()}
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<run>", repr(value))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_app_gets_what_it_got_before(instrumented: Any, pipeline: str, path: str) -> None:
    expected = call(path, PIPELINES[pipeline](), ["q1", "q2"])
    traces = instrumented()
    assert told(call(path, PIPELINES[pipeline](), ["q1", "q2"])) == told(expected)
    requests = 2 if path in BATCHES else 1
    assert len(traces.roots()) == requests
    assert {s.attributes["ragtrace.path"] for s in traces.spans} == {path}
    assert len({s.context.trace_id for s in traces.spans}) == requests
    stages = {s.attributes["ragtrace.stage"] for s in traces.spans if "ragtrace.stage" in s.attributes}
    wanted = {"retriever": {"retrieval"}, "chat": {"generation"}, "text": {"generation"}}
    assert stages == wanted.get(pipeline, {"retrieval", "context", "generation"})
    for root in traces.roots():
        own = [s for s in traces.spans if s.parent and s.context.trace_id == root.context.trace_id]
        assert all(s.parent.span_id == root.context.span_id for s in own)
        assert all(root.start_time <= s.start_time <= s.end_time <= root.end_time for s in own)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("pipeline", BROKEN)
def test_the_apps_exceptions_stay_its_own(instrumented: Any, pipeline: str, path: str) -> None:
    with pytest.raises(Exception) as expected:
        call(path, BROKEN[pipeline](), ["q1", "q2"])
    traces = instrumented()
    with pytest.raises(type(expected.value), match=str(expected.value)) as found:
        call(path, BROKEN[pipeline](), ["q1", "q2"])
    tails = [traceback.extract_tb(e.tb)[-1] for e in (expected, found)]
    assert (tails[0].filename, tails[0].name) == (tails[1].filename, tails[1].name)
    assert found.value.__cause__ is None
    root = traces.roots()[0]
    assert root.status.status_code.name == "ERROR"
    assert root.attributes["error.type"] == type(expected.value).__name__
    failed = [s for s in traces.spans if s.parent and s.status.status_code.name == "ERROR"]
    assert failed and all(s.events[0].attributes["exception.message"] == str(expected.value) for s in failed)


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_breaks_keeps_what_was_delivered(traces: Any, path: str) -> None:
    with pytest.raises(OSError):
        call(path, lcel(Echo(fail_at=2)), ["q"])
    [generation] = traces.stages("generation")
    [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == "echo: Be"


def test_return_exceptions_fails_one_request_only(traces: Any) -> None:
    def pick(q: str) -> str:
        if q == "bad":
            raise ValueError("bad one")
        return q

    results = (RunnableLambda(pick) | lcel()).batch(["good", "bad"], return_exceptions=True)
    assert isinstance(results[1], ValueError) and results[0].startswith("echo:")
    assert sorted(r.status.status_code.name for r in traces.roots()) == ["ERROR", "UNSET"]


def test_batch_in_threads_and_with_limits(traces: Any) -> None:
    questions = [f"q{i}" for i in range(7)]
    results = lcel().batch(questions, config={"max_concurrency": 2})
    assert all(r.endswith(f"? q{i}") for i, r in enumerate(results))
    for model in (text_chain(), TextEcho()):
        traces.clear()
        model.batch(questions, config={"max_concurrency": 2})
        assert len(traces.roots()) == len(traces.stages("generation")) == 7
        assert {s.context.trace_id for s in traces.stages("generation")} == {r.context.trace_id for r in traces.roots()}


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("way", ["break", "close", "gc"])
def test_leaving_a_stream_early_is_no_error(traces: Any, caplog: Any, path: str, way: str) -> None:
    def sync() -> None:
        stream = lcel().stream("q")
        for _ in range(2):
            next(stream)
        if way == "close":
            stream.close()
        elif way == "gc":
            del stream
            gc.collect()

    async def asynchronous() -> None:
        stream = lcel().astream("q")
        async for _ in stream:
            if way == "break":
                break
            await anext(stream)
            break
        if way == "close":
            await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0.01)

    sync() if path == "stream" else asyncio.run(asynchronous())
    gc.collect()
    [generation], [root] = traces.stages("generation"), traces.roots()
    for span in (generation, root):
        assert span.status.status_code.name == "UNSET"
        assert span.attributes["ragtrace.stopped_early"] is True
    assert generation.end_time <= root.end_time
    [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] in ("echo:", "echo: Be")
    assert answer["finish_reason"] == "unknown"
    assert "detach" not in caplog.text and "ragtrace" not in caplog.text


def test_cancelling_is_no_error(traces: Any, caplog: Any) -> None:
    class Slow(Echo):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.create_task(lcel(Slow()).ainvoke("q"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    for span in (*traces.stages("generation"), *traces.roots()):
        assert span.status.status_code.name == "UNSET" and span.attributes["ragtrace.stopped_early"] is True
    assert "detach" not in caplog.text


def test_between_two_chunks_the_consumers_own_context_is_current(traces: Any) -> None:
    tracer = trace.get_tracer("app")
    with tracer.start_as_current_span("handler"):
        before = trace.get_current_span()
        for _ in lcel().stream("q"):
            assert trace.get_current_span() is before


def test_a_stream_made_in_a_request_and_read_after_it(traces: Any) -> None:
    model = Echo()
    with ragtrace.defend(Hooked("response", str.upper)):
        later = RunnableLambda(lambda q: [model.stream(q)]).invoke("q")
        assert "".join(c.text for c in later[0]) == "ECHO: Q"
    assert [e["status"] for e in traces.effects()] == ["changed"]


def test_suppressed_instrumentation_records_nothing_and_defends_all_the_same(traces: Any) -> None:
    with suppress_instrumentation(), ragtrace.defend(Hooked("response", str.upper)):
        assert lcel().invoke("q").startswith("ECHO")
    assert traces.spans == []


def test_a_sampler_that_records_nothing(instrumented: Any) -> None:
    traces = instrumented(sampler=ALWAYS_OFF)
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
        assert lcel().invoke("q") == "echo: Be brief. alpha for q ? q"
    assert traces.spans == []


def test_uninstrument_gives_back_the_very_same_functions(instrumented: Any) -> None:
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.language_models import BaseChatModel, BaseLLM
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import Runnable, RunnableSequence
    from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
    from langgraph.pregel import Pregel

    kinds = [BaseChatModel, BaseLLM, BaseRetriever, EnsembleRetriever, Runnable, RunnableSequence, Pregel]
    kinds += [InMemoryVectorStore, VectorStore]
    before = [dict(vars(k)) for k in kinds]
    instrumented()
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
    store.add_texts(["a"])
    assert store.as_retriever().invoke("a")
    assert vars(BaseChatModel)["invoke"] is not before[0]["invoke"]
    assert vars(InMemoryVectorStore)["similarity_search_with_score"] is not before[-2]["similarity_search_with_score"]
    LangChainInstrumentor().uninstrument()
    for kind, was in zip(kinds, before, strict=True):
        assert [n for n, v in was.items() if vars(kind).get(n) is not v and callable(v)] == []


def test_instrumenting_twice_is_harmless(instrumented: Any, caplog: Any) -> None:
    traces = instrumented()
    instrumented()
    assert "already instrumented" in caplog.text
    lcel().invoke("q")
    assert len(traces.roots()) == 1 and len(traces.stages("generation")) == 1


def test_defenses_given_to_instrument_act_everywhere(instrumented: Any) -> None:
    traces = instrumented(defenses=[Hooked("response", str.upper)])
    assert lcel().invoke("q").startswith("ECHO")
    [root] = traces.roots()
    assert json.loads(root.attributes["ragtrace.declared"]) == {"hooked": ["response"]}


def test_a_wrap_on_top_of_ours_stays_and_stands_aside(instrumented: Any) -> None:
    import wrapt
    from langchain_core.language_models import BaseChatModel

    traces = instrumented()
    ours = vars(BaseChatModel)["invoke"]
    calls: list[int] = []

    def other(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        calls.append(1)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(BaseChatModel, "invoke", other)
    try:
        LangChainInstrumentor().uninstrument()
        assert Echo().invoke("q").text == "echo: q"
        assert calls == [1] and traces.spans == []
    finally:
        BaseChatModel.invoke = ours.__wrapped__  # type: ignore[method-assign]


@pytest.mark.parametrize("is_async", [False, True])
def test_retrievers_inside_retrievers_are_defended_once(traces: Any, is_async: bool) -> None:
    from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
    from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
    from langchain_core.documents import BaseDocumentTransformer

    class Short(BaseDocumentTransformer):
        def transform_documents(self, documents: Any, **kwargs: Any) -> Any:
            return list(documents)[:1]

    ensemble = EnsembleRetriever(retrievers=[Shelf(words=["a", "b"]), Shelf(words=["b", "c"])], weights=[0.5, 0.5])
    compressor = DocumentCompressorPipeline(transformers=[Short()])
    compressing = ContextualCompressionRetriever(base_compressor=compressor, base_retriever=Shelf())
    for retriever, texts in ((ensemble, ["b for Q", "a for Q", "c for Q"]), (compressing, ["alpha for Q"])):
        traces.clear()
        with ragtrace.defend(Hooked("query", lambda q: q.upper())):
            found = asyncio.run(retriever.ainvoke("q")) if is_async else retriever.invoke("q")
        assert [d.page_content for d in found] == texts
        assert [e["status"] for e in traces.effects() if not e.get("part")] == ["changed"]
        outer = [s for s in traces.stages("retrieval") if not s.attributes.get("ragtrace.nested")]
        assert [s.attributes["gen_ai.retrieval.query.text"] for s in outer] == ["q"]
        assert len(traces.roots()) == 1


@pytest.mark.parametrize("hook", ["query", "content", "prompt", "response"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", [Echo, TextEcho])
def test_a_defense_that_asks_the_pipelines_own_model(traces: Any, hook: str, is_async: bool, kind: Any) -> None:
    model, asked = kind(), []

    class Paraphrase(ragtrace.Defense):
        name = "paraphrase"

    def sync(self: Any, *args: Any) -> Any:
        asked.append(model.invoke("say it again"))
        return args[-1]

    async def asynchronous(self: Any, *args: Any) -> Any:
        asked.append(await model.ainvoke("say it again"))
        return args[-1]

    setattr(Paraphrase, f"on_{hook}", asynchronous if is_async else sync)
    chain = text_chain(model) if kind is TextEcho else lcel(model)
    with ragtrace.defend(Paraphrase()):
        asyncio.run(chain.ainvoke("q")) if is_async else chain.invoke("q")
    assert len(asked) == 1
    assert [(e["hook"], e["status"]) for e in traces.effects()] == [(hook, "unchanged")]
    assert [bool(s.attributes.get("ragtrace.nested")) for s in traces.stages("generation")].count(True) == 1
    assert len(traces.roots()) == 1


def test_ten_thousand_runs_leave_nothing_behind(instrumented: Any) -> None:
    kinds = (Scope, Effect, Request, Retrieval, Generation, Streamed, ragtrace.Document, ragtrace.Message)

    def ours() -> int:
        gc.collect()
        return sum(type(o) in kinds for o in gc.get_objects())

    before = ours()
    instrumented(capture="none")

    def sometimes(q: int) -> AIMessage:
        if q % 5 == 0:
            raise ValueError("no")
        return AIMessage("fine")

    chain = RunnableLambda(sometimes) | RunnableLambda(lambda m: m.text)
    for i in range(10_000):
        if i % 5 == 0:
            with pytest.raises(ValueError):
                chain.invoke(i)
        else:
            chain.invoke(i)
    pipeline, broken = lcel(), lcel(Echo(fail_at=1))
    with ragtrace.defend(Hooked("response", str.upper)):
        for i in range(100):
            pipeline.invoke("q")
            if i % 2:
                next(pipeline.stream("q"))
            with pytest.raises(OSError):
                broken.invoke("q")
    assert ours() == before


def test_langgraph_interrupts_are_no_errors(traces: Any) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.types import interrupt

    model = Echo()

    def ask(state: Any) -> Any:
        interrupt("may I?")
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": "1"}})
    [root] = traces.roots()
    assert root.status.status_code.name == "UNSET"


def test_retries_and_fallbacks_are_one_request(traces: Any) -> None:
    tries: list[int] = []

    def flaky(q: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("again")
        return q

    assert (RunnableLambda(flaky) | Echo()).with_retry(wait_exponential_jitter=False).invoke("q").text == "echo: q"
    Echo(fail_at=1).with_fallbacks([Echo()]).invoke("q")
    assert len(traces.roots()) == 2


def test_join_is_the_chains_own(traces: Any) -> None:
    """A context that the app assembles from the very documents that the retriever returned."""
    found = Shelf().invoke("q")
    assert join(found) == "alpha for q | beta for q"
