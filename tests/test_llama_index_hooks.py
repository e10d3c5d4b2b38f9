"""Defenses at LlamaIndex's five hooks: they act, they are recorded, and no listener hears more than the app gets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_pipelines import (
    BATCHES,
    CHAT,
    COMPLETE,
    PATHS,
    QUERY,
    RETRIEVE,
    STREAMS,
    ChatEcho,
    Echo,
    Gives,
    Listening,
    Shelf,
    agent,
    call,
    context_chat,
    fusion,
    instrumented,  # noqa: F401
    query_engine,
    recorded,  # noqa: F401
)
from pipelines import Hooked

import ragtrace

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # workflows' own
    pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning"),  # async_utils' own
]

SAID = [ChatMessage(role="user", content="q1"), ChatMessage(role="user", content="q2")]


@pytest.mark.parametrize("path", ["invoke", "ainvoke", *STREAMS])
def test_beside_openinference(llama_instrumented: Any, caplog: Any, path: str) -> None:
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as OpenInference
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    OpenInference().instrument(tracer_provider=provider)
    try:
        engine = query_engine(streaming=path in STREAMS)
        call(path, QUERY, engine, ["q"])
        alone = sorted(s.name for s in exporter.get_finished_spans())
        exporter.clear()
        traces = llama_instrumented()
        call(path, QUERY, engine, ["q"])
        assert sorted(s.name for s in exporter.get_finished_spans()) == alone
        assert len(traces.roots()) == len(traces.stages("generation")) == len(traces.stages("retrieval")) == 1
        assert len({s.context.trace_id for s in (*traces.spans, *exporter.get_finished_spans())}) == 1
        exporter.clear()
        with ragtrace.defend(Hooked("response", str.upper)):
            assert "".join(map(str, call(path, QUERY, engine, ["q"]))).startswith(("ECHO", "Response(response='ECHO"))
        names = sorted(s.name for s in exporter.get_finished_spans())
        assert len(names) == len(alone)
        assert "echo:" not in "".join(s.to_json() for s in exporter.get_finished_spans())
    finally:
        OpenInference().uninstrument()
    assert "detach" not in caplog.text and "ragtrace" not in caplog.text


@pytest.mark.parametrize("kind", [ChatEcho, Echo])
@pytest.mark.parametrize("methods", [CHAT, COMPLETE])
@pytest.mark.parametrize("path", ["invoke", "ainvoke", *STREAMS])
def test_listeners_hear_only_what_the_app_gets(llama_traces: Any, path: str, methods: Any, kind: Any) -> None:
    with Listening() as listening:
        model = kind(callback_manager=listening.callbacks)
        given = "it" if methods is COMPLETE else SAID
        with ragtrace.defend(Hooked("response", str.upper)):
            call(path, methods, model, [given])
        defended, listening.heard[:] = listening.text(), []
        assert "echo:" not in defended and "ECHO:" in defended and "InProgress" not in defended
        with ragtrace.defend(Hooked("response", lambda r: 1 / 0, "raise")), pytest.raises(ZeroDivisionError):
            call(path, methods, model, [given])
        assert "echo:" not in listening.text()
        listening.heard.clear()
        with ragtrace.defend(Hooked("response", lambda r: r)):
            call(path, methods, model, [given])
        same, listening.heard[:] = listening.text(), []
        call(path, methods, model, [given])
        assert same == listening.text()  # as many, in the same order
    assert sorted(llama_traces.effects()[i]["status"] for i in range(3)) == ["changed", "error", "unchanged"]


def _acting(hook: str) -> Any:
    from dataclasses import replace

    acts: dict[str, Any] = {
        "query": lambda q: q + " please",
        "retrieval": lambda ds: ds[::-1],
        "content": lambda ds: [replace(d, content=d.content.replace("alpha", "ALPHA")) for d in ds],
        "prompt": lambda ms: [replace(m, content=m.content.replace("alpha", "PROMPT")) for m in ms],
        "response": lambda r: r.replace("alpha", "RESPONSE"),
    }
    return acts[hook]


SIGNS = {
    "query": "alpha for q please",
    "content": "ALPHA for q",
    "prompt": "PROMPT for q",
    "response": "RESPONSE for q",
}
ANSWERING: dict[str, Any] = {
    "query engine": (query_engine, QUERY),
    "tree summarize": (lambda **o: query_engine(mode="tree_summarize", **o), QUERY),
    "text model": (lambda **o: query_engine(Echo(), **o), QUERY),
    "context chat": (context_chat, CHAT),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("hook", ["query", "retrieval", "content", "prompt", "response"])
@pytest.mark.parametrize("name", ANSWERING)
def test_a_defense_acts_at_each_hook(llama_traces: Any, name: str, hook: str, path: str) -> None:
    make, methods = ANSWERING[name]

    def ask() -> list[str]:
        options = {"streaming": True} if path in STREAMS and methods is QUERY else {}
        got = call(path, methods, make(**options), ["q", "q"])
        return ["".join(got)] if path in STREAMS else [str(g) for g in got]

    plain = ask()
    llama_traces.clear()
    with ragtrace.defend(Hooked(hook, _acting(hook))):
        defended = ask()
    for answer, before in zip(defended, plain, strict=True):
        if hook == "retrieval":
            assert answer.index("beta") < answer.index("alpha") and before.index("alpha") < before.index("beta")
        else:
            assert SIGNS[hook] in answer and SIGNS[hook] not in before
    requests = 2 if path in BATCHES else 1
    found = [(e["hook"], e["status"]) for e in llama_traces.effects()]
    assert found == [(hook, "changed")] * requests
    assert {bool(e.get("buffered")) for e in llama_traces.effects()} == {hook == "response" and path in STREAMS}
    [said] = {s.attributes["gen_ai.output.messages"] for s in llama_traces.stages("generation")}
    assert json.loads(said)[0]["parts"][0]["content"] in defended
    llama_traces.clear()
    with ragtrace.defend(Hooked(hook, lambda value: value)):
        assert ask() == plain
    assert [(e["hook"], e["status"]) for e in llama_traces.effects()] == [(hook, "unchanged")] * requests
    with ragtrace.defend(Hooked(hook, lambda value: 1 / 0)):
        assert ask() == plain
    assert [e["status"] for e in llama_traces.effects()][requests:] == ["error"] * requests


@pytest.mark.parametrize("path", ["ainvoke", "astream"])
@pytest.mark.parametrize("hook", ["query", "content", "prompt", "response"])
def test_async_hooks(llama_traces: Any, hook: str, path: str) -> None:
    engine = query_engine(streaming=path == "astream")
    with ragtrace.defend(Hooked(hook, _acting(hook), is_async=True)):
        assert SIGNS[hook] in "".join(map(str, call(path, QUERY, engine, ["q"])))
    assert [e["status"] for e in llama_traces.effects()] == ["changed"]


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_what_no_defense_touched_is_the_very_object(llama_traces: Any, path: str) -> None:
    from ragtrace_llama_index import translate

    node = NodeWithScore(node=TextNode(text="alpha", id_="1", metadata={"page": 3}), score=0.5)
    other = NodeWithScore(node=TextNode(text="beta", id_="2"), score=0.25)
    for hooks in ((), ("query", "retrieval", "content")):
        with ragtrace.defend(*(Hooked(h, lambda v: v) for h in hooks)):
            [found] = call(path, RETRIEVE, Gives([node, other]), [QueryBundle("q", embedding=[1.0])])
        assert found[0] is node and found[1] is other
    with ragtrace.defend(Hooked("content", _acting("content"))):
        [found] = call(path, RETRIEVE, Gives([node, other]), ["q"])
    assert found[1] is other and found[0] is not node and found[0].node is not node.node
    assert found[0].node.text == "ALPHA" and node.node.text == "alpha"  # type: ignore[attr-defined]
    assert (found[0].node_id, found[0].score, found[0].metadata) == ("1", 0.5, {"page": 3})
    message = ChatMessage(role="user", content="q")
    model = ChatEcho()
    seen: list[Any] = []
    answer = ChatResponse(message=ChatMessage(role="assistant", content="a"))

    class Fixed(ChatEcho):
        def chat(self, messages: Any, **kwargs: Any) -> Any:
            seen.append(messages)
            return answer

    given = [message]
    with ragtrace.defend(Hooked("prompt", lambda v: list(v)), Hooked("response", lambda v: v)):
        assert Fixed().chat(given) is answer
    assert seen[0][0] is message
    assert Fixed().chat(given) is answer and seen[1] is given
    assert translate.text_of(model.chat(given)) == "echo: q"


def test_queries_as_bundles(llama_traces: Any) -> None:
    asked: list[Any] = []

    class Hears(Shelf):
        def _retrieve(self, query_bundle: Any) -> Any:
            asked.append(query_bundle)
            return super()._retrieve(query_bundle)

    bundle = QueryBundle("q", image_path="i.png", custom_embedding_strs=["other words"], embedding=[0.5])
    Hears().retrieve(bundle)
    with ragtrace.defend(Hooked("query", lambda q: q)):
        Hears().retrieve(bundle)
    assert asked[0] is asked[1] is bundle
    with ragtrace.defend(Hooked("query", str.upper)):
        Hears().retrieve(bundle)
    assert asked[2] == QueryBundle("Q", image_path="i.png")
    assert bundle.custom_embedding_strs == ["other words"] and bundle.embedding == [0.5]
    assert [s.attributes["gen_ai.retrieval.query.text"] for s in llama_traces.stages("retrieval")] == ["q"] * 3


@pytest.mark.parametrize("is_async", [False, True])
def test_retrievers_inside_retrievers_are_defended_once(llama_traces: Any, is_async: bool) -> None:
    from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
    from llama_index.core.retrievers import RecursiveRetriever, RouterRetriever, TransformRetriever
    from llama_index.core.schema import IndexNode
    from llama_index.core.selectors import LLMSingleSelector
    from llama_index.core.tools import RetrieverTool

    class First(LLMSingleSelector):
        def _select(self, choices: Any, query: Any) -> Any:
            from llama_index.core.base.base_selector import MultiSelection, SingleSelection

            return MultiSelection(selections=[SingleSelection(index=0, reason="")])

        async def _aselect(self, choices: Any, query: Any) -> Any:
            return self._select(choices, query)

    pointing = Gives([NodeWithScore(node=IndexNode(text="to the shelf", index_id="shelf"), score=1.0)])
    tool = RetrieverTool.from_defaults(Shelf(), name="a", description="a")
    retrievers = (
        fusion(),
        RecursiveRetriever("root", {"root": pointing, "shelf": Shelf()}),
        RouterRetriever(First.from_defaults(ChatEcho()), [tool], llm=ChatEcho()),
        TransformRetriever(Shelf(), IdentityQueryTransform()),
    )
    for retriever in retrievers:
        llama_traces.clear()
        with ragtrace.defend(Hooked("query", str.upper)):
            found = asyncio.run(retriever.aretrieve("q")) if is_async else retriever.retrieve("q")
        assert {n.text for n in found} >= {"alpha for Q", "beta for Q"}
        assert [e["status"] for e in llama_traces.effects() if e["defense"] == "hooked"] == ["changed"]
        outer = [s for s in llama_traces.stages("retrieval") if not s.attributes.get("ragtrace.nested")]
        assert [s.attributes["gen_ai.retrieval.query.text"] for s in outer] == ["q"]
        assert len(llama_traces.roots()) == 1


@pytest.mark.parametrize("hook", ["query", "content", "prompt", "response"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", [ChatEcho, Echo])
def test_a_defense_that_asks_the_pipelines_own_model(llama_traces: Any, hook: str, is_async: bool, kind: Any) -> None:
    model, asked = kind(), []

    class Paraphrase(ragtrace.Defense):
        name = "paraphrase"

    def sync(self: Any, *args: Any) -> Any:
        asked.append(model.complete("say it again"))
        return args[-1]

    async def asynchronous(self: Any, *args: Any) -> Any:
        asked.append(await model.acomplete("say it again"))
        return args[-1]

    setattr(Paraphrase, f"on_{hook}", asynchronous if is_async else sync)
    engine = query_engine(model)
    with ragtrace.defend(Paraphrase()):
        asyncio.run(engine.aquery("q")) if is_async else engine.query("q")
    assert len(asked) == 1
    assert [(e["hook"], e["status"]) for e in llama_traces.effects()] == [(hook, "unchanged")]
    assert [bool(s.attributes.get("ragtrace.nested")) for s in llama_traces.stages("generation")].count(True) == 1
    assert len(llama_traces.roots()) == 1


@pytest.mark.parametrize("events", [False, True])
def test_agents_are_defended_and_keep_their_tools(llama_traces: Any, events: bool) -> None:
    """An agent streams its model: what leaves through its events has been defended too."""

    async def run() -> tuple[str, str]:
        handler = agent().run("q")
        streamed = ""
        if events:
            async for event in handler.stream_events():
                streamed += getattr(event, "delta", "") or ""
        return streamed, str(await handler)

    with ragtrace.defend(Hooked("response", str.upper), Hooked("content", _acting("content"))):
        streamed, answer = asyncio.run(run())
    assert answer == "ECHO: ALPHA FOR Q | BETA FOR Q"
    assert streamed == ("LET ME LOOK" + answer if events else "")
    assert len(llama_traces.roots()) == 1 and len(llama_traces.stages("generation")) == 2
    assert sorted(e["hook"] for e in llama_traces.effects()) == ["content", "response", "response"]


def test_structured_models_hand_on_to_the_model_inside(llama_traces: Any) -> None:
    from llama_index.core.llms import MockLLM
    from pydantic import BaseModel

    class Word(BaseModel):
        word: str

    class Says(MockLLM):
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return CompletionResponse(text='{"word": "alpha"}')

    model = Says().as_structured_llm(Word)
    with ragtrace.defend(Hooked("response", lambda r: r.replace("alpha", "ALPHA"))):
        assert model.chat([ChatMessage(content="q")]).raw == Word(word="ALPHA")
        assert asyncio.run(model.acomplete("q")).raw == Word(word="ALPHA")
    assert len(llama_traces.roots()) == len(llama_traces.stages("generation")) == 2
    assert [e["status"] for e in llama_traces.effects()] == ["changed"] * 2


@pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")  # the ReAct agent's own
@pytest.mark.parametrize("kind", ["workflow of agents", "react"])
def test_other_agents(llama_traces: Any, kind: str) -> None:
    from llama_index.core.agent.workflow import AgentWorkflow, ReActAgent
    from llama_index.core.tools import FunctionTool

    class Thinks(ChatEcho):
        turn: int = 0

        def _words(self, messages: Any) -> list[str]:
            self.turn += 1
            if self.turn == 1:
                return ["Thought: I need", ' a tool.\nAction: look\nAction Input: {"query": "q"}']
            return ["Thought: I can answer", " now.\nAnswer: ", messages[-1].content.split(": ")[-1]]

    async def look(query: str) -> str:
        """Looks into the shelf."""
        return (await Shelf().aretrieve(query))[0].text

    async def run() -> str:
        tools = [FunctionTool.from_defaults(async_fn=look)]
        asked = AgentWorkflow(agents=[agent()]) if kind != "react" else ReActAgent(tools=tools, llm=Thinks())
        return str(await asked.run("q"))

    with ragtrace.defend(Hooked("content", _acting("content"))):
        assert "ALPHA for q" in asyncio.run(run())
    assert len(llama_traces.roots()) == 1 and len(llama_traces.stages("generation")) == 2
    assert len({s.context.trace_id for s in llama_traces.spans}) == 1
    assert [e["status"] for e in llama_traces.effects()] == ["changed"]


def test_inside_the_other_framework(llama_instrumented: Any) -> None:
    from langchain_core.runnables import RunnableLambda
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from pipelines import Traces
    from ragtrace_langchain import LangChainInstrumentor

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    llama_instrumented(tracer_provider=provider)
    LangChainInstrumentor().instrument(tracer_provider=provider)
    try:
        chain = RunnableLambda(lambda q: str(query_engine().query(q)))
        with ragtrace.defend(Hooked("response", str.upper)):
            answers = chain.batch(["q", "r"])
    finally:
        LangChainInstrumentor().uninstrument()
    traces = Traces(exporter)
    assert all(a.startswith("ECHO") for a in answers)
    assert [r.attributes["ragtrace.framework"] for r in traces.roots()] == ["langchain"] * 2
    assert {s.attributes["ragtrace.path"] for s in traces.spans} == {"batch"}
    assert [s.attributes["ragtrace.framework"] for s in traces.stages("generation")] == ["llama_index"] * 2
    assert [e["status"] for e in traces.effects()] == ["changed"] * 2
