"""What the app does with an answer after the call that gave it, wherever the framework has read it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import llama_pipelines as llama
import pytest
from langchain_core.runnables import RunnableLambda
from pipelines import Traces, lcel
from store_fixtures import Bench

import ragtrace

llama_instrumented, llama_traces = llama.instrumented, llama.recorded


def masked(text: str) -> str:
    return text.replace("echo", "****")


def met(traces: Traces) -> list[tuple[str, bool]]:
    """Each effect's defense, and whether it met every generation of its trace."""
    found = []
    for span in traces.spans:
        for effect in json.loads(span.attributes.get("ragtrace.effects", "[]")):
            crossed = {
                format(s.context.span_id, "016x")
                for s in traces.stages("generation")
                if s.context.trace_id == span.context.trace_id
            }
            found.append((effect["defense"], set(effect["spans"]) == crossed != set()))
    return found


def test_a_chat_engines_stream_that_a_thread_has_read(llama_traces: Traces) -> None:
    mask = ragtrace.observe(hook="response", name="house")(masked)
    chat = llama.context_chat()
    answer = "".join(chat.stream_chat("q").response_gen)
    assert mask(answer).startswith("****")
    assert met(llama_traces) == [("house", True)]


def test_a_chat_engines_stream_that_a_task_has_read(llama_traces: Traces) -> None:
    mask = ragtrace.observe(hook="response", name="house")(masked)

    async def ask() -> str:
        stream = await llama.context_chat().astream_chat("q")
        return mask("".join([token async for token in stream.async_response_gen()]))

    assert asyncio.run(ask()).startswith("****")
    assert met(llama_traces) == [("house", True)]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # workflows' own
def test_an_agents_answer(llama_traces: Traces) -> None:
    mask = ragtrace.observe(hook="response", name="house")(masked)

    async def ask() -> str:
        return mask(str(await llama.agent().run("q")))

    assert asyncio.run(ask()).startswith("****")
    assert met(llama_traces) == [("house", True)]


def test_a_piece_masked_while_the_stream_goes_on(traces: Traces) -> None:
    """The consumer masks each piece: it belongs to the request that still streams."""
    mask = ragtrace.observe(hook="response", name="house")(masked)
    pieces = [mask(piece) for piece in lcel().stream("q")]
    assert pieces[0] == "****:"
    [root] = traces.roots()
    assert {s.context.trace_id for s in traces.spans} == {root.context.trace_id}


def test_a_stage_without_a_framework_goes_where_its_request_goes(instrumented: Any) -> None:
    traces = instrumented(capture="full")

    def search(query: str) -> str:
        with ragtrace.retrieval(query) as stage:
            return stage.documents(["of my own"])[0]

    assert RunnableLambda(search).invoke("q") == "of my own"
    [stage] = traces.stages("retrieval")
    assert (stage.attributes["ragtrace.framework"], stage.attributes["ragtrace.capture"]) == ("none", "full")
    assert len(traces.roots()) == 1


def test_the_context_stage_has_the_times_that_the_app_says(bench: Bench, tmp_path: Any) -> None:
    tracing = ragtrace.setup(tmp_path / "s.duckdb", capture="full")
    with ragtrace.pipeline("mine"):
        with ragtrace.retrieval("q") as stage:
            found = stage.documents(["text of the document"])
        with ragtrace.context():
            prompt = f"{found[0]}: q"
        with ragtrace.generation(prompt) as answering:
            answering.response("yes")
    tracing.shutdown()
    with ragtrace.open(tmp_path / "s.duckdb") as db:
        order = db.execute("SELECT stage, start_time, duration_ms FROM stages ORDER BY start_time").fetchall()
    assert [stage for stage, *_ in order] == ["retrieval", "context", "generation"]
    start, duration = order[1][1:]
    assert start.timestamp() + duration / 1000 <= order[2][1].timestamp()
