"""Odd input, scores, the candidate pool and the context stage: a recorded value or a recorded loss, never a failure."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ImageBlock,
    LogProb,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
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
    Shelf,
    call,
    context_chat,
    instrumented,  # noqa: F401
    query_engine,
    recorded,  # noqa: F401
    simple_chat,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanProcessor
from pipelines import Hooked
from ragtrace_llama_index import LlamaIndexInstrumentor, translate

import ragtrace

pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")

SECRET = "sk-live-1234567890"
PLAIN = ("invoke", "ainvoke", *BATCHES)


class Client:
    """An object that gives its key away when printed."""

    def __repr__(self) -> str:
        return f"Client(key={SECRET})"

    __str__ = __repr__


def scored(*nodes: Any, score: Any = 0.5) -> list[NodeWithScore]:
    return [NodeWithScore.model_construct(node=n, score=score) for n in nodes]


@pytest.mark.parametrize("path", PLAIN)
@pytest.mark.parametrize("what", [None, ["a", "b"], "text", [*scored(TextNode(text="a")), None], (), {}])
def test_retrievers_that_return_something_else(llama_traces: Any, what: Any, path: str) -> None:
    for defense in ([], [Hooked("content", lambda ds: ds)]):
        with ragtrace.defend(*defense):
            got = call(path, RETRIEVE, Gives(what), ["q"])
        assert got == [what] and got[0] is what
        assert "expected a list of NodeWithScore" in llama_traces.losses()[-1]
    assert {s.status.status_code.name for s in llama_traces.spans} == {"UNSET"}


@pytest.mark.parametrize("what", [None, ["a", "b"], "text"])
def test_what_llama_index_breaks_on_it_still_does(llama_instrumented: Any, what: Any) -> None:
    class Inner(Shelf):
        def _retrieve(self, query_bundle: Any) -> Any:
            return what

    def tries() -> list[str]:
        out = []
        for ask in (lambda: query_engine(retriever=Gives(what)).query("q"), lambda: Inner().retrieve("q")):
            with pytest.raises(Exception) as found:
                ask()
            out.append(f"{type(found.value)} {found.value} {found.traceback[-1].path} {found.traceback[-1].lineno}")
        return out

    expected = tries()
    traces = llama_instrumented()
    assert tries() == expected
    assert [r.status.status_code.name for r in traces.roots()] == ["ERROR", "ERROR"]


NODES = {
    "an index node": (IndexNode(text="see there", index_id="there", id_="1"), "see there"),
    "an image": (ImageNode(image_url="http://example.com/i.png", id_="1"), ""),
    "an image with text": (ImageNode(text="a cat", image_url="http://example.com/i.png", id_="1"), "a cat"),
    "a node without text": (Node(id_="1"), ""),
    "a node of several media": (Node(id_="1", text_resource=MediaResource(text="words")), "words"),
    "an empty node": (TextNode(text="", id_="1"), ""),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_of_all_kinds(llama_traces: Any, name: str) -> None:
    node, text = NODES[name]
    [own] = given = scored(node)
    with ragtrace.defend(Hooked("content", lambda ds: ds)):
        [found] = Gives(given).retrieve("q")
    assert found is own
    [row, *_] = llama_traces.documents()
    assert (row["id"], row["content"], row["score"]) == ("1", text, 0.5)
    query_engine(retriever=Gives(given)).query("q")
    with ragtrace.defend(Hooked("content", lambda ds: [replace(d, content=d.content + "!") for d in ds])):
        [changed] = Gives(given).retrieve("q")
    assert type(changed.node) is type(node) and changed.node.get_content() == text + "!"
    assert changed.node is not node and node.get_content() == text and changed.node_id == "1"


def test_what_a_changed_node_keeps_and_what_it_does_not(llama_traces: Any) -> None:
    node = TextNode(
        text="alpha",
        id_="1",
        embedding=[1.0],
        metadata={"page": 3},
        metadata_template="{key}={value}",
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")},
    )
    with ragtrace.defend(Hooked("content", lambda ds: [replace(d, content="beta") for d in ds])):
        [found] = Gives(scored(node)).retrieve("q")
    assert found.node.model_dump(exclude={"text", "embedding"}) == node.model_dump(exclude={"text", "embedding"})
    assert found.node.embedding is None and node.embedding == [1.0]  # it tells of the text that is gone
    found.node.metadata["page"] = 4
    assert node.metadata == {"page": 3}
    with ragtrace.defend(Hooked("content", lambda ds: [ragtrace.Document("new", "2", 0.25, {"k": "v"})])):
        [made] = Gives(scored(node)).retrieve("q")
    assert (made.text, made.node_id, made.score, made.metadata) == ("new", "2", 0.25, {"k": "v"})
    with ragtrace.defend(Hooked("retrieval", lambda ds: [replace(d, score=0.75) for d in ds])):
        [rated] = Gives(scored(node)).retrieve("q")
    assert rated.score == 0.75 and rated.node is node


def test_metadata_of_all_kinds_loses_only_what_cannot_be_kept(llama_traces: Any) -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    metadata = {"client": Client(), "raw": SECRET.encode(), "cycle": cycle, "page": 3, "nested": {"c": Client()}}
    given = scored(TextNode.model_construct(text="lone \ud800 surrogate", id_="1", metadata=metadata | {1: "one"}))
    with ragtrace.defend(Hooked("content", lambda ds: ds)):
        [got] = Gives(given).retrieve("q \udcff")
    assert got is given[0]
    assert SECRET not in llama_traces.text()
    llama_traces.text().encode()
    [row] = llama_traces.documents()
    assert row["content"] == "lone ? surrogate" and row["metadata"]["page"] == 3 and row["metadata"]["1"] == "one"
    losses = "\n".join(llama_traces.losses())
    for part in ("metadata.client: Client left out", "metadata.raw: bytes", "cyclic", "metadata.nested.c: Client"):
        assert part in losses


@pytest.mark.parametrize("score", [math.nan, math.inf, "high", Client(), True, None, [0.5]])
def test_scores_that_are_none(llama_traces: Any, score: Any) -> None:
    given = scored(TextNode(text="x", id_="1"), score=score)
    with ragtrace.defend(Hooked("retrieval", lambda ds: list(ds))):
        [got] = Gives(given).retrieve("q")
    assert got is given[0]
    assert llama_traces.documents()[0]["score"] is None
    assert [e["status"] for e in llama_traces.effects()] == ["unchanged"]


def test_no_text_of_an_exception_or_a_document_in_digest_mode(llama_instrumented: Any) -> None:
    for mode in ("digest", "none"):
        traces = llama_instrumented(capture=mode)
        given = scored(TextNode(text=f"the {SECRET}", metadata={SECRET: Client()}))
        with ragtrace.defend(Hooked("content", lambda ds: ds), Hooked("response", lambda r: 1 / 0)):
            query_engine(retriever=Gives(given)).query(SECRET)
            context_chat(retriever=Gives(given)).chat(SECRET)
        with pytest.raises(ValueError, match=SECRET):
            query_engine(retriever=Shelf(error=ValueError(SECRET))).query("q")
        assert traces.spans and SECRET not in traces.text()
        LlamaIndexInstrumentor().uninstrument()


def test_errors_that_cannot_be_printed(llama_traces: Any) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    with pytest.raises((Odd, RuntimeError)):  # LlamaIndex prints it
        Shelf(error=Odd()).retrieve("q")
    with pytest.raises(ValueError):
        Shelf(error=ValueError("lone \ud800")).retrieve("q")
    llama_traces.text().encode()
    assert {s.status.status_code.name for s in llama_traces.spans} == {"ERROR"}


@pytest.mark.parametrize("path", ["invoke", "ainvoke", *STREAMS])
def test_a_span_processor_that_fails_costs_nothing_but_its_spans(llama_instrumented: Any, path: str) -> None:
    class Failing(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("processor")

    provider = TracerProvider()
    provider.add_span_processor(Failing())
    llama_instrumented(tracer_provider=provider)
    with ragtrace.defend(Hooked("response", str.upper)):
        said = call(path, QUERY, query_engine(streaming=path in STREAMS), ["q"])
        assert "ECHO" in "".join(map(str, said))
        assert "ECHO" in "".join(map(str, call(path, CHAT, context_chat(), ["q"])))


def test_our_own_failure_is_logged_and_undoes_no_defense(llama_traces: Any, monkeypatch: Any, caplog: Any) -> None:
    from ragtrace.record import describe

    def broken(*_: Any) -> Any:
        raise RuntimeError("our own")

    for name in ("retrieved", "after_defense", "messages", "in_prompt"):
        monkeypatch.setattr(describe, name, broken)
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1]), Hooked("response", str.upper)):
        for engine in (query_engine(), query_engine(streaming=True)):
            said = str(engine.query("q"))
            assert "ALPHA FOR Q" in said and "BETA" not in said
    assert "ragtrace could not record" in caplog.text
    assert len(llama_traces.effects()) == 4


@pytest.mark.parametrize("broken", ["_call", "_open"])
def test_an_adapter_that_fails_leaves_the_app_alone(
    llama_traces: Any, monkeypatch: Any, caplog: Any, broken: str
) -> None:
    from ragtrace_llama_index import foresight, generating, requests, retrieving

    expected = [str(query_engine(streaming=s).query("q")) for s in (False, True)]

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("our own")

    names = {"_call": [(generating, "Generation"), (retrieving, "Retrieval")], "_open": [(requests, "_ids")]}
    for module, name in names[broken]:
        monkeypatch.setattr(module, name, fails)
    monkeypatch.setattr(foresight, "_own", fails)
    assert [str(query_engine(streaming=s).query("q")) for s in (False, True)] == expected
    assert "ragtrace could not record" in caplog.text


def test_wrong_arguments_are_told_by_llama_index(llama_instrumented: Any) -> None:
    def tries() -> list[str]:
        out = []
        for wrong in (
            lambda: Shelf().retrieve(),
            lambda: Shelf().retrieve(3),
            lambda: ChatEcho().chat(),
            lambda: ChatEcho().chat(3),
            lambda: ChatEcho().chat(["a string"]),
            lambda: list(ChatEcho().stream_chat([{"role": "user"}])),
            lambda: Echo().complete(),
            lambda: query_engine().query(),
            lambda: query_engine().query(3),
            lambda: asyncio.run(query_engine().aquery(None)),
            lambda: simple_chat().chat(),
        ):
            try:
                out.append(str(wrong()))
            except Exception as error:
                out.append(f"{type(error).__name__}: {error}")
        return out

    expected = tries()
    llama_instrumented()
    assert tries() == expected
    with ragtrace.defend(*(Hooked(h, lambda v: v) for h in ("query", "content", "prompt", "response"))):
        assert tries() == expected
    assert Echo().complete(prompt="q", formatted=True).text == "echo: q"
    assert ChatEcho().chat(messages=[ChatMessage(content="q")]).message.content == "echo: q"
    assert Shelf().retrieve(str_or_query_bundle="q")[0].text == "alpha for q"


def test_arguments_by_name_are_defended(llama_traces: Any) -> None:
    with ragtrace.defend(Hooked("query", str.upper)):
        assert Shelf().retrieve(str_or_query_bundle="q")[0].text == "alpha for Q"
    with ragtrace.defend(Hooked("prompt", lambda ms: [replace(m, content="p") for m in ms])):
        assert ChatEcho().chat(messages=[ChatMessage(content="q")]).message.content == "echo: p"
        assert Echo().complete(prompt="q").text == "echo: p"
        assert asyncio.run(Echo().acomplete(prompt="q")).text == "echo: p"


# messages and responses

IMAGE = ImageBlock(url="http://example.com/i.png")
CALL = ToolCallBlock(tool_call_id="1", tool_name="look", tool_kwargs={"q": "x"})


class Hears(ChatEcho):
    """Keeps what it was given, and says what it is told to."""

    heard: list[Any] = []
    answer: Any = None
    chunks: Any = None

    def chat(self, messages: Any, **kwargs: Any) -> Any:
        self.heard.append(list(messages))
        return self.answer or ChatResponse(message=ChatMessage(role="assistant", content="fine"))

    def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
        self.heard.append(list(messages))
        return iter(self.chunks) if self.chunks is not None else self.chunks

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        async def chunks() -> Any:
            for chunk in self.chunks:
                yield chunk

        return chunks() if self.chunks is not None else None


def test_messages_keep_what_is_no_text(llama_traces: Any) -> None:
    system = ChatMessage(role="developer", content="rules")
    user = ChatMessage(role="user", blocks=[IMAGE, TextBlock(text="what is"), TextBlock(text="this")])
    picture = ChatMessage(role="user", blocks=[IMAGE])
    assistant = ChatMessage(role="assistant", blocks=[CALL], additional_kwargs={"tool_calls": ["x"]})
    tool = ChatMessage(role="tool", content="found", additional_kwargs={"tool_call_id": "1"})
    given = [system, user, picture, assistant, tool]
    model = Hears()
    model.chat(given)
    assert all(a is b for a, b in zip(model.heard[0], given, strict=True))
    [generation] = llama_traces.stages("generation")
    rows = json.loads(generation.attributes["gen_ai.input.messages"])
    assert [(r["role"], r["parts"][0]["content"]) for r in rows] == [
        ("system", "rules"), ("user", "what is\nthis"), ("user", ""), ("assistant", ""), ("tool", "found")
    ]  # fmt: skip
    with ragtrace.defend(Hooked("prompt", lambda ms: [replace(m, content=m.content.upper()) for m in ms])):
        model.chat(given)
    [rules, asked, same, called, found] = model.heard[1]
    assert same is picture and called is assistant
    assert rules.role.value == "developer" and rules.content == "RULES"
    assert asked.blocks == [IMAGE, TextBlock(text="WHAT IS\nTHIS")] and user.content == "what is\nthis"
    assert found.additional_kwargs == tool.additional_kwargs and found.content == "FOUND"
    with ragtrace.defend(Hooked("prompt", lambda ms: [ms[1], ragtrace.Message("user", "and"), ms[0]])):
        model.chat(given)
    assert [m.content for m in model.heard[2]] == ["what is\nthis", "and", "rules"] and model.heard[2][0] is user
    with ragtrace.defend(Hooked("prompt", lambda ms: [ragtrace.Message("oracle", "speak")])):
        model.chat([system])
    assert [(m.role.value, m.content) for m in model.heard[3]] == [("user", "speak")]


def test_a_response_keeps_its_tool_calls_and_not_the_old_text(llama_traces: Any) -> None:
    thought = ThinkingBlock(content="hm")
    message = ChatMessage(role="assistant", blocks=[thought, TextBlock(text="the secret"), CALL])
    answer = ChatResponse(
        message=message,
        delta="the secret",
        raw={"choices": ["the secret"], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        logprobs=[[LogProb(token="secret", logprob=-1.0)]],
        additional_kwargs={"prompt_tokens": 3},
    )
    with ragtrace.defend(Hooked("response", lambda r: r.replace("secret", "[hidden]"))):
        got = Hears(answer=answer).chat([ChatMessage(content="q")])
    assert got.message.blocks == [thought, TextBlock(text="the [hidden]"), CALL] and got.delta == "the [hidden]"
    assert "secret" not in repr(got) and got.raw == {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    assert (
        got.additional_kwargs == {"prompt_tokens": 3} and answer.message is message and message.content == "the secret"
    )
    [generation] = llama_traces.stages("generation")
    assert generation.attributes["gen_ai.usage.input_tokens"] == 3
    assert generation.attributes["ragtrace.mean_logprob"] == -1.0
    with ragtrace.defend(Hooked("response", lambda r: "")):
        called = Hears(answer=ChatResponse(message=ChatMessage(role="assistant", blocks=[CALL]))).chat([])
    assert called.message.blocks == [CALL]  # no text, and none made


def _chunk(text: str, delta: str | None, *blocks: Any, **more: Any) -> ChatResponse:
    return ChatResponse(
        message=ChatMessage(role="assistant", blocks=[TextBlock(text=text), *blocks]), delta=delta, **more
    )


@pytest.mark.parametrize("path", STREAMS)
def test_the_one_chunk_of_a_defended_stream(llama_traces: Any, path: str) -> None:
    chunks = [_chunk("let", "let", raw={"choices": ["let"]}), _chunk("let me", " me"), _chunk("let me", "", CALL)]
    with ragtrace.defend(Hooked("response", lambda r: r)):
        [same] = call(path, CHAT, Hears(chunks=chunks), [[]])
    assert same.message is chunks[-1].message and same.delta == "let me"
    with ragtrace.defend(Hooked("response", str.upper)):
        [changed] = call(path, CHAT, Hears(chunks=chunks), [[]])
    assert changed.message.blocks == [TextBlock(text="LET ME"), CALL] and changed.delta == "LET ME"
    assert [e["buffered"] for e in llama_traces.effects()] == [True, True]


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("defended", [False, True])
def test_streams_that_are_odd(llama_traces: Any, path: str, defended: bool) -> None:
    defenses = [Hooked("response", str.upper)] if defended else []
    for chunks in ([], ["text", _chunk("a", None), None], [_chunk("", "")], [_chunk("whole", None)]):
        llama_traces.clear()
        with ragtrace.defend(*defenses):
            got = call(path, CHAT, Hears(chunks=chunks), [[]])
        if not defended:
            assert len(got) == len(chunks) and all(a is b for a, b in zip(got, chunks, strict=True))
        else:
            assert [g.message.content for g in got if isinstance(g, ChatResponse)] == [
                c.message.content.upper() for c in chunks if isinstance(c, ChatResponse)
            ]
            assert [g for g in got if not isinstance(g, ChatResponse)] == [
                c for c in chunks if not isinstance(c, ChatResponse)
            ]
        assert len(llama_traces.roots()) == len(llama_traces.stages("generation")) == 1
        assert {s.status.status_code.name for s in llama_traces.spans} == {"UNSET"}
    llama_traces.clear()
    if path == "stream":
        with ragtrace.defend(*defenses):
            assert Hears().stream_chat([]) is None
        assert "expected a stream" in llama_traces.losses()[0]


def test_responses_that_are_none(llama_traces: Any) -> None:
    with ragtrace.defend(Hooked("response", str.upper)):
        assert Hears(answer="just text").chat([]) == "just text"
    assert "expected a response" in llama_traces.losses()[0] and llama_traces.effects() == []


def test_what_a_model_tells_about_its_answer(llama_traces: Any) -> None:
    from types import SimpleNamespace as Some

    tokens = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}, {"token": "", "logprob": -9.0}]
    content = [Some(**t) for t in tokens]
    objects = Some(
        model="m-2",
        usage=Some(input_tokens=5, output_tokens=6),
        choices=[Some(logprobs=Some(content=content), finish_reason="stop")],
    )
    plain = {
        "model": "m-2",
        "usage": {"prompt_tokens": 5, "completion_tokens": 6},
        "choices": [{"logprobs": {"content": tokens}, "finish_reason": "stop"}],
    }
    old = plain | {
        "choices": [
            {"logprobs": {"tokens": ["a", "b", ""], "token_logprobs": [-0.5, -1.5, None]}, "finish_reason": "stop"}
        ]
    }
    for raw in (objects, plain, old):
        llama_traces.clear()
        Hears(answer=_chunk("ab", None, raw=raw)).chat([])
        [generation] = llama_traces.stages("generation")
        told = dict(generation.attributes)
        assert (told["ragtrace.mean_logprob"], told["ragtrace.logprob_tokens"]) == (-1.0, 2)
        assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (5, 6)
        assert (told["gen_ai.request.model"], told["gen_ai.response.model"]) == ("chat-echo-1", "m-2")
        assert json.loads(told["gen_ai.output.messages"])[0]["finish_reason"] == "stop"
        llama_traces.clear()
        chunks = [_chunk("a", "a", raw={"choices": [{"logprobs": {"content": [t]}}]}) for t in tokens]
        list(Hears(chunks=[*chunks, _chunk("ab", "b", raw={"usage": plain["usage"]})]).stream_chat([]))
        [generation] = llama_traces.stages("generation")
        assert generation.attributes["ragtrace.mean_logprob"] == -1.0
        assert generation.attributes["gen_ai.usage.output_tokens"] == 6
    odd: list[Any] = [{"choices": 3}, {"usage": "many"}, [1], "raw", Client(), {"choices": [None]}]
    for raw in odd:
        Hears(answer=_chunk("ab", None, raw=raw)).chat([])
    assert SECRET not in llama_traces.text()
    llama_traces.clear()
    ChatEcho(usage=True).chat([ChatMessage(content="q")])
    assert llama_traces.stages("generation")[0].attributes["gen_ai.usage.output_tokens"] == 4


def test_completions_are_translated_too() -> None:
    answer = CompletionResponse(
        text="old", delta="old", raw={"text": "old"}, additional_kwargs={"logprobs": "old", "n": 1}
    )
    changed = translate.response_with_text(answer, "new")
    assert "old" not in repr(changed) and (changed.text, changed.delta) == ("new", "new")  # type: ignore[union-attr]
    assert changed.additional_kwargs == {"n": 1}


# scores and the candidate pool


class Numbers(BaseEmbedding):
    """A text's embedding is its length and its last digit, turned into an angle."""

    def _get_text_embedding(self, text: str) -> list[float]:
        angle = (int(text[-1]) if text[-1].isdigit() else 0) / 7
        return [math.cos(angle), math.sin(angle)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def index() -> Any:
    return VectorStoreIndex([TextNode(text=f"number {i}", id_=str(i)) for i in range(10)], embed_model=Numbers())


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_a_retrieval_defense_sees_a_larger_pool(llama_traces: Any, path: str) -> None:
    given: list[int] = []

    def last_first(documents: Any) -> Any:
        given.append(len(documents))
        return documents[::-1]

    retriever = index().as_retriever(similarity_top_k=2)

    def ask() -> Any:
        return [(n.node_id, n.score) for n in call(path, RETRIEVE, retriever, ["number 3"])[0]]

    plain = ask()
    rows = llama_traces.documents()
    assert [(r["id"], r["score"]) for r in rows] == plain and len(plain) == 2
    with ragtrace.defend(Hooked("content", lambda ds: ds)):
        assert ask() == plain
    assert all("ragtrace.retrieval.pool" not in s.attributes for s in llama_traces.spans)
    llama_traces.clear()
    with ragtrace.defend(Hooked("retrieval", last_first)):
        defended = ask()
    assert given == [8] and len(defended) == 2
    [stage] = llama_traces.stages("retrieval")  # the wider retriever's own call is the same one
    assert stage.attributes["ragtrace.retrieval.pool"] == 8 and stage.name == "retrieval VectorIndexRetriever"
    pool = [r["id"] for r in llama_traces.documents()]
    assert [i for i, _ in defended] == pool[::-1][:2]
    assert retriever.similarity_top_k == 2 and ask() == plain
    with ragtrace.defend(Hooked("retrieval", lambda ds: 1 / 0)):
        assert ask() == plain
    with ragtrace.defend(Hooked("retrieval", lambda ds: 1 / 0, "block")):
        assert ask() == []


def test_no_larger_pool_where_k_says_nothing_about_the_result(llama_instrumented: Any) -> None:
    traces = llama_instrumented(oversample=2)
    retriever = index().as_retriever(similarity_top_k=2)
    given: list[int] = []
    with ragtrace.defend(Hooked("retrieval", lambda ds: given.append(len(ds)) or ds)):
        retriever.retrieve("number 3")
        retriever.object_map = {"x": Shelf()}
        retriever.retrieve("number 3")
        Shelf().retrieve("q")
    assert given == [4, 2, 2] and len(traces.roots()) == 3


# the context stage


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_what_stands_in_the_prompt(llama_traces: Any, path: str) -> None:
    given = scored(TextNode(text="alpha", id_="a", metadata={"page": 3}), TextNode(text="  ", id_="b"))
    call(path, QUERY, query_engine(retriever=Gives(given)), ["q"])
    [context], [generation], [root] = (
        llama_traces.stages("context"), llama_traces.stages("generation"), llama_traces.roots()
    )  # fmt: skip
    rows = json.loads(context.attributes["ragtrace.documents.in_prompt"])
    assert [(r["id"], r["whole"]) for r in rows] == [("a", True)]
    assert context.parent.span_id == generation.parent.span_id == root.context.span_id
    assert context.start_time >= llama_traces.stages("retrieval")[0].start_time
    assert generation.attributes["ragtrace.query"] == "q"


def test_nothing_retrieved(llama_traces: Any) -> None:
    assert str(query_engine(retriever=Gives([])).query("q")) == "Empty Response"
    assert str(query_engine(retriever=Gives([]), streaming=True).query("q")) == "Empty Response"
    assert llama_traces.documents() == [] and llama_traces.stages("context") == []
    assert len(llama_traces.roots()) == 2 and llama_traces.stages("generation") == []


def test_nothing_is_logged_in_a_usual_run(llama_traces: Any, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, logger="ragtrace"):
        for path in PATHS:
            call(path, QUERY, query_engine(streaming=path in STREAMS), ["q", "r"])
            call(path, CHAT, context_chat(), ["q", "r"])
            call(path, COMPLETE, Echo(), ["q", "r"])
    assert [r for r in caplog.records if r.name.startswith(("ragtrace", "opentelemetry"))] == []


def test_whose_request_it_is(llama_traces: Any) -> None:
    from llama_index.core.instrumentation.dispatcher import instrument_tags

    with instrument_tags({"user_id": "ann", "session_id": 7, "other": Client()}):
        query_engine().query("q")
    assert {s.attributes.get("user.id") for s in llama_traces.spans} == {"ann"}
    assert {s.attributes.get("session.id") for s in llama_traces.spans} == {"7"}
    assert SECRET not in llama_traces.text()
