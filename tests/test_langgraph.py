"""LangGraph: agents and their middleware, graphs of the app's own, and what streams away before it can be changed."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    PIIMiddleware,
    after_model,
    before_model,
    wrap_model_call,
    wrap_tool_call,
)
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pipelines import Echo, Hooked, Shelf, Traces, join
from store_fixtures import Bench

import ragtrace

MAIL = "ann.lee@corp.com"
ASK = {"messages": [{"role": "user", "content": "Who signs? bob@corp.com"}]}


class Scripted(GenericFakeChatModel):
    """Says what it was told to say, word by word when streamed; knows any tool."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def scripted(*answers: Any) -> Scripted:
    return Scripted(messages=iter([AIMessage(a) if isinstance(a, str) else a for a in answers]))


def masked(**flags: bool) -> Any:
    return PIIMiddleware("email", **{"apply_to_output": True} | flags)


def agent(*middleware: Any, tools: Any = (), answers: Any = (f"Write to {MAIL} now.",), **kwargs: Any) -> Any:
    return create_agent(scripted(*answers), tools=list(tools), middleware=list(middleware), **kwargs)


def tool_call(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "1", "type": "tool_call"}])


def ran(db: Any, hook: str = "response") -> list[tuple[str, bool]]:
    return db.execute("SELECT path, ran FROM coverage WHERE hook = ? ORDER BY ALL", [hook]).fetchall()


def run(graph: Any, path: str, **kwargs: Any) -> list[Any]:
    async def chunks() -> list[Any]:
        return [c async for c in graph.astream(ASK, **kwargs)]

    async def whole() -> list[Any]:
        return [await graph.ainvoke(ASK)]

    ways = {
        "invoke": lambda: [graph.invoke(ASK)],
        "stream": lambda: list(graph.stream(ASK, **kwargs)),
        "ainvoke": lambda: asyncio.run(whole()),
        "astream": lambda: asyncio.run(chunks()),
    }
    return ways[path]()


# what middleware changes


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_middleware_is_observed_without_being_asked(chains: Bench, path: str) -> None:
    [state] = run(agent(masked()), path)
    assert state["messages"][-1].text == "Write to [REDACTED_EMAIL] now."
    with chains.open() as db:
        found = "SELECT defense, hook, status, path FROM effects ORDER BY hook"
        assert db.execute(found).fetchall() == [
            ("PIIMiddleware", "prompt", "changed", path),
            ("PIIMiddleware", "response", "changed", path),
        ]
        assert ran(db) == ran(db, "prompt") == [(path, True)]
        assert set(db.execute("SELECT hook, verdict FROM verdicts").fetchall()) == {
            ("prompt", "active"),
            ("response", "active"),
        }
        assert db.execute("SELECT prompt FROM generations").fetchall() == [("Who signs? [REDACTED_EMAIL]",)]


@pytest.mark.parametrize("path", ["stream", "astream"])
@pytest.mark.parametrize("mode", ["messages", "updates", "values", ["messages", "updates"]])
def test_what_streams_away_before_the_middleware_runs_is_a_bypass(chains: Bench, path: str, mode: Any) -> None:
    """langchain#35011: the answer has left, in pieces or whole, before ``after_model`` masks it."""
    assert MAIL in str(run(agent(masked()), path, stream_mode=mode))
    with chains.open() as db:
        assert ran(db) == [(path, False)]
        found = db.execute("SELECT status, late, text_changed FROM effects WHERE hook = 'response'").fetchall()
        assert found == [("unchanged", True, False)]
        [(verdict, missed, evidence)] = db.execute(
            "SELECT verdict, bypassed_paths, evidence FROM verdicts WHERE hook = 'response'"
        ).fetchall()
        assert (verdict, missed) == ("bypassed", path) and "had left on the stream" in evidence


def test_a_stream_that_gives_nothing_away_is_none(chains: Bench) -> None:
    assert MAIL not in str(run(agent(masked()), "stream", stream_mode="custom"))
    with chains.open() as db:
        assert ran(db) == [("stream", True)]
        assert db.execute("SELECT verdict FROM verdicts WHERE hook = 'response'").fetchall() == [("active",)]


def test_our_own_defense_holds_the_stream_back(chains: Bench) -> None:
    with ragtrace.defend(Hooked("response", lambda text: text.replace(MAIL, "[mail]"))):
        assert MAIL not in str(run(agent(masked()), "stream", stream_mode=["messages", "updates", "values"]))
    with chains.open() as db:
        found = "SELECT defense, status, buffered FROM effects WHERE hook = 'response' ORDER BY 1 DESC"
        assert db.execute(found).fetchall() == [("hooked", "changed", True), ("PIIMiddleware", "unchanged", False)]
        assert ran(db) == [("stream", True), ("stream", True)]


def test_flags_that_are_off_are_no_hook(traces: Traces) -> None:
    run(agent(masked(apply_to_output=False)), "invoke")
    assert [(e["hook"], e["status"]) for e in traces.effects()] == [("prompt", "changed")]


def test_every_kind_of_middleware(traces: Traces) -> None:
    @before_model
    def shorten(state: Any, runtime: Any) -> Any:
        return {"messages": [HumanMessage("short", id=state["messages"][-1].id)]}

    @after_model
    def shout(state: Any, runtime: Any) -> Any:
        latest = state["messages"][-1]
        return {"messages": [latest.model_copy(update={"content": latest.text.upper()})]}

    @wrap_model_call
    def round_the_model(request: Any, handler: Any) -> Any:
        response = handler(request.override(messages=[HumanMessage("other")]))
        response.result[0] = AIMessage(response.result[0].text + "!")
        return response

    class InPlace(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> None:
            state["messages"][-1].content = "in place"

        def after_model(self, state: Any, runtime: Any) -> None:
            return None

    [state] = run(agent(shorten, shout, round_the_model, InPlace(), answers=["yes"]), "invoke")
    assert state["messages"][-1].text == "YES!"
    assert {(e["defense"], e["hook"], e["status"]) for e in traces.effects()} == {
        ("shorten", "prompt", "changed"),
        ("InPlace", "prompt", "changed"),
        ("round_the_model", "prompt", "changed"),
        ("round_the_model", "response", "changed"),
        ("shout", "response", "changed"),
        ("InPlace", "response", "unchanged"),
    }
    [generation] = traces.stages("generation")
    crossed = format(generation.context.span_id, "016x")
    assert all(e["spans"] == [crossed] for e in traces.effects())


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_middleware_round_a_tool(traces: Traces, path: str) -> None:
    @wrap_tool_call
    def clean(request: Any, handler: Any) -> Any:
        result = handler(request)
        return result.model_copy(update={"content": result.text.replace("alpha", "[word]")})

    class Clean(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            result = await handler(request)
            return result.model_copy(update={"content": result.text.replace("alpha", "[word]")})

    lookup = create_retriever_tool(Shelf(), "lookup", "Looks up.")
    middleware = clean if path == "invoke" else Clean()
    [state] = run(agent(middleware, tools=[lookup], answers=[tool_call("lookup", query="q"), "done"]), path)
    assert state["messages"][2].text == "[word] for q\n\nbeta for q"
    [effect] = traces.effects()
    assert (effect["defense"], effect["hook"], effect["status"]) == (type(middleware).__name__, "prompt", "changed")
    [retrieval] = traces.stages("retrieval")
    assert retrieval.attributes["gen_ai.retrieval.query.text"] == "q"
    assert len(traces.roots()) == 1 and len(traces.stages("generation")) == 2
    assert effect["spans"] == [format(traces.stages("generation")[1].context.span_id, "016x")]


def test_middleware_that_fails_or_blocks(traces: Traces) -> None:
    with pytest.raises(Exception, match=r"PII|email") as caught:
        run(agent(masked(strategy="block")), "invoke")
    assert type(caught.value).__name__ == "PIIDetectionError"
    [effect] = traces.effects()
    assert (effect["hook"], effect["status"], effect["error"]) == ("prompt", "error", "PIIDetectionError")


def test_an_agent_that_looks_things_up(chains: Bench) -> None:
    """Two calls of the model, one retrieval between them; a mask of the app's own on the last answer covers both."""

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace(MAIL, "[mail]")

    lookup = create_retriever_tool(Shelf(), "lookup", "Looks up.")
    asked = agent(tools=[lookup], answers=[tool_call("lookup", query="who signs"), f"It is {MAIL}."])
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
        answer = asked.invoke(ASK)["messages"][-1].text
    assert mask(answer) == "It is [mail]."
    with chains.open() as db:
        assert db.execute("SELECT count(DISTINCT trace_id) FROM stages").fetchone() == (1,)
        assert db.execute("SELECT content FROM documents WHERE phase = 'in_prompt'").fetchall() == [
            ("alpha for who signs",)
        ]
        assert ran(db) == [("invoke", True), ("invoke", True)] and ran(db, "content") == [("invoke", True)]


def test_one_answer_of_two_was_never_masked(chains: Bench) -> None:
    """Coverage is a row for each crossing: a mask that saw one answer does not cover another."""

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace(MAIL, "[mail]")

    model = scripted(f"First {MAIL}", f"Second {MAIL}")

    class State(TypedDict):
        answers: Annotated[list[str], operator.add]

    def masked_answer(state: Any) -> Any:
        return {"answers": [mask(model.invoke("one").text)]}

    def raw_answer(state: Any) -> Any:
        return {"answers": [model.invoke("two").text]}

    graph = StateGraph(State).add_node("a", masked_answer).add_node("b", raw_answer)
    graph.add_edge(START, "a").add_edge("a", "b").compile().invoke({"answers": []})
    with chains.open() as db:
        found = """SELECT response, ran FROM coverage JOIN generations USING (trace_id, span_id) ORDER BY response"""
        assert db.execute(found).fetchall() == [("First [mail]", True), (f"Second {MAIL}", False)]


# graphs of the app's own


class State(TypedDict):
    question: str
    found: Annotated[list[str], operator.add]
    answer: str


def rag(model: Any = None, checkpointer: Any = None, asks: bool = False) -> Any:
    """Two retrievers in parallel branches, then a model; with a node that asks a human first."""
    model = model or Echo()

    def look(words: list[str]) -> Any:
        return lambda state: {"found": [join(Shelf(words=words).invoke(state["question"]))]}

    def answer(state: Any) -> Any:
        if asks:
            interrupt("may I?")
        return {"answer": model.invoke(" + ".join(sorted(state["found"]))).text}

    graph = StateGraph(State).add_node("left", look(["a"])).add_node("right", look(["b"])).add_node("answer", answer)
    graph.add_edge(START, "left").add_edge(START, "right").add_edge(["left", "right"], "answer")
    return graph.compile(checkpointer=checkpointer)


def test_parallel_branches_are_one_trace(traces: Traces) -> None:
    with ragtrace.defend(Hooked("content", lambda ds: [d.__class__(d.content.upper(), d.id) for d in ds])):
        assert rag().invoke({"question": "q", "found": []})["answer"] == "echo: A FOR Q + B FOR Q"
    assert len(traces.roots()) == 1
    assert [s.attributes["ragtrace.stage"] for s in traces.spans if "ragtrace.stage" in s.attributes].count(
        "retrieval"
    ) == 2
    assert len(traces.documents("ragtrace.documents.in_prompt")) == 2
    assert {s.parent.span_id for s in traces.stages("retrieval")} == {traces.roots()[0].context.span_id}


def test_a_graph_in_a_graph_is_one_request(traces: Traces) -> None:
    outer = StateGraph(State).add_node("inner", rag()).add_edge(START, "inner").compile()
    for _ in outer.stream({"question": "q", "found": []}, subgraphs=True, stream_mode="updates"):
        pass
    assert len(traces.roots()) == 1 and {s.attributes["ragtrace.path"] for s in traces.spans} == {"stream"}


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_an_interrupt_is_no_error_and_goes_on(traces: Traces, way: str) -> None:
    graph = rag(checkpointer=InMemorySaver(), asks=True)
    config = {"configurable": {"thread_id": "7"}}

    def step(value: Any) -> Any:
        return graph.invoke(value, config) if way == "invoke" else list(graph.stream(value, config))

    step({"question": "q", "found": []})
    assert len(traces.stages("retrieval")) == 2 and traces.stages("generation") == []
    step(Command(resume="yes"))
    assert len(traces.stages("generation")) == 1
    assert len(traces.roots()) == 2
    assert {s.status.status_code.name for s in traces.spans} == {"UNSET"}


def test_a_human_in_the_loop_of_middleware(traces: Traces) -> None:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    @tool
    def send(to: str) -> str:
        """Sends."""
        return f"sent to {to}"

    made = agent(
        HumanInTheLoopMiddleware(interrupt_on={"send": True}),
        tools=[send],
        answers=[tool_call("send", to="x"), "done"],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "1"}}
    made.invoke(ASK, config)
    made.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert {s.status.status_code.name for s in traces.spans} == {"UNSET"}
    assert {e["status"] for e in traces.effects()} == {"unchanged"}


def test_a_mask_node_of_the_apps_own(chains: Bench) -> None:
    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace(MAIL, "[mail]")

    def say(state: Any) -> Any:
        return {"messages": [scripted(f"Write to {MAIL}").invoke(state["messages"])]}

    def clean(state: Any) -> Any:
        latest = state["messages"][-1]
        return {"messages": [latest.model_copy(update={"content": mask(latest.text)})]}

    graph = StateGraph(MessagesState).add_node("say", say).add_node("clean", clean)
    made = graph.add_edge(START, "say").add_edge("say", "clean").compile()
    assert MAIL not in str(made.invoke(ASK))
    assert MAIL in str(list(made.stream(ASK, stream_mode="messages")))
    with chains.open() as db:
        assert ran(db) == [("invoke", True), ("stream", False)]


def test_middleware_outside_any_request_just_runs(traces: Traces) -> None:
    state = {"messages": [HumanMessage("to bob@corp.com", id="1")]}
    update = masked().before_model(state, None)
    assert "REDACTED" in update["messages"][0].text and traces.spans == []


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    yield
