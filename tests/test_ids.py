"""Baggage, and whose request it is: the session, the user and the conversation are on every span."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from opentelemetry import baggage, context
from pipelines import PATHS, Echo, call, lcel

import ragtrace


@pytest.mark.parametrize("path", PATHS)
def test_the_apps_baggage_is_visible_inside(instrumented: Any, path: str) -> None:
    traces = instrumented()
    seen: list[Any] = []

    def look(value: Any) -> Any:
        seen.append(baggage.get_baggage("tenant"))
        return value

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        call(path, RunnableLambda(look) | lcel(), ["q", "r"])
    finally:
        context.detach(token)
    assert set(seen) == {"acme"}
    assert all("tenant" not in s.attributes for s in traces.spans)  # baggage is the app's: only ids are taken


def ids(span: Any) -> dict[str, Any]:
    return {k: span.attributes[k] for k in ("session.id", "user.id", "gen_ai.conversation.id") if k in span.attributes}


@pytest.mark.parametrize("capture", ["full", "none"])
@pytest.mark.parametrize("path", PATHS)
def test_ids_in_baggage_are_on_every_span(instrumented: Any, path: str, capture: str) -> None:
    traces = instrumented(capture=capture)
    carried = context.get_current()
    for name, value in {"session.id": "s-1", "enduser.id": "u-0", "user.id": "u-1"}.items():
        carried = baggage.set_baggage(name, value, carried)
    token = context.attach(carried)
    try:
        call(path, lcel(), ["q", "r"])
    finally:
        context.detach(token)
    assert len(traces.spans) in (4, 8)
    assert all(ids(s) == {"session.id": "s-1", "user.id": "u-1"} for s in traces.spans)


CONFIGS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"metadata": {"session_id": "s", "user_id": 7}}, {"session.id": "s", "user.id": "7"}),
    ({"configurable": {"thread_id": "t"}}, {"gen_ai.conversation.id": "t"}),
    ({"metadata": {"conversation_id": "c", "thread_id": "t"}}, {"gen_ai.conversation.id": "c"}),
    ({"configurable": {"thread_id": "t"}, "metadata": {"thread_id": "m"}}, {"gen_ai.conversation.id": "m"}),
    ({"metadata": {"session_id": "x" * 257, "user_id": True, "thread_id": ["t"]}}, {}),
    ({"metadata": {"session_id": "", "user_id": None, "thread_id": 1.5}}, {}),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("config", "wanted"), CONFIGS)
def test_ids_in_langchains_config(traces: Any, path: str, config: Any, wanted: Any) -> None:
    async def asynchronous() -> Any:
        if path == "astream":
            return [c async for c in lcel().astream("q", config)]
        return await (lcel().ainvoke("q", config=config) if path == "ainvoke" else lcel().abatch(["q"], [config]))

    if path.startswith("a"):
        asyncio.run(asynchronous())
    else:
        list({"invoke": lcel().invoke, "stream": lcel().stream, "batch": lcel().batch}[path](
            ["q"] if path == "batch" else "q", config
        ))  # fmt: skip
    assert len(traces.spans) == 4
    assert [ids(s) for s in traces.spans] == [wanted] * 4


def test_each_request_of_a_batch_has_its_own_ids(traces: Any) -> None:
    lcel().batch(["q0", "q1"], [{"metadata": {"user_id": f"u{i}"}} for i in range(2)])
    for stage in ("retrieval", "generation"):
        assert [(s.attributes["user.id"][1]) for s in traces.stages(stage)] == [
            (s.attributes.get("gen_ai.retrieval.query.text") or s.attributes["ragtrace.query"])[1]
            for s in traces.stages(stage)
        ]


def test_the_calls_config_wins_over_the_bound_one_and_that_over_baggage(traces: Any) -> None:
    bound = lcel().with_config(metadata={"session_id": "bound", "user_id": "bound"})
    carried = context.get_current()
    for name in ("session.id", "user.id", "gen_ai.conversation.id"):
        carried = baggage.set_baggage(name, "carried", carried)
    token = context.attach(carried)
    try:
        bound.invoke("q", {"metadata": {"session_id": "call"}})
        with ragtrace.conversation("ours"):
            bound.invoke("q", {"metadata": {"thread_id": "call"}})
    finally:
        context.detach(token)
    first, second = traces.spans[:4], traces.spans[4:]
    assert all(ids(s) == {"session.id": "call", "user.id": "bound", "gen_ai.conversation.id": "carried"} for s in first)
    assert all(ids(s)["gen_ai.conversation.id"] == "ours" for s in second)


def test_a_langgraph_thread_is_a_conversation(traces: Any) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(MessagesState).add_node("say", lambda s: {"messages": [Echo().invoke(s["messages"])]})
    made = graph.add_edge(START, "say").compile(checkpointer=InMemorySaver())
    made.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": 17}})
    assert {ids(s)["gen_ai.conversation.id"] for s in traces.spans} == {"17"} and traces.stages("generation")


def test_odd_configs_are_langchains_to_judge(traces: Any, caplog: Any) -> None:
    class Odd(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise RuntimeError("no")

        __contains__ = get

    assert lcel().invoke("q", {"metadata": {}, "configurable": {}}) == "echo: Be brief. alpha for q | beta for q ? q"
    carried = baggage.set_baggage("user.id", Odd())
    token = context.attach(carried)
    try:
        Echo().invoke("q")
        "".join(c.text for c in Echo().stream("q", {"metadata": {"user_id": Odd(), "session_id": "\ud800"}}))
    finally:
        context.detach(token)
    assert [ids(s) for s in traces.spans[-2:]] == [{"session.id": "?"}] * 2
    assert caplog.text == ""


def test_a_defense_that_the_app_calls_on_an_answer_has_the_requests_ids(traces: Any) -> None:
    @ragtrace.observe(hook="response", name="house")
    def house(text: str) -> str:
        return text.upper()

    house(lcel().invoke("q", {"metadata": {"session_id": "s"}}))
    assert len(traces.spans) == 5 and all(ids(s) == {"session.id": "s"} for s in traces.spans)
