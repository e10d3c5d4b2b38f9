"""Real reports about other instrumentations (LangChain and OpenTelemetry), each with the value that is right.

Named by tracker and number: ``openinference``, ``langfuse``, ``phoenix``, ``openllmetry``, ``genai``
(opentelemetry-python-genai). What concerns parents, samplers and other instrumentations in general is in
test_otel_citizenship.py; streams and growth are in test_lifecycles.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.vectorstores import InMemoryVectorStore
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import BATCHES, PATHS, STREAMS, Echo, Hooked, Shelf, Traces, call, join, lcel
from ragtrace_langchain import LangChainInstrumentor
from store_fixtures import Bench

import ragtrace

ASYNC = ("ainvoke", "astream", "abatch")


def tree(traces: Traces) -> dict[str, list[str]]:
    """The names of the spans below each span's name; ``""`` stands above roots."""
    names = {s.context.span_id: s.name for s in traces.spans}
    out: dict[str, list[str]] = {}
    for span in traces.spans:
        out.setdefault(names[span.parent.span_id] if span.parent else "", []).append(span.name)
    return {above: sorted(below) for above, below in out.items()}


# parents


def test_openinference_147_async_child_spans_are_under_their_own_parent(traces: Any) -> None:
    class Async(Shelf):
        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            with traces.tracer.start_as_current_span(f"search {query}"):
                await asyncio.sleep(0)
                return [Document(page_content=query)]

    async def handler(name: str) -> None:
        with traces.tracer.start_as_current_span(name):
            await asyncio.gather(*(Async().ainvoke(f"{name}{i}") for i in range(2)))

    async def both() -> None:
        await asyncio.gather(handler("a"), handler("b"))

    asyncio.run(both())
    by_id = {s.context.span_id: s for s in traces.spans}
    for query in ("a0", "a1", "b0", "b1"):
        [search] = [s for s in traces.spans if s.name == f"search {query}"]
        retrieval = by_id[search.parent.span_id]
        assert retrieval.attributes["gen_ai.retrieval.query.text"] == query
        assert by_id[by_id[retrieval.parent.span_id].parent.span_id].name == query[0]


@pytest.mark.parametrize("is_async", [False, True])
def test_openinference_280_an_error_in_a_thread_does_not_reroot_what_follows(traces: Any, is_async: bool) -> None:
    broken = Shelf(error=LookupError("gone"))
    tries = broken.with_fallbacks([Shelf()])
    both = RunnableParallel(a=tries, b=tries) | RunnableLambda(lambda found: join(found["a"])) | Echo()
    with traces.tracer.start_as_current_span("handler"):
        asyncio.run(both.ainvoke("q")) if is_async else both.invoke("q")
    assert tree(traces) == {
        "": ["handler"],
        "handler": ["pipeline RunnableSequence"],
        "pipeline RunnableSequence": ["chat Echo", "context", *["retrieval Shelf"] * 4],
    }
    assert sorted(s.status.status_code.name for s in traces.stages("retrieval")) == ["ERROR"] * 2 + ["UNSET"] * 2


def test_openinference_1304_there_is_a_current_span_under_astream_events(traces: Any) -> None:
    seen: list[Any] = []

    def look(text: str) -> str:
        seen.append(trace.get_current_span())
        return text

    async def consume() -> None:
        async for _ in (lcel() | RunnableLambda(look)).astream_events("q", version="v2"):
            assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(consume())
    assert {s.name for s in seen} == {"pipeline RunnableSequence"}
    assert tree(traces) == {
        "": ["pipeline RunnableSequence"],
        "pipeline RunnableSequence": ["chat Echo", "context", "retrieval Shelf"],
    }


def test_langfuse_3491_a_handler_shared_between_threads_mixes_nothing(traces: Any) -> None:
    class Shared(BaseCallbackHandler):
        """What apps hand to every call."""

    chain, handler = lcel(), Shared()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: chain.invoke(f"q{i}", {"callbacks": [handler]}), range(40)))
    assert [a.rsplit(" ", 1)[1] for a in answers] == [f"q{i}" for i in range(40)]
    of_trace: dict[int, list[Any]] = {}
    for span in traces.spans:
        of_trace.setdefault(span.context.trace_id, []).append(span)
    assert len(of_trace) == 40
    for spans in of_trace.values():
        [root] = [s for s in spans if s.parent is None]
        assert {s.parent.span_id for s in spans if s.parent} == {root.context.span_id}
        query, asked = (
            next(s.attributes[k] for s in spans if k in s.attributes)
            for k in ("gen_ai.retrieval.query.text", "ragtrace.query")
        )
        assert query == asked and len(spans) == 4


@pytest.mark.parametrize("path", ASYNC)
def test_langfuse_8780_nothing_is_detached_in_another_context(traces: Any, caplog: Any, path: str) -> None:
    from opentelemetry import context

    async def step(value: Any) -> Any:
        token = context.attach(context.set_value("app", 1))  # the app's own attaching, between tasks of LangChain's
        await asyncio.sleep(0)
        context.detach(token)
        return value

    with caplog.at_level(logging.DEBUG):
        call(path, RunnableLambda(step) | lcel() | RunnableLambda(step), ["q", "r"])
    assert [r for r in caplog.records if r.name.startswith(("opentelemetry", "ragtrace"))] == []
    assert len(traces.roots()) == (2 if path in BATCHES else 1)


@pytest.mark.parametrize("path", ASYNC)
def test_genai_513_677_async_steps_are_one_trace_and_log_nothing(traces: Any, caplog: Any, path: str) -> None:
    async def retrieve(query: str) -> str:
        found = await asyncio.gather(Shelf().ainvoke(query), asyncio.create_task(Shelf().ainvoke(query)))
        return join(found[0])

    call(path, RunnableLambda(retrieve) | Echo(), ["q"])
    assert tree(traces) == {
        "": ["pipeline RunnableSequence"],
        "pipeline RunnableSequence": ["chat Echo", "context", "retrieval Shelf", "retrieval Shelf"],
    }
    assert caplog.records == []


def test_phoenix_3274_work_in_threads_is_of_the_callers_trace(traces: Any) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    def node(name: str) -> Any:
        def run(state: Any) -> Any:
            with ThreadPoolExecutor(2) as pool:  # an app's own pool, with the context handed on
                found = [pool.submit(copy_context().run, Shelf().invoke, f"{name}{i}") for i in range(2)]
                return {"messages": [AIMessage(join(f.result())) for f in found]}

        return run

    graph = StateGraph(MessagesState).add_node("a", node("a")).add_node("b", node("b"))
    graph.add_edge(START, "a").add_edge(START, "b")
    with traces.tracer.start_as_current_span("handler"):
        out = graph.compile().invoke({"messages": [("user", "q")]})
        RunnableParallel(a=Shelf(), b=Shelf()).batch(["x", "y"])
    assert len(out["messages"]) == 5
    assert tree(traces) == {
        "": ["handler"],
        "handler": ["pipeline CompiledStateGraph", *["pipeline RunnableParallel"] * 2],
        "pipeline CompiledStateGraph": ["retrieval Shelf"] * 4,
        "pipeline RunnableParallel": ["retrieval Shelf"] * 4,
    }


# retrievers


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("words", [[], ["a"], ["a", "b", "c"]])
def test_openinference_2627_a_retrievers_span_has_its_documents(traces: Any, path: str, words: list[str]) -> None:
    call(path, Shelf(words=words), ["q"])
    [retrieval] = traces.stages("retrieval")
    rows = json.loads(retrieval.attributes["gen_ai.retrieval.documents"])
    assert [(r["id"], r["content"], r["score"]) for r in rows] == [(w, f"{w} for q", 0.5) for w in words]


class Around(Shelf):
    """Has a way in of its own, round LangChain's."""

    def invoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
        return super().invoke(input, config, **kwargs)[:1]

    async def ainvoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
        return (await super().ainvoke(input, config, **kwargs))[:1]


class Past(BaseRetriever):
    """Has a way in of its own, past LangChain's: no callback hears of it."""

    def invoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
        return [Document(page_content=f"alpha for {input}")]

    async def ainvoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
        return self.invoke(input)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [Around, Past])
def test_openinference_239_a_retriever_with_its_own_invoke_is_met_once(traces: Any, kind: Any, path: str) -> None:
    with ragtrace.defend(Hooked("query", str.upper)):
        answer = call(path, lcel(retriever=kind()), ["q"])
    assert "".join(answer) == "echo: Be brief. alpha for Q ? q"
    [retrieval] = traces.stages("retrieval")
    assert [d["content"] for d in traces.documents()] == ["alpha for Q"]
    assert retrieval.attributes["gen_ai.retrieval.query.text"] == "q"
    assert [e["status"] for e in traces.effects()] == ["changed"]


def test_openinference_584_phoenix_908_scores_are_the_stores_own(traces: Any) -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_texts(["a", "b", "c"])
    found = store.as_retriever(search_kwargs={"k": 2}).invoke("a")
    wanted = {d.page_content: s for d, s in store.similarity_search_with_score("a", k=3)}
    rows = traces.documents()
    assert [r["content"] for r in rows] == [d.page_content for d in found] and rows[0]["content"] == "a"
    assert [r["score"] for r in rows] == pytest.approx([wanted[r["content"]] for r in rows])
    assert rows[0]["score"] == pytest.approx(1.0)


def test_openinference_148_js3527_all_of_200_documents_are_kept(traces: Any) -> None:
    lcel(retriever=Shelf(words=[f"w{i}" for i in range(200)])).invoke("q")
    rows = traces.documents()
    assert [r["id"] for r in rows] == [f"w{i}" for i in range(200)]
    assert rows[0]["content"] == "w0 for q" and len(traces.documents("ragtrace.documents.in_prompt")) == 200
    assert all(s.dropped_attributes == 0 and len(s.attributes) < 40 for s in traces.spans)


class Redact(BaseDocumentTransformer):
    """Edits in place: the texts of the very objects that it was given."""

    def transform_documents(self, documents: Any, **kwargs: Any) -> Any:
        for document in documents:
            document.page_content = document.page_content.replace("alpha", "[redacted]")
        return documents


@pytest.mark.parametrize("path", PATHS)
def test_an_edit_in_place_has_its_before_and_its_after(traces: Any, path: str) -> None:
    from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline

    retriever = ContextualCompressionRetriever(
        base_compressor=DocumentCompressorPipeline(transformers=[Redact()]), base_retriever=Shelf()
    )
    assert "".join(call(path, retriever | RunnableLambda(join), ["q"])) == "[redacted] for q | beta for q"
    outer, inner = sorted(traces.stages("retrieval"), key=lambda s: s.attributes.get("ragtrace.nested", False))
    for stage in (outer, inner):
        before = json.loads(stage.attributes["gen_ai.retrieval.documents"])
        assert [d["content"] for d in before] == ["alpha for q", "beta for q"]
    after = json.loads(outer.attributes["ragtrace.documents.after_defense"])
    assert after[0]["content"] == "[redacted] for q" and after[1]["of"] == 1
    assert [(e["defense"], e["status"], e["text_changed"]) for e in traces.effects()] == [("Redact", "changed", True)]


@pytest.mark.parametrize("path", PATHS)
def test_where_openinference_shows_an_edited_input_equal_to_its_output(traces: Any, path: str) -> None:
    """It reads a run's inputs at the run's end."""
    from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference

    @ragtrace.observe(hook="content", name="house")
    def redact(documents: Any) -> Any:
        return Redact().transform_documents(documents)

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    OpenInference().instrument(tracer_provider=provider)
    try:
        call(path, Shelf() | RunnableLambda(lambda ds: redact(ds), name="redact") | RunnableLambda(join), ["q"])
    finally:
        OpenInference().uninstrument()
    [theirs] = [s for s in exporter.get_finished_spans() if s.name == "redact"]
    assert "[redacted]" in theirs.attributes["input.value"] and "alpha for" not in theirs.attributes["input.value"]
    assert [d["content"] for d in traces.documents()] == ["alpha for q", "beta for q"]
    [effect] = [e for e in traces.effects() if e["defense"] == "house"]
    assert (effect["status"], effect["text_changed"]) == ("changed", True)
    assert (effect["chars_before"], effect["chars_after"]) == (21, 26)


@pytest.mark.parametrize("path", PATHS)
def test_the_inner_retriever_of_a_wrapped_one_is_shown_as_nested(traces: Any, path: str) -> None:
    """The official GenAI instrumentation hides it."""

    class Wrapping(BaseRetriever):
        inner: BaseRetriever

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            return self.inner.invoke(query, {"callbacks": run_manager.get_child()})[::-1]

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            return (await self.inner.ainvoke(query, {"callbacks": run_manager.get_child()}))[::-1]

    with ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
        [found] = call(path, Wrapping(inner=Shelf()), ["q"])
    assert [d.page_content for d in found] == ["beta for q"]
    assert tree(traces) == {
        "": ["pipeline Wrapping"],
        "pipeline Wrapping": ["retrieval Wrapping"],
        "retrieval Wrapping": ["retrieval Shelf"],
    }
    inner, outer = traces.stages("retrieval")
    assert inner.attributes["ragtrace.nested"] is True and "ragtrace.nested" not in outer.attributes
    ids = [[d["id"] for d in json.loads(s.attributes["gen_ai.retrieval.documents"])] for s in (inner, outer)]
    assert ids == [["alpha", "beta"], ["beta", "alpha"]]


# on and off


class Short(BaseDocumentCompressor):
    """Keeps the first."""

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return list(documents)[:1]


def test_openinference_346_no_span_after_uninstrument(traces: Any) -> None:
    chain, stream = lcel(), lcel().stream("q")
    chain.invoke("q")
    assert len(traces.spans) == 4
    LangChainInstrumentor().uninstrument()
    traces.clear()
    for path in PATHS:
        call(path, chain, ["q"])
        call(path, lcel(), ["q"])
    assert traces.spans == []
    assert "".join(stream) == "echo: Be brief. alpha for q | beta for q ? q"  # made before, begun after
    assert traces.spans == []


@pytest.mark.parametrize("path", PATHS)
def test_openinference_242_2593_suppression_reaches_threads_and_tasks(traces: Any, path: str) -> None:
    async def tasks(query: str) -> str:
        found = await asyncio.gather(asyncio.create_task(Shelf().ainvoke(query)), Shelf().ainvoke(query))
        return join(found[0])

    @ragtrace.observe(hook="response", name="house")
    def house(text: str) -> str:
        return text + "!"

    compressing = ContextualCompressionRetriever(base_compressor=Short(), base_retriever=Shelf())
    parts: dict[str, Any] = {"a": lcel(), "b": Shelf(), "c": compressing}
    if path in ASYNC:
        parts["d"] = RunnableLambda(tasks)
    chain = RunnableParallel(**parts) | RunnableLambda(lambda out: house(out["a"]))
    with suppress_instrumentation(), ragtrace.defend(Hooked("response", str.upper), Hooked("query", lambda q: "Q")):
        answer = "".join(call(path, chain, ["q", "r"])[:1])
    assert answer == "ECHO: BE BRIEF. ALPHA FOR Q | BETA FOR Q ? Q!"
    assert traces.spans == []
    call(path, chain, ["q", "r"])
    assert len(traces.roots()) == (2 if path in BATCHES else 1)


# two instrumentations


def test_openinference_2101_one_model_call_is_one_generation(instrumented: Any, tmp_path: Path) -> None:
    from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference

    bench = Bench(tmp_path / "t.duckdb")
    OpenInference().instrument(tracer_provider=bench.provider)
    try:
        instrumented(tracer_provider=bench.provider)
        lcel().invoke("q")
        "".join(lcel().stream("q"))
    finally:
        OpenInference().uninstrument()
    scopes = [s.instrumentation_scope.name for s in bench.memory.get_finished_spans() if "Echo" in s.name]
    assert len(scopes) == 4 and scopes.count("ragtrace") == 2
    with bench.open() as db:
        assert db.execute("SELECT path, count(*) FROM generations GROUP BY path ORDER BY path").fetchall() == [
            ("invoke", 1),
            ("stream", 1),
        ]
        assert db.execute("SELECT count(*) FROM stages WHERE stage = 'retrieval'").fetchone() == (2,)


# leaving early


@pytest.mark.parametrize("path", STREAMS)
def test_openinference_3790_breaking_out_of_a_graphs_stream_keeps_its_spans(traces: Any, path: str) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(MessagesState).add_node("say", lambda s: {"messages": [Echo().invoke(s["messages"])]})
    made, state = graph.add_edge(START, "say").compile(), {"messages": [("user", "a b c d e")]}

    async def asynchronous() -> None:
        async for _ in made.astream(state, stream_mode="messages"):
            break

    if path == "stream":
        for _ in made.stream(state, stream_mode="messages"):
            break
    else:
        asyncio.run(asynchronous())
    [generation], [root] = traces.stages("generation"), traces.roots()
    assert generation.parent.span_id == root.context.span_id
    assert {s.status.status_code.name for s in traces.spans} == {"UNSET"}
    assert root.attributes["ragtrace.stopped_early"] is True
    assert json.loads(generation.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"].startswith("echo:")
