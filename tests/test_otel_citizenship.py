"""A good citizen of OpenTelemetry: parents, threads, samplers, suppression, and taking it off."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from opentelemetry import context, trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from pipelines import PATHS, STREAMS, Echo, Hooked, Shelf, TextEcho, Traces, call, join, lcel
from ragtrace_langchain import LangChainInstrumentor

import ragtrace


def named(traces: Traces, name: str) -> Any:
    [span] = [s for s in traces.spans if s.name == name]
    return span


def parent_of(traces: Traces, span: Any) -> Any:
    """The span above ``span``, of the same trace."""
    [above] = [s for s in traces.spans if s.context.span_id == span.parent.span_id]
    assert above.context.trace_id == span.context.trace_id
    return above


# parents


@pytest.mark.parametrize("path", PATHS)
def test_the_apps_span_round_the_call_is_the_parent(traces: Any, path: str) -> None:
    async def handled(runnable: Any) -> Any:
        with traces.tracer.start_as_current_span("handler"):
            if path == "astream":
                return [c async for c in runnable.astream("q")]
            return await (runnable.ainvoke("q") if path == "ainvoke" else runnable.abatch(["q", "r"]))

    if path.startswith("a"):
        asyncio.run(handled(lcel()))
    else:
        with traces.tracer.start_as_current_span("handler"):
            call(path, lcel(), ["q", "r"])
    assert [s.name for s in traces.roots()] == ["handler"]
    pipelines = [s for s in traces.spans if s.name.startswith("pipeline")]
    assert len(pipelines) == (2 if path in ("batch", "abatch") else 1)
    assert {parent_of(traces, p).name for p in pipelines} == {"handler"}


@pytest.mark.parametrize("path", PATHS)
def test_app_spans_made_inside_are_children_of_the_stage_or_request_they_are_made_in(traces: Any, path: str) -> None:
    class Traced(Shelf):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            with traces.tracer.start_as_current_span("in the retriever"):
                return super()._get_relevant_documents(query, run_manager=run_manager)

    class Model(Echo):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            with traces.tracer.start_as_current_span("in the model"):
                return super()._generate(*args, **kwargs)

        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            traces.tracer.start_span("in the model").end()
            yield from super()._stream(*args, **kwargs)

    def shouted(text: str) -> str:
        with traces.tracer.start_as_current_span("in the lambda"):
            return text.upper()

    call(path, lcel(Model(), Traced()) | RunnableLambda(shouted), ["q"])
    assert parent_of(traces, named(traces, "in the retriever")).name == "retrieval Traced"
    assert parent_of(traces, named(traces, "in the model")).name == "chat Model"
    assert parent_of(traces, named(traces, "in the lambda")).name == "pipeline RunnableSequence"
    assert len(traces.roots()) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tools_span_and_retrieval_are_inside_the_agents_request(traces: Any, is_async: bool) -> None:
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    @tool
    def look_up(query: str) -> str:
        """Looks something up."""
        with traces.tracer.start_as_current_span("in the tool"):
            return join(Shelf().invoke(query))

    graph = StateGraph(MessagesState).add_node("tools", ToolNode([look_up])).add_edge(START, "tools").compile()
    calls = [{"name": "look_up", "args": {"query": w}, "id": w, "type": "tool_call"} for w in ("a", "b")]
    state = {"messages": [("user", "q"), {"role": "assistant", "content": "", "tool_calls": calls}]}
    out = asyncio.run(graph.ainvoke(state)) if is_async else graph.invoke(state)
    assert [m.content for m in out["messages"][2:]] == ["alpha for a | beta for a", "alpha for b | beta for b"]
    [root] = traces.roots()
    assert root.name == "pipeline CompiledStateGraph"
    tools = [s for s in traces.spans if s.name == "in the tool"]
    assert [parent_of(traces, s) for s in tools] == [root, root]
    assert {parent_of(traces, s).name for s in traces.stages("retrieval")} == {"in the tool"}


def test_tasks_of_one_handler_each_have_their_request(traces: Any) -> None:
    async def handler() -> None:
        with traces.tracer.start_as_current_span("handler"):
            await asyncio.gather(*(lcel().ainvoke(f"q{i}") for i in range(5)))

    asyncio.run(handler())
    assert len(traces.roots()) == 1
    for stage in ("retrieval", "generation"):
        assert len({parent_of(traces, s).context.span_id for s in traces.stages(stage)}) == 5
    for retrieval in traces.stages("retrieval"):
        beside = [s for s in traces.spans if s.parent and s.parent.span_id == retrieval.parent.span_id]
        assert sorted(s.name for s in beside) == ["chat Echo", "context", "retrieval Shelf"]


def test_a_pipeline_called_inside_a_pipeline_is_the_same_request(traces: Any) -> None:
    RunnableLambda(lambda q: lcel().invoke(q)).invoke("q")
    [root] = traces.roots()
    assert [s.name for s in traces.spans if s.name.startswith("pipeline")] == [root.name]


# work in other threads


def test_a_thread_with_the_callers_context_is_in_the_callers_trace(traces: Any) -> None:
    with traces.tracer.start_as_current_span("handler"), ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(copy_context().run, lcel().invoke, f"q{i}") for i in range(4)]
        assert [j.result()[-2:] for j in jobs] == ["q0", "q1", "q2", "q3"]
    assert [s.name for s in traces.roots()] == ["handler"]
    assert len([s for s in traces.spans if s.name.startswith("pipeline")]) == 4


def test_a_bare_thread_has_traces_of_its_own(traces: Any, caplog: Any) -> None:
    with traces.tracer.start_as_current_span("handler"), ThreadPoolExecutor(2) as pool:
        list(pool.map(lcel().invoke, ["q0", "q1"]))
    roots = [s.name for s in traces.roots()]
    assert sorted(roots) == ["handler", "pipeline RunnableSequence", "pipeline RunnableSequence"]
    assert caplog.text == ""


def test_parallel_branches_are_of_one_request(traces: Any) -> None:
    branches = RunnableParallel(a=lcel(), b=Shelf(), c=RunnableLambda(lambda q: TextEcho().invoke(q)))
    out = branches.invoke("q")
    assert out["c"] == "echo: q" and [d for d in out["b"] if isinstance(d, Document)] == out["b"]
    [root] = traces.roots()
    assert {parent_of(traces, s).context.span_id for s in traces.spans if s.parent} == {root.context.span_id}
    assert (len(traces.stages("retrieval")), len(traces.stages("generation"))) == (2, 2)


# samplers


def _failing(*_: Any, **__: Any) -> Any:
    raise AssertionError("work for a span that nobody records")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_OFF), TraceIdRatioBased(0.0)])
def test_no_describing_when_the_sampler_says_no(
    instrumented: Any, monkeypatch: Any, caplog: Any, path: str, sampler: Any
) -> None:
    from ragtrace.record import capture, describe, hooks, spans

    expected = call(path, lcel(), ["q", "r"])
    traces = instrumented(sampler=sampler)
    for name in ("retrieved", "after_defense", "messages", "in_prompt"):
        monkeypatch.setattr(describe, name, _failing)
    for module in (hooks, spans):
        monkeypatch.setattr(module, "dumps", _failing)
    monkeypatch.setattr(capture.Capture, "text", _failing)
    monkeypatch.setattr(capture.Capture, "digest", _failing)
    assert call(path, lcel(), ["q", "r"]) == expected
    assert traces.spans == [] and caplog.text == ""
    with ragtrace.defend(Hooked("response", str.upper)):
        assert "".join(call(path, lcel(), ["q", "r"])).isupper()
    assert traces.spans == [] and caplog.text == ""


def test_the_parents_decision_is_ours(instrumented: Any) -> None:
    traces = instrumented(sampler=ParentBased(ALWAYS_ON))
    for sampled in (False, True):
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else 0)
        remote = trace.SpanContext(0xABC, 0xDEF, True, flags)
        token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))
        try:
            lcel().invoke("q")
        finally:
            context.detach(token)
        assert len(traces.spans) == (4 if sampled else 0)
    assert {s.context.trace_id for s in traces.spans} == {0xABC}
    assert 0xDEF in {s.parent.span_id for s in traces.spans}


def test_a_trace_is_sampled_whole_or_not_at_all(instrumented: Any) -> None:
    traces = instrumented(sampler=TraceIdRatioBased(0.5))
    for i in range(40):
        lcel().invoke(f"q{i}")
    by_trace = [sum(s.context.trace_id == t for s in traces.spans) for t in {s.context.trace_id for s in traces.spans}]
    assert 0 < len(by_trace) < 40 and set(by_trace) == {4}


# a defense that the app calls beside the pipeline


class EverySecond(Sampler):
    """Drops every second request."""

    def __init__(self) -> None:
        self.roots = 0

    def should_sample(self, parent_context: Any, trace_id: int, *_: Any, **__: Any) -> Any:
        above = trace.get_current_span(parent_context).get_span_context()
        self.roots += not above.is_valid
        keep = above.trace_flags.sampled if above.is_valid else self.roots % 2 == 1
        return SamplingResult(Decision.RECORD_AND_SAMPLE if keep else Decision.DROP)

    def get_description(self) -> str:
        return "every second"


def test_what_is_called_on_an_unsampled_answer_is_not_told_of_another_request(instrumented: Any) -> None:
    traces = instrumented(sampler=EverySecond())

    @ragtrace.observe(hook="response", name="house")
    def house(text: str) -> str:
        return text.upper()

    for query in ("kept", "dropped"):
        house(lcel().invoke(query))
    assert [s.name for s in traces.spans].count("defense house") == 1
    assert len(traces.spans) == 5 and len(traces.roots()) == 1


def test_suppression_holds_beside_the_pipeline_too(traces: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(trace, "get_tracer", lambda *_, **__: traces.tracer)

    @ragtrace.observe(hook="response", name="house")
    def house(text: str) -> str:
        return text.upper()

    with suppress_instrumentation():
        assert house(lcel().invoke("q")).isupper()
        assert house("another") == "ANOTHER"
    assert traces.spans == []
    house("another")
    assert [s.name for s in traces.spans] == ["defense house"]


# taking it off


def test_uninstrument_gives_families_their_own_back(instrumented: Any) -> None:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.retrievers import BaseRetriever

    class Mine(Shelf):
        def invoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
            return super().invoke(input, config, **kwargs)

    class Squeeze(BaseDocumentCompressor):
        def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
            return documents

    class Guard(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> Any:
            return None

    kinds = [BaseRetriever, Mine, BaseDocumentCompressor, Squeeze, AgentMiddleware, Guard]
    before = [dict(vars(k)) for k in kinds]
    traces = instrumented()
    assert all(
        vars(kind)[name] is not was[name]
        for kind, was, name in zip(
            (Mine, Squeeze, Guard), before[1::2], ("invoke", "compress_documents", "before_model"), strict=True
        )
    )

    class Later(Mine):
        def invoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
            return super().invoke(input, config, **kwargs)

    assert len(Later().invoke("q")) == 2
    assert len(traces.stages("retrieval")) == 1
    LangChainInstrumentor().uninstrument()
    for kind, was in zip(kinds, before, strict=True):
        assert [n for n, v in vars(kind).items() if was.get(n) is not v and callable(v)] == []
        assert ("__init_subclass__" in vars(kind)) == ("__init_subclass__" in was)
    assert type(vars(Later)["invoke"]).__name__ == "function"
    traces.clear()
    Later().invoke("q")

    class Latest(Later):
        def invoke(self, input: str, config: Any = None, **kwargs: Any) -> Any:
            return super().invoke(input, config, **kwargs)

    Latest().invoke("q")
    assert traces.spans == [] and type(vars(Latest)["invoke"]).__name__ == "function"


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_is_open_when_the_wraps_go_ends_its_spans(traces: Any, caplog: Any, path: str) -> None:
    def sync() -> list[str]:
        stream = lcel().stream("q")
        first = next(stream)
        LangChainInstrumentor().uninstrument()
        return [first, *stream]

    async def asynchronous() -> list[str]:
        stream = lcel().astream("q")
        first = await anext(stream)
        LangChainInstrumentor().uninstrument()
        return [first] + [c async for c in stream]

    chunks = sync() if path == "stream" else asyncio.run(asynchronous())
    assert "".join(chunks) == "echo: Be brief. alpha for q | beta for q ? q"
    assert [s.name for s in traces.roots()] == ["pipeline RunnableSequence"]
    [generation] = traces.stages("generation")
    assert json.loads(generation.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "".join(chunks)
    assert caplog.text == ""


def test_on_and_off_and_on_again(instrumented: Any) -> None:
    for _ in range(3):
        traces = instrumented()
        lcel().invoke("q")
        assert len(traces.spans) == 4
        LangChainInstrumentor().uninstrument()
        lcel().invoke("q")
        assert len(traces.spans) == 4
