"""Every hook on every path: what the defense did, what the ledger says of it, and what the app got."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pipelines import BATCHES, PATHS, STREAMS, Echo, Hooked, Shelf, TextEcho, call, lcel, retrieval_chain, text_chain

import ragtrace
from ragtrace.errors import DefenseTypeError, UsageError
from ragtrace.record.steps import withheld
from ragtrace.types import HOOKS

DO = {
    "query": lambda q: q + "!",
    "retrieval": lambda ds: ds[::-1],
    "content": lambda ds: [replace(d, content=d.content.upper()) for d in ds],
    "prompt": lambda ms: [*ms, ragtrace.Message("user", "please")],
    "response": lambda r: r.replace("echo", "ECHO"),
}


def reference(q: str, hook: str = "", way: str = "") -> str:
    """What the chain answers, by plain Python: the defense's own function at its place, or what blocking leaves."""

    def at(here: str, value: Any, blocked: Any) -> Any:
        if here != hook or way in ("leaves", "open"):
            return value
        return DO[here](value) if way == "changes" else blocked(value)

    q_sent = at("query", q, lambda _: "")
    documents = [ragtrace.Document(f"{w} for {q_sent}", w) for w in ("alpha", "beta")]
    documents = at("content", at("retrieval", documents, lambda _: []), lambda _: [])
    prompt = [ragtrace.Message("system", "Be brief.")]
    prompt.append(ragtrace.Message("user", f"{' | '.join(d.content for d in documents)} ? {q}"))
    prompt = at("prompt", prompt, lambda ms: [replace(m, content=withheld("hooked")) for m in ms])
    return at("response", "echo: " + " ".join(m.content for m in prompt), lambda _: withheld("hooked"))


@pytest.mark.parametrize("way", ["changes", "leaves", "open", "raise", "block"])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("path", PATHS)
def test_what_the_app_gets_and_what_the_ledger_says(traces: Any, path: str, hook: str, way: str) -> None:
    def fails(value: Any) -> Any:
        raise ZeroDivisionError("the defense broke")

    act = {"changes": DO[hook], "leaves": lambda v: v}.get(way, fails)
    questions = ["q1", "q2"] if path in BATCHES else ["q1"]
    with ragtrace.defend(Hooked(hook, act, way if way in ("raise", "block") else "open")):
        if way == "raise":
            with pytest.raises(ZeroDivisionError, match="the defense broke") as raised:
                call(path, lcel(), questions)
            assert raised.value.__cause__ is None
            assert raised.traceback[-1].name == "fails"
        else:
            got = call(path, lcel(), questions)
            answers = got if path in BATCHES else ["".join(got)]
            assert answers == [reference(q, hook, way) for q in questions]
    effects = traces.effects()
    if way != "raise":
        assert len(effects) == len(questions)
    for effect in effects:
        assert (effect["defense"], effect["hook"]) == ("hooked", hook)
        assert effect["status"] == {"changes": "changed", "leaves": "unchanged"}.get(way, "error")
        assert effect.get("error") == (None if way in ("changes", "leaves") else "ZeroDivisionError")
        assert effect.get("buffered", False) == (hook == "response" and path in STREAMS and way != "raise")
        flags = {f for f in ("ids_changed", "order_changed", "scores_changed", "text_changed") if effect.get(f)}
        assert flags == expected_flags(hook, way)
    for root in traces.roots():
        assert json.loads(root.attributes["ragtrace.declared"]) == {"hooked": [hook]}


def expected_flags(hook: str, way: str) -> set[str]:
    if way == "changes":
        return {"order_changed"} if hook == "retrieval" else {"text_changed"}
    if way == "block":
        return {"ids_changed"} if hook in ("retrieval", "content") else {"text_changed"}
    return set()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("hook", ["prompt", "response"])
@pytest.mark.parametrize("make", [TextEcho, text_chain, retrieval_chain])
def test_text_models_and_classic_chains(traces: Any, make: Any, hook: str, path: str) -> None:
    with ragtrace.defend(Hooked(hook, DO[hook])):
        got = call(path, make(), ["q"])
    text = str(got) if make is retrieval_chain else "".join(got)
    assert ("please" if hook == "prompt" else "ECHO") in text.replace("', '", "").replace("'}, {'answer': '", "")
    assert [e["status"] for e in traces.effects()] == ["changed"]


@pytest.mark.parametrize("path", PATHS)
def test_async_hooks(traces: Any, path: str) -> None:
    with ragtrace.defend(*(Hooked(h, DO[h], is_async=True) for h in HOOKS)):
        got = "".join(call(path, lcel(), ["q"]))
    if path in ("ainvoke", "astream", "abatch"):
        assert got == "ECHO: Be brief. BETA FOR Q! | ALPHA FOR Q! ? q please"
        assert {e["status"] for e in traces.effects()} == {"changed"}
    else:
        assert got == reference("q")
        assert len(traces.effects()) == 5
        for effect in traces.effects():
            assert effect["status"] == "error" and "async hook" in effect["error"]


def test_editing_in_place_is_seen_and_undone_on_failure(traces: Any) -> None:
    def edit(documents: Any) -> Any:
        for d in documents:
            d.content = d.content.upper()
            d.metadata["seen"] = True
        return documents

    def edit_and_fail(documents: Any) -> Any:
        edit(documents)
        raise ValueError("too late")

    with ragtrace.defend(Hooked("content", edit)):
        [first, _] = Shelf().invoke("q")
    assert (first.page_content, first.id, first.metadata["seen"]) == ("ALPHA FOR Q", "alpha", True)
    [effect] = traces.effects()
    assert effect["status"] == "changed" and effect["text_changed"] and "ids_changed" not in effect
    with ragtrace.defend(Hooked("content", edit_and_fail)):
        [first, _] = Shelf().invoke("q")
    assert first.page_content == "alpha for q" and first.metadata == {"score": 0.5}
    retrieved = traces.documents()
    assert {d["content"] for d in retrieved} == {"alpha for q", "beta for q"}


def test_messages_edited_in_place(traces: Any) -> None:
    def edit(messages: Any) -> Any:
        messages[0].content = "Be long."
        return messages

    with ragtrace.defend(Hooked("prompt", edit)):
        assert lcel().invoke("q").startswith("echo: Be long.")
    [effect] = traces.effects()
    assert effect["status"] == "changed" and effect["chars_before"] - effect["chars_after"] == 1


@pytest.mark.parametrize(
    ("hook", "returned", "found"),
    [
        ("query", None, "NoneType"),
        ("query", ["a"], "list"),
        ("retrieval", None, "NoneType"),
        ("retrieval", ({},), "tuple"),
        ("content", ["text", 3], "a list of int, str"),
        ("content", [ragtrace.Document(None, "x")], "a Document whose content is a NoneType"),  # type: ignore[arg-type]
        ("prompt", "text", "str"),
        ("prompt", [ragtrace.Document("a", "b")], "a list of Document"),
        ("response", b"bytes", "bytes"),
    ],
)
def test_a_wrong_return_type_is_named(traces: Any, hook: str, returned: Any, found: str) -> None:
    with ragtrace.defend(Hooked(hook, lambda _: returned)):
        assert lcel().invoke("q") == reference("q")
    [effect] = traces.effects()
    assert effect["status"] == "error"
    assert f"on_{hook} returned {found}, expected a " in effect["error"]
    with (
        ragtrace.defend(Hooked(hook, lambda _: returned, "raise")),
        pytest.raises(DefenseTypeError, match=f"on_{hook}"),
    ):
        lcel().invoke("q")


def test_defenses_are_checked_when_switched_on(instrumented: Any) -> None:
    for wrong in ("mask", Hooked, object()):
        with pytest.raises(UsageError, match=r"expected ragtrace\.Defense"), ragtrace.defend(wrong):  # type: ignore[arg-type]
            pass
        with pytest.raises(UsageError, match=r"expected ragtrace\.Defense"):
            instrumented(defenses=[wrong])
    with pytest.raises(UsageError, match="on_error='shut'"), ragtrace.defend(Hooked("query", str, "shut")):
        pass
    with pytest.raises(UsageError, match="unknown hook 'answer'"):
        ragtrace.declare("x", ["answer"])  # type: ignore[list-item]


def test_defenses_act_in_order(traces: Any) -> None:
    with ragtrace.defend(Hooked("response", lambda r: r + "1")), ragtrace.defend(Hooked("response", lambda r: r + "2")):
        assert lcel().invoke("q").endswith("12")


def test_a_response_defense_sees_query_and_documents(traces: Any) -> None:
    given: list[Any] = []

    class Look(ragtrace.Defense):
        def on_response(self, query: str, documents: Any, response: str) -> str:
            given.append((query, [d.content for d in documents], response))
            return response

    with ragtrace.defend(Look()):
        lcel().invoke("q")
        Echo().invoke("and this?")
    assert given[0] == ("q", ["alpha for q", "beta for q"], reference("q"))
    assert given[1] == ("and this?", [], "echo: and this?")


def test_images_and_tool_calls_stay_where_they_are(traces: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    call_ = {"name": "f", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
    messages = [
        SystemMessage("be kind"),
        HumanMessage([{"type": "text", "text": "look at bob"}, image]),
        AIMessage("", tool_calls=[call_]),
        ToolMessage("bob's file", tool_call_id="c1"),
        HumanMessage("and bob again"),
    ]
    model = Echo(seen=[])
    with ragtrace.defend(Hooked("prompt", lambda ms: [replace(m, content=m.content.replace("bob", "X")) for m in ms])):
        model.invoke(messages)
    [sent] = model.seen
    assert sent[0] is messages[0] and sent[2] is messages[2]
    assert sent[1].content == [{"type": "text", "text": "look at X"}, image]
    assert (sent[3].content, sent[3].tool_call_id) == ("X's file", "c1")
    assert sent[4].content == "and X again"
    with ragtrace.defend(Hooked("prompt", lambda ms: ms[::-1])):
        model.invoke(messages)
    assert all(a is b for a, b in zip(model.seen[1], messages[::-1], strict=True))


class Many(Echo):
    """Several answers, with token log-probabilities in both places where models put them."""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        told = {"content": [{"token": "bob", "logprob": -0.5}, {"token": "!", "logprob": -1.5}]}
        metadata = {"logprobs": told, "avg_logprobs": -1.0, "finish_reason": "length", "model_name": "m-1"}
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        answers = [AIMessage(f"bob {i}", response_metadata=metadata, usage_metadata=usage) for i in range(3)]
        return ChatResult(generations=[ChatGeneration(message=a, generation_info={"logprobs": told}) for a in answers])

    _stream = Echo.__mro__[1]._stream  # does not stream


def test_each_of_several_answers_is_defended_and_logprobs_do_not_spell_the_raw_text(traces: Any) -> None:
    with ragtrace.defend(Hooked("response", lambda r: r.replace("bob", "X"))):
        result = Many().generate([[HumanMessage("q")]])
    assert [g.text for g in result.generations[0]] == ["X 0", "X 1", "X 2"]
    assert "bob" not in repr(result) and "logprobs" not in repr(result)
    [span] = traces.stages("generation")
    assert span.attributes["ragtrace.mean_logprob"] == -1.0 and span.attributes["ragtrace.logprob_tokens"] == 2
    assert span.attributes["gen_ai.usage.output_tokens"] == 2
    outputs = json.loads(span.attributes["gen_ai.output.messages"])
    assert [o["parts"][0]["content"] for o in outputs] == ["X 0", "X 1", "X 2"]
    assert outputs[0]["finish_reason"] == "length"
    plain = Many().invoke("q")
    assert plain.response_metadata["logprobs"]["content"][0]["token"] == "bob"


class Ears(BaseCallbackHandler):
    """Hears all that a model's callbacks say."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ends: list[str] = []
        self.errors: list[str] = []

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        self.heard.append(f"{token} {chunk!r}")

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.ends += [g.text for row in response.generations for g in row]

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.errors.append(str(error))

    def on_stream_event(self, event: Any, **kwargs: Any) -> None:
        self.heard.append(repr(event))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [Echo, TextEcho])
def test_no_raw_token_leaves_by_callbacks(traces: Any, kind: Any, path: str) -> None:
    ears = Ears()
    model = kind().with_config(callbacks=[ears])
    with ragtrace.defend(Hooked("response", lambda r: r.replace("secret", "X"))):
        assert "secret" not in repr(call(path, model, ["the secret", "a secret"]))
    assert "secret" not in "".join(ears.heard)
    wanted = ["echo: the X", "echo: a X"] if path in BATCHES else ["echo: the X"]
    assert sorted(ears.ends) == sorted(wanted)
    assert "secret" not in str(
        [json.loads(s.attributes["gen_ai.output.messages"]) for s in traces.stages("generation")]
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [Echo, TextEcho])
def test_callbacks_hear_of_a_failing_model_all_the_same(traces: Any, kind: Any, path: str) -> None:
    ears = Ears()
    with ragtrace.defend(Hooked("response", str.upper)), pytest.raises(OSError, match="the model is out"):
        call(path, kind(fail_at=1).with_config(callbacks=[ears]), ["q"])
    assert ears.errors == ["the model is out"] and ears.ends == []


@pytest.mark.parametrize("is_async", [False, True])
def test_langgraphs_message_stream(traces: Any, is_async: bool) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    model = Echo()
    if is_async:

        async def answer(state: Any) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}
    else:

        def answer(state: Any) -> Any:
            return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()

    def read() -> list[str]:
        given = {"messages": [HumanMessage("the secret")]}
        if not is_async:
            return [m.text for m, _ in graph.stream(given, stream_mode="messages")]

        async def collect() -> list[str]:
            return [m.text async for m, _ in graph.astream(given, stream_mode="messages")]

        return asyncio.run(collect())

    assert len(read()) > 2
    with ragtrace.defend(Hooked("response", lambda r: r.replace("secret", "X"))):
        assert "".join(read()) == "echo: the X"
    [effect] = traces.effects()
    assert effect["buffered"] is True and len(traces.roots()) == 2


def test_astream_events(traces: Any) -> None:
    async def read() -> str:
        events = lcel().astream_events("the secret", version="v2")
        kinds = ("on_chat_model_stream", "on_chat_model_end", "on_parser_stream", "on_parser_end", "on_chain_end")
        said = [e["data"].get("chunk", e["data"].get("output")) async for e in events if e["event"] in kinds]
        return repr([s for s in said if "echo" in repr(s)])

    with ragtrace.defend(Hooked("response", lambda r: r.replace("secret", "X")), Hooked("query", lambda q: "q")):
        said = asyncio.run(read())
    assert "echo: Be brief. alpha for q | beta for q ? the X" in said and "secret" not in said


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
@pytest.mark.parametrize("is_async", [False, True])
def test_the_models_own_event_stream(traces: Any, is_async: bool) -> None:
    ears = Ears()

    def read(model: Any) -> tuple[list[Any], str]:
        config = {"callbacks": [ears]}
        if not is_async:
            stream = model.stream_events("the secret", config, version="v3")
            return list(stream), stream.output.text

        async def collect() -> tuple[list[Any], str]:
            stream = await model.astream_events("the secret", config, version="v3")
            return [e async for e in stream], (await stream.output).text

        return asyncio.run(collect())

    events, text = read(Echo())
    assert text == "echo: the secret" and len(events) > 6
    [generation] = traces.stages("generation")
    assert json.loads(generation.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == text
    traces.clear()
    ears.heard.clear()
    defenses = Hooked("response", lambda r: r.replace("secret", "X")), Hooked("prompt", DO["prompt"])
    with ragtrace.defend(*defenses):
        events, text = read(Echo())
    assert text == "echo: the X please"
    assert "secret" not in repr(events) + repr(ears.heard)
    assert {e["status"] for e in traces.effects()} == {"changed"}
    assert len(traces.roots()) == len(traces.stages("generation")) == 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [Echo, TextEcho, FakeListLLM])
def test_a_cached_answer_meets_a_defense_that_is_newly_on(traces: Any, kind: Any, path: str) -> None:
    from langchain_core.caches import InMemoryCache

    options = {"responses": ["echo: q"] * 9} if kind is FakeListLLM else {}
    model = kind(cache=InMemoryCache(), **options)
    assert "echo: q" in str(model.invoke("q"))
    ears = Ears()
    with ragtrace.defend(Hooked("response", str.upper)):
        got = call(path, model.with_config(callbacks=[ears]), ["q", "r"])
    assert "echo" not in str([getattr(g, "text", g) for g in got]) and "echo" not in "".join(ears.heard + ears.ends)
    if path in BATCHES and kind is TextEcho:
        assert got == ["ECHO: Q", "ECHO: R"] and ears.ends == ["ECHO: R"]
    assert "echo: q" in str(model.invoke("q"))


def test_a_buffered_stream_is_one_chunk_of_the_streams_own_kind(traces: Any) -> None:
    with ragtrace.defend(Hooked("response", str.upper)):
        [chunk] = Echo().stream("q")
        [text] = TextEcho().stream("q")
    assert type(chunk) is AIMessageChunk and chunk.text == "ECHO: Q" and chunk.chunk_position == "last"
    assert text == "ECHO: Q"
    assert all(s.attributes["ragtrace.buffered"] is True for s in traces.stages("generation"))


def test_a_prompt_defense_that_raises_before_a_stream_ends_its_stage(traces: Any) -> None:
    def fails(_: Any) -> Any:
        raise ZeroDivisionError

    with ragtrace.defend(Hooked("prompt", fails, "raise")), pytest.raises(ZeroDivisionError):
        list(lcel().stream("q"))
    [generation] = traces.stages("generation")
    assert generation.status.status_code.name == "ERROR"
    assert [e["status"] for e in traces.effects()] == ["error"]
