"""Framework-free pipelines: the same hooks, spans and effects, and the app's own objects back."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import Hooked, Shelf, Traces

import ragtrace
from ragtrace.errors import UsageError
from ragtrace.record import duck, handles
from ragtrace.record import setup as setting_up
from ragtrace.record.capture import Capture
from ragtrace.record.hooks import Recorder
from ragtrace.types import Document, Message

FOUND = ["alpha", "beta"]


@pytest.fixture(autouse=True)
def exporter(monkeypatch: Any) -> Iterator[InMemorySpanExporter]:
    """A global provider of each test's own; no setup() before, none left after."""
    made = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(made))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(handles, "_set_up", ())
    monkeypatch.setattr(handles, "_over", False)
    yield made
    for tracing in list(setting_up._installed.values()):
        tracing.shutdown()
    provider.shutdown()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> Traces:
    """Recorded with ``capture="full"`` and a digest key, as after setup()."""
    capture = Capture("full")
    capture.key = b"key"
    handles.begin(Recorder(trace.get_tracer_provider().get_tracer("ragtrace"), "none", capture))
    return Traces(exporter)


class All(ragtrace.Defense):
    """Changes something at each hook."""

    def on_query(self, query: str) -> str:
        return f"{query}?"

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        return documents[::-1]

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        for document in documents:
            document.content = document.content.replace("alpha", "ALPHA")
        return documents

    def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [Message(m.role, f"{m.content}!") for m in messages]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return f"{response} ({query}, {len(documents)})"


class AllAsync(All):
    """The same, with hooks that are awaited."""

    name = "All"

    async def on_query(self, query: str) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().on_query(query)

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().on_response(query, documents, response)


def with_managers(query: str) -> str:
    with ragtrace.pipeline("rag"):
        with ragtrace.retrieval(query) as stage:
            found = stage.documents([f"{word} for {stage.query}" for word in FOUND])
        with ragtrace.context():
            prompt = " | ".join(found)
        with ragtrace.generation(prompt, model="m") as asked:
            return asked.response(f"echo: {asked.prompt}")


async def awith_managers(query: str) -> str:
    async with ragtrace.pipeline("rag"):
        async with ragtrace.retrieval(query) as stage:
            found = await stage.documents([f"{word} for {stage.query}" for word in FOUND])
        async with ragtrace.context():
            prompt = " | ".join(found)
        async with ragtrace.generation(prompt, model="m") as asked:
            return await asked.response(f"echo: {asked.prompt}")


@ragtrace.retrieval()
def search(query: str, k: int = 2) -> list[str]:
    return [f"{word} for {query}" for word in FOUND[:k]]


@ragtrace.context()
def assemble(documents: list[str]) -> str:
    return " | ".join(documents)


@ragtrace.generation(model="m")
def answer(prompt: str) -> str:
    return f"echo: {prompt}"


@ragtrace.pipeline("rag")
def with_decorators(query: str) -> str:
    return answer(assemble(search(query)))


@ragtrace.retrieval()
async def asearch(query: str) -> list[str]:
    return search.__wrapped__(query)  # type: ignore[attr-defined, no-any-return]


@ragtrace.generation(model="m")
async def aanswer(prompt: str) -> str:
    return f"echo: {prompt}"


@ragtrace.pipeline("rag")
async def awith_decorators(query: str) -> str:
    found = await asearch(query)
    async with ragtrace.context():
        prompt = " | ".join(found)
    return await aanswer(prompt)


@ragtrace.generation(model="m")
def tell(prompt: str) -> Iterator[str]:
    for word in ("echo:", *prompt.split(" ")):
        yield f"{word} "


@ragtrace.generation(model="m")
async def atell(prompt: str) -> AsyncIterator[str]:
    for word in ("echo:", *prompt.split(" ")):
        yield f"{word} "


@ragtrace.pipeline("rag")
def streamed(query: str) -> Iterator[str]:
    yield from tell(assemble(search(query)))


@ragtrace.pipeline("rag")
async def astreamed(query: str) -> AsyncIterator[str]:
    async for piece in atell(assemble(await asearch(query))):
        yield piece


async def _read(stream: AsyncIterator[Any]) -> list[Any]:
    return [piece async for piece in stream]


WAYS = {
    "managers": ("invoke", lambda: with_managers("q")),
    "async managers": ("ainvoke", lambda: asyncio.run(awith_managers("q"))),
    "decorators": ("invoke", lambda: with_decorators("q")),
    "async decorators": ("ainvoke", lambda: asyncio.run(awith_decorators("q"))),
    "stream": ("stream", lambda: "".join(streamed("q"))),
    "async stream": ("astream", lambda: "".join(asyncio.run(_read(astreamed("q"))))),
}


@pytest.mark.parametrize("way", WAYS)
def test_five_hooks_in_order_on_every_way(traces: Traces, way: str) -> None:
    path, run = WAYS[way]
    with ragtrace.defend(AllAsync() if path.startswith("a") else All()):
        result = run()
    assert result.split() == "echo: beta for q? | ALPHA for q?! (q, 2)".replace(" (", " (").split()
    assert [(e["hook"], e["status"]) for e in traces.effects()] == [
        (hook, "changed") for hook in ("query", "retrieval", "content", "prompt", "response")
    ]
    [root] = traces.roots()
    assert root.name == "pipeline rag" and json.loads(root.attributes["ragtrace.declared"]).keys() == {"All"}
    assert [(s.attributes["ragtrace.stage"], s.parent.span_id) for s in traces.spans if s is not root] == [
        (stage, root.context.span_id) for stage in ("retrieval", "context", "generation")
    ]
    assert {(s.attributes["ragtrace.path"], s.attributes["ragtrace.framework"]) for s in traces.spans} == {
        (path, "none")
    }
    assert traces.losses() == []
    [generation] = traces.stages("generation")
    assert generation.attributes.get("ragtrace.buffered", False) is ("stream" in path)
    assert generation.attributes["gen_ai.request.model"] == "m" and generation.attributes["ragtrace.query"] == "q"
    assert [d["of"] for d in traces.documents("ragtrace.documents.in_prompt")] == [0, 1]


@pytest.mark.parametrize("way", WAYS)
def test_without_defenses_the_same_answer_and_no_effect(traces: Traces, way: str) -> None:
    assert WAYS[way][1]().split() == "echo: alpha for q | beta for q".split()
    assert traces.effects() == [] and traces.losses() == [] and len(traces.spans) == 4
    [generation] = traces.stages("generation")
    [message] = json.loads(generation.attributes["gen_ai.output.messages"])
    assert message["parts"][0]["content"].split() == "echo: alpha for q | beta for q".split()


# through the store


def _rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with ragtrace.open(database) as db:
        return db.execute(query).fetchall()


def test_views_after_setup(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    tracing = ragtrace.setup(database, capture="full", defenses=[All()])
    with_managers("who")
    with_decorators("who")
    "".join(streamed("who"))
    tracing.flush()
    told = "stage, framework, path, query, model, status, count(*)"
    assert _rows(database, f"SELECT {told} FROM stages GROUP BY ALL ORDER BY path, stage") == [
        ("context", "none", "invoke", None, None, "UNSET", 2),
        ("generation", "none", "invoke", "who", "m", "UNSET", 2),
        ("retrieval", "none", "invoke", "who", None, "UNSET", 2),
        ("context", "none", "stream", None, None, "UNSET", 1),
        ("generation", "none", "stream", "who", "m", "UNSET", 1),
        ("retrieval", "none", "stream", "who", None, "UNSET", 1),
    ]  # fmt: skip
    assert _rows(database, "SELECT DISTINCT phase, rank, content FROM documents ORDER BY ALL") == [
        ("after_defense", 1, "beta for who?"), ("after_defense", 2, "ALPHA for who?"),
        ("in_prompt", 1, "beta for who?"), ("in_prompt", 2, "ALPHA for who?"),
        ("retrieved", 1, "alpha for who?"), ("retrieved", 2, "beta for who?"),
    ]  # fmt: skip
    assert _rows(database, "SELECT DISTINCT query, prompt, trim(response) FROM generations WHERE path = 'invoke'") == [
        ("who", "beta for who? | ALPHA for who?!", "echo: beta for who? | ALPHA for who?! (who, 2)")
    ]
    told = "hook, status, buffered, count(*)"
    assert _rows(database, f"SELECT {told} FROM effects WHERE hook = 'response' GROUP BY ALL ORDER BY ALL") == [
        ("response", "changed", False, 2), ("response", "changed", True, 1),
    ]  # fmt: skip
    assert _rows(database, "SELECT defense, hook, bool_and(ran) FROM coverage GROUP BY ALL ORDER BY hook") == [
        ("All", hook, True) for hook in ("content", "prompt", "query", "response", "retrieval")
    ]


def test_a_digest_store_holds_no_text_and_a_skipped_hook_is_a_bypass(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    tracing = ragtrace.setup(database, defenses=[All()])
    with ragtrace.pipeline():
        with ragtrace.retrieval("secret-1") as stage:
            stage.documents(["secret-2"])
        with ragtrace.generation("secret-3"):
            pass
    tracing.flush()
    text = " ".join(str(row) for row in _rows(database, "FROM spans"))
    assert "secret" not in text and duck.documents(["secret-2"], tracing._recorder.capture.key)[0].id in text
    assert _rows(database, "SELECT hook FROM coverage WHERE NOT ran") == [("response",)]


def test_after_shutdown_nothing_is_recorded_but_defend_acts(tmp_path: Path, exporter: Any) -> None:
    tracing = ragtrace.setup(tmp_path / "t.duckdb", defenses=[Hooked("response", lambda _: "standing")])
    assert answer("q") == "standing" and len(exporter.get_finished_spans()) == 2
    tracing.shutdown()
    with ragtrace.defend(Hooked("response", str.upper)):
        assert answer("q") == "ECHO: Q"
    assert answer("q") == "echo: q" and len(exporter.get_finished_spans()) == 2
    ragtrace.setup(tmp_path / "t.duckdb").flush()
    answer("q")
    assert len(exporter.get_finished_spans()) == 4


def test_without_setup_the_global_provider_and_digests(exporter: Any) -> None:
    answer("secret")
    traces = Traces(exporter)
    assert [s.name for s in traces.spans] == ["chat m", "pipeline answer"] and "secret" not in traces.text()
    assert {s.attributes["ragtrace.capture"] for s in traces.spans} == {"digest"}


# where a stage belongs


def test_inside_a_frameworks_request_a_stage_belongs_to_it(instrumented: Any, exporter: Any) -> None:
    instrumented(tracer_provider=trace.get_tracer_provider(), defenses=[Hooked("response", str.upper)])
    chain = RunnableLambda(lambda q: answer(assemble([d.page_content for d in Shelf().invoke(q)])))
    assert chain.batch(["q", "r"]) == ["ECHO: ALPHA FOR Q | BETA FOR Q", "ECHO: ALPHA FOR R | BETA FOR R"]
    traces = Traces(exporter)
    roots = {r.context.span_id: r.context.trace_id for r in traces.roots()}
    assert len(roots) == 2 and {r.attributes["ragtrace.framework"] for r in traces.roots()} == {"langchain"}
    for stage in ("generation", "context"):
        assert {s.parent.span_id: s.context.trace_id for s in traces.stages(stage)} == roots
    assert {s.attributes["ragtrace.path"] for s in traces.spans} == {"batch"}


def test_nested_stages_are_no_crossing_and_an_inner_pipeline_is_none(traces: Traces) -> None:
    with ragtrace.defend(Hooked("query", str.upper)), ragtrace.retrieval("q", name="hybrid") as outer:
        with ragtrace.pipeline("ignored"):
            found = search(outer.query)
        outer.documents(found)
    inner, hybrid = traces.stages("retrieval")
    assert inner.attributes["ragtrace.nested"] is True and inner.parent.span_id == hybrid.context.span_id
    assert [r.name for r in traces.roots()] == ["pipeline hybrid"] and len(traces.effects()) == 1


def test_the_path_may_be_said(traces: Traces) -> None:
    with ragtrace.pipeline("nightly", path="batch"):
        search("q")
    assert {s.attributes["ragtrace.path"] for s in traces.spans} == {"batch"}
    with pytest.raises(UsageError, match=r"path='backwards'.*expected one of invoke"):
        ragtrace.pipeline(path="backwards")  # type: ignore[arg-type]


def test_the_context_stage_takes_as_long_as_it_took(traces: Traces) -> None:
    with ragtrace.pipeline():
        search("q")
        between = trace.get_tracer_provider().get_tracer("app").start_span("between")
        between.end()
        answer(assemble(["alpha for q"]))
    [span] = traces.stages("context")
    assert span.start_time >= between.end_time and len(traces.documents("ragtrace.documents.in_prompt")) == 1


def test_an_assembly_that_no_generation_can_tell_of_is_written_by_itself(traces: Traces) -> None:
    assemble(["x"])
    with pytest.raises(TypeError):
        assemble([1])  # type: ignore[list-item]
    assert [s.status.status_code.name for s in traces.stages("context")] == ["UNSET", "ERROR"]


# what the app hands over comes back


@dataclass
class Page:
    text: str
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Slotted:
    """A class that refuses changes."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def text(self) -> str:
        return self._text


_words = st.text(alphabet="ab é\ud800", max_size=4)
_scores = st.none() | st.floats()
_documents = st.one_of(
    _words,
    st.builds(lambda t, s: {"content": t, "score": s, "other": 1}, _words, _scores),
    st.builds(lambda t, i: {"id": i, "page_content": t, "metadata": {"k": [1]}}, _words, st.sampled_from("xy")),
    st.builds(Document, _words, st.sampled_from("xy"), _scores),
    st.builds(Page, _words, _scores),
    st.builds(Slotted, _words),
    st.builds(lambda t: SimpleNamespace(text=t, node_id=7), _words),
    st.builds(lambda t: LangChainDocument(page_content=t, metadata={"score": 0.5}), _words),
)
_contents = st.one_of(_words, st.none(), st.lists(st.builds(lambda t: {"type": "text", "text": t}, _words), max_size=2))
_roles = st.sampled_from(["user", "assistant", "tool"])
_messages = st.one_of(
    st.builds(Message, _roles, _words),
    st.builds(lambda r, c: {"role": r, "content": c}, _roles, _contents),
    st.tuples(_roles, _words),
    st.builds(HumanMessage, _words),
    st.builds(lambda r, c: SimpleNamespace(role=r, content=c), _roles, _contents),
)


class Copies(ragtrace.Defense):
    """Acts at each hook and changes nothing, but with new objects."""

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        return [Document(d.content, d.id, d.score, dict(d.metadata)) for d in documents]

    on_content = on_retrieval

    def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [Message(m.role, m.content) for m in messages]


@settings(deadline=None)
@given(st.lists(_documents, max_size=4), st.booleans())
def test_documents_that_no_defense_changes_are_the_very_objects(found: list[Any], acting: bool) -> None:
    with ragtrace.defend(*[Copies()] * acting), ragtrace.retrieval("q") as stage:
        assert stage.documents(found) is found


@settings(deadline=None)
@given(st.lists(_messages, min_size=1, max_size=4), st.booleans())
def test_messages_that_no_defense_changes_are_the_very_objects(messages: list[Any], acting: bool) -> None:
    with ragtrace.defend(*[Copies()] * acting), ragtrace.generation(messages) as stage:
        assert stage.messages is messages


@settings(deadline=None)
@given(st.lists(_documents, min_size=1, max_size=4, unique_by=lambda d: duck.documents([d])[0].id), st.data())
def test_the_others_are_the_very_objects_where_one_changes_and_the_order_too(found: list[Any], data: Any) -> None:
    order = data.draw(st.permutations(range(len(found))))
    target = data.draw(st.sampled_from(range(len(found))))
    before = [d.content for d in duck.documents(found)]

    def act(documents: list[Document]) -> list[Document]:
        documents[target].content = "changed"
        return [documents[i] for i in order]

    with ragtrace.defend(Hooked("content", act)), ragtrace.retrieval("q") as stage:
        kept = stage.documents(found)
    assert [d.content for d in duck.documents(found)] == before  # the app's own objects are as they were
    for place, i in enumerate(order):
        if i == target:
            assert duck.documents(kept)[place].content == "changed"
        else:
            assert kept[place] is found[i]


def test_what_changed_has_the_form_it_came_in(traces: Traces) -> None:
    given = [
        "a", {"text": "a", "page_content": "a", "x": 1}, Document("a", "1"), Page("a"), Slotted("a"),
        LangChainDocument(page_content="a", metadata={"score": 0.5}), SimpleNamespace(text="a", score=0.5),
    ]  # fmt: skip

    def act(documents: list[Document]) -> list[Document]:
        for document in documents:
            document.content, document.score = "b", 0.25
        return [*documents, Document("new", "new")]

    with ragtrace.defend(Hooked("content", act)), ragtrace.retrieval("q") as stage:
        kept = stage.documents(given)
    assert kept == [
        "b", {"text": "b", "page_content": "b", "x": 1}, Document("b", "1", 0.25), Page("b", 0.25),
        Document("b", duck.documents(["a"], b"key")[0].id, 0.25),
        LangChainDocument(page_content="b", metadata={"score": 0.25}), SimpleNamespace(text="b", score=0.25), "new",
    ]  # fmt: skip
    assert traces.losses() == []
    given_dicts = ({"text": "a", "id": "1"},)
    with ragtrace.defend(Hooked("content", act)), ragtrace.retrieval("q") as stage:
        kept = stage.documents(given_dicts)
    assert kept == ({"text": "b", "id": "1"}, {"id": "new", "text": "new", "score": None, "metadata": {}})


def test_of_several_documents_with_one_id_each_is_its_own() -> None:
    found = [{"id": "x", "text": "a"}, {"id": "x", "text": "b"}, {"id": "x", "text": "c"}]

    def act(documents: list[Document]) -> list[Document]:
        a, b, c = documents
        return [Document("changed", b.id), c, c, a]

    with ragtrace.defend(Hooked("content", act)), ragtrace.retrieval("q") as stage:
        changed, c, again, a = stage.documents(found)
    assert changed == {"id": "x", "text": "changed"} and c is found[2] and a is found[0]
    assert again == {"id": "x", "text": "c"}  # a copy of whichever was left


def test_an_object_that_cannot_be_copied_is_left_as_it_was() -> None:
    class Single:
        text, score = "a", 0.5

        def __copy__(self) -> Single:
            return self

    def act(documents: list[Document]) -> list[Document]:
        return [Document(d.content, d.id, 0.25) for d in documents]

    only = Single()
    with ragtrace.defend(Hooked("retrieval", act)), ragtrace.retrieval("q") as stage:
        [kept] = stage.documents([only])
    assert (kept.content, kept.score, only.score) == ("a", 0.25, 0.5)


def test_changed_messages_have_the_form_they_came_in(traces: Traces) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    asked = [
        Message("system", "s"), {"role": "user", "content": [{"type": "text", "text": "u"}, image], "name": "n"},
        ("human", "h"), AIMessage("a"), {"role": "assistant", "content": None, "tool_calls": []}, Slotted("t"),
    ]  # fmt: skip

    def act(messages: list[Message]) -> list[Message]:
        return [*(Message(m.role, m.content.upper()) for m in messages), Message("developer", "more")]

    with ragtrace.defend(Hooked("prompt", act)), ragtrace.generation(asked[:-1]) as stage:
        sent = stage.messages
    assert sent == [
        Message("system", "S"), {"role": "user", "content": [{"type": "text", "text": "U"}, image], "name": "n"},
        ("human", "H"), AIMessage("A"), asked[4], Message("developer", "more"),
    ]  # fmt: skip
    assert sent[4] is asked[4]
    with ragtrace.generation(asked) as stage:
        assert stage.response("x") == "x" and stage.prompt is asked
    assert traces.losses()[1:] == [
        "the messages are a list of Slotted, expected role and content in each: the prompt hook was not crossed"
    ]


def test_an_answer_may_be_a_message_and_there_may_be_several(traces: Traces) -> None:
    message, other = AIMessage("a"), SimpleNamespace(choices=[])
    with ragtrace.defend(Hooked("response", str.upper)), ragtrace.generation("q") as stage:
        assert stage.response(message) == AIMessage("A") and message.content == "a"
        assert stage.response({"role": "assistant", "content": "b"}) == {"role": "assistant", "content": "B"}
        assert stage.response(other) is other
        stage.measured(input_tokens=3, output_tokens=2, logprobs=[-1.0, -2.0])
    [span] = traces.stages("generation")
    texts = [m["parts"][0]["content"] for m in json.loads(span.attributes["gen_ai.output.messages"])]
    assert texts == ["A", "B"] and span.attributes["ragtrace.mean_logprob"] == -1.5
    assert traces.losses() == ["response() got SimpleNamespace, expected a str; it is not recorded"]


# what goes wrong


def test_forgotten_hooks_are_losses(traces: Traces) -> None:
    with ragtrace.retrieval("q"):
        pass
    with ragtrace.generation("q"):
        pass
    with ragtrace.retrieval(None) as stage:
        assert stage.documents(None) is None
    with ragtrace.retrieval("q") as stage:
        assert [stage.documents(["a"]), stage.documents(["b"])] == [["a"], ["b"]]
    assert traces.losses() == [
        "documents() was not called: the retrieval and content hooks were not crossed",
        "response() was not called: the response hook was not crossed",
        "the query is NoneType, expected a str: the query hook was not crossed",
        "documents() got NoneType, expected a list of documents; they are not recorded",
        "documents() was called more than once: only the last documents are in this span",
    ]


def test_a_stage_used_after_its_end_still_defends_and_writes_nothing(traces: Traces, caplog: Any) -> None:
    with ragtrace.defend(Hooked("response", str.upper)), ragtrace.generation("q") as stage:
        pass
    assert stage.response("late") == "LATE"
    with ragtrace.defend(Hooked("content", lambda documents: [])), ragtrace.retrieval("q") as searched:
        pass
    assert searched.documents(["late"]) == []
    assert "late" not in traces.text().lower() and caplog.records == []


@pytest.mark.parametrize("is_async", [False, True])
def test_the_apps_error_passes_unchanged_and_is_recorded(traces: Traces, is_async: bool) -> None:
    raised = LookupError("index is gone")

    def broken(query: str) -> list[str]:
        raise raised

    async def abroken(query: str) -> list[str]:
        raise raised

    with pytest.raises(LookupError) as caught:
        asyncio.run(ragtrace.retrieval()(abroken)("q")) if is_async else ragtrace.retrieval()(broken)("q")
    assert caught.value is raised and caught.traceback[-1].name == ("abroken" if is_async else "broken")
    stage, root = traces.spans
    assert {s.status.status_code.name for s in (stage, root)} == {"ERROR"} and traces.losses() == []
    assert stage.attributes["error.type"] == "LookupError"
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("hook", ["query", "retrieval", "content", "prompt", "response"])
@pytest.mark.parametrize("on_error", ["open", "raise", "block"])
def test_a_defense_that_raises(traces: Traces, hook: str, on_error: str) -> None:
    def act(_: Any) -> Any:
        raise OSError("defense is out")

    with ragtrace.defend(Hooked(hook, act, on_error)):
        if on_error == "raise":
            with pytest.raises(OSError, match="defense is out"):
                with_managers("q")
        else:
            answered = with_managers("q")
            assert (answered == "echo: alpha for q | beta for q") is (on_error == "open")
    assert [(e["hook"], e["status"]) for e in traces.effects()] == [(hook, "error")]
    assert not trace.get_current_span().get_span_context().is_valid


def test_our_own_failure_is_not_the_apps(traces: Traces, monkeypatch: Any, caplog: Any) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(handles.Recorder, "scope", fails)
    assert with_managers("q") == with_decorators("q") == "echo: alpha for q | beta for q"
    assert "".join(streamed("q")).strip() == "echo: alpha for q | beta for q"
    assert "ragtrace could not record a stage" in caplog.text


# decorators


def test_wrong_use_is_told_at_decoration() -> None:
    def takes_nothing() -> list[str]:
        return []

    def yields(query: str) -> Iterator[str]:
        yield query

    wrong: list[tuple[Any, str]] = [
        (lambda: ragtrace.retrieval(search), r"it is called: @ragtrace\.retrieval\(\)"),
        (lambda: ragtrace.pipeline(search), r"it is called: @ragtrace\.pipeline\(\)"),
        (lambda: ragtrace.generation(search), r"it is called: @ragtrace\.generation\(\)"),
        (lambda: ragtrace.context(name=search), r"it is called: @ragtrace\.context\(\)"),
        (lambda: ragtrace.retrieval()("text"), "got str, expected a function"),
        (lambda: ragtrace.generation()(Page), "got the class Page, expected a function"),
        (lambda: ragtrace.retrieval()(takes_nothing), "takes_nothing has no parameter"),
        (lambda: ragtrace.retrieval(arg="other")(search), "search has no such parameter; it has query, k"),
        (lambda: ragtrace.retrieval()(yields), "yields is a generator function; return a value"),
        (lambda: ragtrace.context()(yields), "yields is a generator function; return a value"),
        (lambda: ragtrace.retrieval("q")(search), "takes no str; name="),
    ]
    for use, told in wrong:
        with pytest.raises(UsageError, match=told):
            use()


def test_which_argument_crosses(traces: Traces) -> None:
    class Index:
        @ragtrace.retrieval(name="bm25")
        def search(self, k: int, query: str, *, mode: str = "fast") -> list[str]:
            return [query, mode, str(k)]

        @ragtrace.generation(arg="messages")
        def answer(self, question: str, messages: list[Any]) -> str:
            return f"{question} {messages}"

        @ragtrace.generation()
        def chat(self, options: dict[str, str], messages: list[Any]) -> str:
            return str(messages)

    class Upper(ragtrace.Defense):
        def on_query(self, query: str) -> str:
            return query.upper()

        def on_prompt(self, messages: list[Message]) -> list[Message]:
            return [Message(m.role, m.content.upper()) for m in messages]

    index = Index()
    with ragtrace.defend(Upper()):
        assert index.search(3, query="q", mode="slow") == ["Q", "slow", "3"]
        assert index.answer("why", [("user", "x")]) == "why [('user', 'X')]"
        assert index.chat({"role": "x"}, [{"role": "user", "content": "x"}]) == "[{'role': 'user', 'content': 'X'}]"
        assert index.search(3, None) == [None, "fast", "3"]  # type: ignore[arg-type, comparison-overlap]
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'query'"):
            index.search(3)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'prompt'"):
            tell()  # type: ignore[call-arg]
    assert index.search.__name__ == "search" and "the query is NoneType" in traces.losses()[0]
    assert {r.name for r in traces.roots()} == {"pipeline bm25", "pipeline answer", "pipeline chat"}


# streams


def test_a_stream_passes_at_once_and_notes_what_was_delivered(traces: Traces) -> None:
    made: list[int] = []

    @ragtrace.pipeline()
    @ragtrace.generation()
    def count(prompt: str) -> Iterator[str]:
        for i in range(9):
            made.append(i)
            yield str(i)

    stream = count("q")
    assert made == [] and [next(stream), next(stream)] == ["0", "1"] and made == [0, 1]
    assert not trace.get_current_span().get_span_context().is_valid  # the consumer's own context, in between
    stream.close()  # type: ignore[attr-defined]
    generation, root = traces.spans
    assert json.loads(generation.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "01"
    assert {s.status.status_code.name for s in (generation, root)} == {"UNSET"} and root.name == "pipeline count"
    assert generation.attributes["ragtrace.stopped_early"] is True


def test_an_async_stream_left_early(traces: Traces) -> None:
    @ragtrace.pipeline()
    @ragtrace.generation()
    async def count(prompt: str) -> AsyncIterator[str]:
        for i in range(9):
            await asyncio.sleep(0)
            yield str(i)

    async def run() -> None:
        stream = count("q")
        assert [await anext(stream), await anext(stream)] == ["0", "1"]
        assert not trace.get_current_span().get_span_context().is_valid
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
    generation, root = traces.spans
    assert json.loads(generation.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "01"
    assert {s.attributes["ragtrace.path"] for s in (generation, root)} == {"astream"} and root.name == "pipeline count"
    assert generation.parent.span_id == root.context.span_id and generation.attributes["ragtrace.stopped_early"] is True


def test_a_stream_that_fails_midway(traces: Traces) -> None:
    @ragtrace.generation()
    async def breaks(prompt: str) -> AsyncIterator[str]:
        yield "a"
        raise OSError("the model is out")

    for defenses, delivered in (((), ["a"]), ((Hooked("response", str.upper),), [])):
        traces.clear()
        got: list[str] = []

        async def read(got: list[str] = got) -> None:
            async for piece in breaks("q"):
                got.append(piece)

        with ragtrace.defend(*defenses), pytest.raises(OSError, match="the model is out") as caught:
            asyncio.run(read())
        assert got == delivered and caught.traceback[-1].name == "breaks"
        [span] = traces.stages("generation")
        told = json.loads(span.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"]
        assert told == "".join(delivered) and span.status.status_code.name == "ERROR" and len(traces.roots()) == 1


def test_a_stream_keeps_the_defenses_and_the_request_it_was_called_in(traces: Traces) -> None:
    with ragtrace.defend(Hooked("response", str.upper)):
        alone = tell("q")
    with ragtrace.defend(Hooked("response", str.upper)), ragtrace.pipeline("rag"):
        search("q")
        inside = tell("alpha for q")
    assert list(alone) == ["ECHO: Q "] and list(inside) == ["ECHO: ALPHA FOR Q "]
    assert [s.attributes["ragtrace.query"] for s in traces.stages("generation")] == ["q", "q"]
    assert [s.attributes["ragtrace.buffered"] for s in traces.stages("generation")] == [True, True]
    assert [e["buffered"] for e in traces.effects()] == [True, True]
    assert [r.name for r in traces.roots()] == ["pipeline rag", "pipeline tell"] and len(traces.stages("context")) == 1


def test_pieces_that_are_no_text_pass_as_they_are(traces: Traces) -> None:
    chunks = [SimpleNamespace(delta="a"), SimpleNamespace(delta="b")]

    @ragtrace.generation()
    def raw(prompt: str) -> Iterator[Any]:
        yield from chunks

    assert all(a is b for a, b in zip(raw("q"), chunks, strict=True))
    with ragtrace.defend(Hooked("response", str.upper)):
        assert all(a is b for a, b in zip(raw("q"), chunks, strict=True))
    assert traces.losses() == ["the stream's pieces are SimpleNamespace, expected str; they are not recorded"] * 2


def test_an_observed_defense_on_a_stream_that_has_left_is_too_late(tmp_path: Path) -> None:
    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.upper()

    @ragtrace.pipeline("rag")
    def late(query: str) -> Iterator[str]:
        pieces = []
        for piece in tell(query):
            pieces.append(piece)
            yield piece
        mask("".join(pieces))

    @ragtrace.pipeline("rag")
    def in_time(query: str) -> Iterator[str]:
        yield mask("".join(tell(query)))

    database = tmp_path / "t.duckdb"
    tracing = ragtrace.setup(database, capture="full")
    assert "".join(late("q")) == "echo: q " and "".join(in_time("q")) == "ECHO: Q "
    tracing.flush()
    assert _rows(database, "SELECT ran FROM coverage WHERE hook = 'response' ORDER BY ran") == [(False,), (True,)]


# lifecycles


def test_a_with_block_in_a_generator_closed_elsewhere_logs_nothing(traces: Traces, caplog: Any) -> None:
    async def app() -> AsyncIterator[str]:
        async with ragtrace.pipeline("rag"), ragtrace.generation("q") as stage:
            yield await stage.response("a")
            yield "never"

    async def run() -> None:
        stream = app()
        task = asyncio.create_task(anext(stream), context=contextvars.copy_context())  # type: ignore[arg-type]
        assert await task == "a"
        await asyncio.create_task(stream.aclose(), context=contextvars.copy_context())  # type: ignore[arg-type, attr-defined]

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.records == [] and len(traces.spans) == 2
    assert {s.status.status_code.name for s in traces.spans} == {"UNSET"}


def test_tasks_side_by_side_keep_apart(traces: Traces) -> None:
    async def run() -> list[str]:
        return await asyncio.gather(*(awith_managers(str(i)) for i in range(5)))

    assert [a.split()[-1] for a in asyncio.run(run())] == list("01234")
    assert len(traces.roots()) == 5
    for root in traces.roots():
        assert len([s for s in traces.spans if s.context.trace_id == root.context.trace_id]) == 4


def test_a_request_that_has_ended_is_freed_at_once(traces: Traces) -> None:
    gc.collect()
    gc.disable()
    try:
        with ragtrace.pipeline(), ragtrace.generation("q") as stage:
            stage.response("a")
            held = weakref.ref(stage._part)  # type: ignore[type-var]
        stream = tell("q")
        next(stream)
        del stage, stream
        assert held() is None and len(traces.stages("generation")) == 2
    finally:
        gc.enable()


def test_an_instrumentation_that_is_suppressed_or_not_sampled_still_defends(traces: Traces) -> None:
    from opentelemetry.instrumentation.utils import suppress_instrumentation

    with suppress_instrumentation(), ragtrace.defend(All()):
        assert with_managers("q") == "echo: beta for q? | ALPHA for q?! (q, 2)"
    assert traces.spans == []
