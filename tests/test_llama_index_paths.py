"""LlamaIndex's paths: what the app gets is what it got before, and each request is one trace."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import traceback
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_pipelines import (
    BATCHES,
    CHAT,
    COMPLETE,
    PATHS,
    QUERY,
    RETRIEVE,
    STREAMS,
    SYNTHESIZE,
    ChatEcho,
    Echo,
    Shelf,
    agent,
    aread,
    call,
    context_chat,
    fusion,
    instrumented,  # noqa: F401
    query_engine,
    read,
    recorded,  # noqa: F401
    simple_chat,
    told,
)
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from pipelines import Hooked
from ragtrace_llama_index import LlamaIndexInstrumentor
from ragtrace_llama_index.generating import _Call as Call

import ragtrace
from ragtrace.record.effects import Effect
from ragtrace.record.hooks import Generation, Request, Retrieval
from ragtrace.record.scope import Scope

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # workflows' own
    pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning"),  # async_utils' own
]

SAID = [ChatMessage(role="user", content="q1"), ChatMessage(role="user", content="q2")]
PIPELINES: dict[str, Any] = {
    "retriever": (Shelf, RETRIEVE, {"retrieval"}),
    "fusion": (fusion, RETRIEVE, {"retrieval"}),
    "fusion in tasks": (lambda: fusion(use_async=True), RETRIEVE, {"retrieval"}),
    "query engine": (query_engine, QUERY, {"retrieval", "context", "generation"}),
    "tree summarize": (lambda: query_engine(mode="tree_summarize"), QUERY, {"retrieval", "context", "generation"}),
    "text model": (lambda: query_engine(Echo()), QUERY, {"retrieval", "context", "generation"}),
    "context chat": (context_chat, CHAT, {"retrieval", "context", "generation"}),
    "simple chat": (simple_chat, CHAT, {"generation"}),
    "chat": (ChatEcho, CHAT, {"generation"}),
    "chat of a text model": (Echo, CHAT, {"generation"}),
    "completion": (Echo, COMPLETE, {"generation"}),
    "agent": (agent, {"ainvoke": "run"}, {"retrieval", "context", "generation"}),
}
BROKEN: dict[str, Any] = {
    "query engine": (lambda: query_engine(ChatEcho(fail_at=2)), QUERY),
    "its retriever": (lambda: query_engine(retriever=Shelf(error=LookupError("the shelf is gone"))), QUERY),
    "fusion": (lambda: fusion(Shelf(), Shelf(error=LookupError("the shelf is gone"))), RETRIEVE),
    "retriever": (lambda: Shelf(error=LookupError("the shelf is gone")), RETRIEVE),
    "context chat": (lambda: context_chat(ChatEcho(fail_at=2)), CHAT),
    "chat": (lambda: ChatEcho(fail_at=1), CHAT),
    "chat of a text model": (lambda: Echo(fail_at=1), CHAT),
    "completion": (lambda: Echo(fail_at=1), COMPLETE),
    "agent": (lambda: agent(Shelf(), _refuse), {"ainvoke": "run"}),
}
STREAMED = ("query engine", "tree summarize", "text model")


def _refuse(messages: Any, **kwargs: Any) -> Any:
    raise OSError("the model is out")


async def _run(workflow: Any, question: str) -> Any:
    return await workflow.run(question)


def _call(path: str, methods: Any, pipeline: Any, inputs: list[Any]) -> Any:
    if methods.get("ainvoke") == "run":
        return [asyncio.run(_run(pipeline, inputs[0]))]
    return call(path, methods, pipeline, inputs)


def _cases(table: dict[str, Any]) -> list[Any]:
    """Every pipeline along every path that it has."""
    out = []
    for name, (_, methods, *_) in table.items():
        paths = ("ainvoke",) if methods.get("ainvoke") == "run" else PATHS
        has = [p for p in paths if p not in STREAMS or p in methods or name in STREAMED]
        out += [pytest.param(name, p, id=f"{name}-{p}") for p in has]
    return out


def _inputs(name: str, methods: Any) -> list[Any]:
    return [SAID[:1], SAID[1:]] if methods is CHAT and name.startswith("chat") else ["q1", "q2"]


def _made(table: dict[str, Any], name: str, path: str) -> Any:
    if path in STREAMS and name == "text model":
        return query_engine(Echo(), streaming=True)
    if path in STREAMS and name in STREAMED:
        return query_engine(mode="tree_summarize" if name == "tree summarize" else "compact", streaming=True)
    return table[name][0]()


@pytest.mark.parametrize(("name", "path"), _cases(PIPELINES))
def test_the_app_gets_what_it_got_before(llama_instrumented: Any, name: str, path: str) -> None:
    """llama_index#16283, #18757: no root ends before its children."""
    _, methods, wanted = PIPELINES[name]
    inputs = _inputs(name, methods)
    expected = _call(path, methods, _made(PIPELINES, name, path), inputs)
    old = _made(PIPELINES, name, path)
    traces = llama_instrumented()
    assert told(_call(path, methods, _made(PIPELINES, name, path), inputs)) == told(expected)
    requests = 2 if path in BATCHES else 1
    assert len(traces.roots()) == requests
    assert {s.attributes["ragtrace.path"] for s in traces.spans} == {path}
    assert {s.attributes["ragtrace.framework"] for s in traces.spans} == {"llama_index"}
    assert len({s.context.trace_id for s in traces.spans}) == requests
    assert {s.attributes["ragtrace.stage"] for s in traces.spans if "ragtrace.stage" in s.attributes} == wanted
    for root in traces.roots():
        own = [s for s in traces.spans if s.parent and s.context.trace_id == root.context.trace_id]
        outer = [s for s in own if not s.attributes.get("ragtrace.nested")]
        assert all(s.parent.span_id == root.context.span_id for s in outer)
        assert all(root.start_time <= s.start_time <= s.end_time <= root.end_time for s in own)
        asked = len([s for s in outer if s.attributes.get("ragtrace.stage") == "generation"])
        assert asked == (2 if name == "agent" else int("generation" in wanted))
    for root in traces.roots():
        assert root.name == f"pipeline {type(old).__name__}"
        assert root.status.status_code.name == "UNSET"
    traces.clear()
    _call(path, methods, old, inputs)  # made before instrument()
    assert len(traces.roots()) == requests


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the engine's own thread
@pytest.mark.parametrize(("name", "path"), _cases(BROKEN))
def test_the_apps_exceptions_stay_its_own(llama_instrumented: Any, name: str, path: str) -> None:
    make, methods = BROKEN[name]
    inputs = _inputs(name, methods)
    with pytest.raises(Exception) as expected:
        _call(path, methods, make(), inputs)
    traces = llama_instrumented()
    with pytest.raises(type(expected.value), match=str(expected.value)) as found:
        _call(path, methods, make(), inputs)
    tails = [traceback.extract_tb(e.tb)[-1] for e in (expected, found)]
    assert (tails[0].filename, tails[0].name) == (tails[1].filename, tails[1].name)
    assert type(found.value.__cause__) is type(expected.value.__cause__)
    gc.collect()
    failed = [s for s in traces.spans if s.status.status_code.name == "ERROR"]
    roots = [s for s in failed if s.parent is None]
    stages = [s for s in failed if s.parent]
    assert roots and stages
    assert len(traces.roots()) == len(roots) if path not in BATCHES else True
    assert {r.attributes["error.type"] for r in roots} == {type(expected.value).__name__}
    assert "the " in stages[0].events[0].attributes["exception.message"]


def test_a_synthesizer_alone_is_a_request(llama_traces: Any) -> None:
    nodes = Shelf().retrieve("q")
    llama_traces.clear()
    for streaming, paths in ((False, ("invoke", "ainvoke")), (True, STREAMS)):
        for path in paths:
            llama_traces.clear()
            synthesizer = query_engine(streaming=streaming)._response_synthesizer
            method = getattr(synthesizer, SYNTHESIZE["ainvoke" if path.startswith("a") else "invoke"])
            str(asyncio.run(method("q", nodes)) if path.startswith("a") else method("q", nodes))
            [root], [generation] = llama_traces.roots(), llama_traces.stages("generation")
            assert root.attributes["ragtrace.path"] == generation.attributes["ragtrace.path"] == path


def test_longer_ways_to_a_model_are_one_request(llama_traces: Any) -> None:
    from llama_index.core import PromptTemplate

    prompt = PromptTemplate("say {word}")
    model = ChatEcho()
    assert model.predict(prompt, word="it") == "echo: say it"
    assert asyncio.run(model.apredict(prompt, word="it")) == "echo: say it"
    assert "".join(model.stream(prompt, word="it")) == "echo: say it"

    async def streamed() -> str:
        return "".join(await aread(await model.astream(prompt, word="it")))

    assert asyncio.run(streamed()) == "echo: say it"
    assert [r.attributes["ragtrace.path"] for r in llama_traces.roots()] == ["invoke", "ainvoke", *STREAMS]
    assert len(llama_traces.stages("generation")) == 4


def test_suppressed_instrumentation_records_nothing_and_defends_all_the_same(llama_traces: Any) -> None:
    with suppress_instrumentation(), ragtrace.defend(Hooked("response", str.upper)):
        assert str(query_engine().query("q")).startswith("ECHO")
    assert llama_traces.spans == []


def test_a_sampler_that_records_nothing(llama_instrumented: Any) -> None:
    traces = llama_instrumented(sampler=ALWAYS_OFF)
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
        assert "beta" not in str(query_engine().query("q"))
    assert traces.spans == []


def _families() -> list[Any]:
    from llama_index.core import async_utils
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.llms.base import BaseLLM
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.chat_engine import ContextChatEngine
    from llama_index.core.llms import LLM, CustomLLM, MockLLM
    from llama_index.core.postprocessor import SimilarityPostprocessor
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.response_synthesizers import BaseSynthesizer, TreeSummarize
    from llama_index_instrumentation.dispatcher import Dispatcher
    from workflows import Workflow

    kinds = [BaseRetriever, BaseQueryEngine, BaseLLM, LLM, CustomLLM, MockLLM, Echo, ChatEcho, ContextChatEngine]
    kinds += [BaseSynthesizer, TreeSummarize, Workflow, FunctionAgent, StreamingAgentChatResponse, Dispatcher]
    return [*kinds, CallbackManager, async_utils, BaseNodePostprocessor, SimilarityPostprocessor]


def test_uninstrument_gives_back_the_very_same_functions(llama_instrumented: Any) -> None:
    kinds = _families()
    before = [dict(vars(k)) for k in kinds]
    llama_instrumented()
    assert vars(ChatEcho)["chat"] is not before[kinds.index(ChatEcho)]["chat"]
    query_engine().query("q")
    LlamaIndexInstrumentor().uninstrument()
    for kind, was in zip(kinds, before, strict=True):
        assert [n for n, v in was.items() if vars(kind).get(n) is not v and callable(v)] == []
        assert "__init_subclass__" in was or "__init_subclass__" not in vars(kind)


def test_instrumenting_twice_is_harmless(llama_instrumented: Any, caplog: Any) -> None:
    traces = llama_instrumented()
    llama_instrumented()
    assert "already instrumented" in caplog.text
    query_engine().query("q")
    assert len(traces.roots()) == 1 and len(traces.stages("generation")) == 1


def test_classes_made_later_are_met_and_forgotten(llama_instrumented: Any) -> None:
    traces = llama_instrumented()

    class Later(Shelf):
        def retrieve(self, str_or_query_bundle: Any) -> Any:
            return super().retrieve(str_or_query_bundle)[:1]

    class Louder(ChatEcho):
        def chat(self, messages: Any, **kwargs: Any) -> Any:
            return super().chat(messages, **kwargs)

    assert "beta" not in str(query_engine(Louder(), Later()).query("q"))
    assert len(traces.roots()) == len(traces.stages("generation")) == len(traces.stages("retrieval")) == 1
    assert len(traces.documents()) == 1
    LlamaIndexInstrumentor().uninstrument()
    traces.clear()

    class After(Shelf):
        pass

    assert len(After().retrieve("q")) == 2 and len(Later().retrieve("q")) == 1
    assert traces.spans == []


def test_defenses_given_to_instrument_act_everywhere(llama_instrumented: Any) -> None:
    traces = llama_instrumented(defenses=[Hooked("response", str.upper)])
    assert str(query_engine().query("q")).startswith("ECHO")
    [root] = traces.roots()
    assert json.loads(root.attributes["ragtrace.declared"]) == {"hooked": ["response"]}


def test_a_wrap_on_top_of_ours_stays_and_stands_aside(llama_instrumented: Any) -> None:
    import wrapt

    traces = llama_instrumented()
    ours = vars(Echo)["complete"]
    calls: list[int] = []

    def other(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        calls.append(1)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(Echo, "complete", other)
    try:
        LlamaIndexInstrumentor().uninstrument()
        assert Echo().complete("q").text == "echo: q"
        assert calls == [1] and traces.spans == []
    finally:
        Echo.complete = ours.__wrapped__  # type: ignore[method-assign]


def test_two_thousand_runs_leave_nothing_behind(llama_instrumented: Any) -> None:
    kinds = (Scope, Effect, Request, Retrieval, Generation, Call, ragtrace.Document, ragtrace.Message)

    def ours() -> int:
        gc.collect()
        return sum(type(o) in kinds for o in gc.get_objects())

    engine, broken, streaming = query_engine(), query_engine(ChatEcho(fail_at=1)), query_engine(streaming=True)
    threads = threading.active_count()
    before = ours()
    llama_instrumented(capture="none")
    shelf, gone = Shelf(), Shelf(error=LookupError)  # a new one each time: an error keeps the frames it passed
    for i in range(1_600):
        if i % 5 == 0:
            with pytest.raises(LookupError):
                gone.retrieve("q")
        else:
            shelf.retrieve("q")

    async def asynchronous() -> None:
        for _ in range(50):
            await engine.aquery("q")
            response = await streaming.aquery("q")
            await anext(response.response_gen)

    with ragtrace.defend(Hooked("response", str.upper)):
        for i in range(100):
            engine.query("q")
            if i % 2:
                next(streaming.query("q").response_gen)
            with pytest.raises(OSError):
                broken.query("q")
        asyncio.run(asynchronous())
        for _ in range(5):
            read(simple_chat().stream_chat("q"))
    assert ours() == before
    assert threading.active_count() == threads
