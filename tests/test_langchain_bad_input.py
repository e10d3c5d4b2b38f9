"""Odd input, scores, the candidate pool and the context stage: a recorded value or a recorded loss, never a failure."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListLLM
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import PATHS, STREAMS, Echo, Hooked, Shelf, TextEcho, Traces, call, join, lcel

import ragtrace

SECRET = "sk-live-1234567890"


class Client:
    """An object that gives its key away when printed."""

    def __repr__(self) -> str:
        return f"Client(key={SECRET})"

    __str__ = __repr__


class Gives(BaseRetriever):
    """A retriever that returns anything at all."""

    what: Any = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> Any:
        return self.what


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("what", [None, ["a", "b"], "text", [Document(page_content="a"), None], ()])
def test_retrievers_that_return_something_else(traces: Any, what: Any, path: str) -> None:
    for defense in ([], [Hooked("content", lambda ds: ds)]):
        with ragtrace.defend(*defense):
            got = call(path, Gives(what=what), ["q"])
        assert got == [what]
        assert "expected a list of documents" in traces.losses()[-1]
    chain = Gives(what=["a", "b"]) | RunnableLambda(" ".join) | Echo()
    assert chain.invoke("q").text == "echo: a b"


def test_metadata_of_all_kinds_loses_only_what_cannot_be_kept(traces: Any) -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    metadata = {"client": Client(), "raw": SECRET.encode(), "cycle": cycle, "page": 3, "nested": {"c": Client()}}
    document = Document(page_content="lone \ud800 surrogate", metadata=metadata)
    with ragtrace.defend(Hooked("content", lambda ds: ds)):
        [got] = Gives(what=[document]).invoke("q \udcff")
    assert got is document
    assert SECRET not in traces.text()
    traces.text().encode()
    [row] = traces.documents()
    assert row["content"] == "lone ? surrogate" and row["metadata"]["page"] == 3
    losses = "\n".join(traces.losses())
    for part in ("metadata.client: Client left out", "metadata.raw: bytes", "cyclic", "metadata.nested.c: Client"):
        assert part in losses


def test_keys_that_are_no_strings(traces: Any) -> None:
    document = Document.model_construct(page_content="x", metadata={1: "a", None: "b", Client(): "c"}, id=None)
    Gives(what=[document]).invoke("q")
    assert traces.documents()[0]["metadata"] == {"1": "a", "None": "b"}
    assert SECRET not in traces.text()


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "high", Client(), True, None, [0.5]])
def test_scores_that_are_none(traces: Any, score: Any) -> None:
    document = Document(page_content="x", metadata={"score": score})
    with ragtrace.defend(Hooked("retrieval", lambda ds: list(ds))):
        [got] = Gives(what=[document]).invoke("q")
    assert got is document
    assert traces.documents()[0]["score"] is None
    assert [e["status"] for e in traces.effects()] == ["unchanged"]


def test_no_text_of_an_exception_or_a_document_in_digest_mode(instrumented: Any) -> None:
    for mode in ("digest", "none"):
        traces = instrumented(capture=mode)
        document = Document(page_content=f"the {SECRET}", metadata={SECRET: Client()})
        with ragtrace.defend(Hooked("content", lambda ds: ds), Hooked("response", lambda r: 1 / 0)):
            (Gives(what=[document]) | RunnableLambda(join) | Echo()).invoke(SECRET)
        with pytest.raises(ValueError, match=SECRET):
            (Shelf(error=ValueError(SECRET)) | RunnableLambda(join)).invoke("q")
        assert traces.spans and SECRET not in traces.text()
        from ragtrace_langchain import LangChainInstrumentor

        LangChainInstrumentor().uninstrument()


def test_errors_that_cannot_be_printed(traces: Any) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    with pytest.raises(Odd):
        Shelf(error=Odd()).invoke("q")
    assert {s.attributes["error.type"] for s in traces.spans} >= {Odd.__qualname__}
    with pytest.raises(ValueError):
        Shelf(error=ValueError("lone \ud800")).invoke("q")
    traces.text().encode()


@pytest.mark.parametrize("path", PATHS)
def test_a_span_processor_that_fails_costs_nothing_but_its_spans(instrumented: Any, path: str) -> None:
    class Failing(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("processor")

    provider = TracerProvider()
    provider.add_span_processor(Failing())
    instrumented(tracer_provider=provider)
    with ragtrace.defend(Hooked("response", str.upper)):
        assert "".join(call(path, lcel(), ["q"])).startswith("ECHO")


def test_our_own_failure_is_logged_and_undoes_no_defense(traces: Any, monkeypatch: Any, caplog: Any) -> None:
    from ragtrace.record import describe

    def broken(*_: Any) -> Any:
        raise RuntimeError("our own")

    for name in ("retrieved", "after_defense", "messages", "in_prompt"):
        monkeypatch.setattr(describe, name, broken)
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1]), Hooked("response", str.upper)):
        assert lcel().invoke("q") == "ECHO: BE BRIEF. ALPHA FOR Q ? Q"
        assert "".join(lcel().stream("q")) == "ECHO: BE BRIEF. ALPHA FOR Q ? Q"
    assert "ragtrace could not record" in caplog.text
    assert len(traces.effects()) == 4


def test_wrong_arguments_are_told_by_langchain(traces: Any) -> None:
    with pytest.raises(ValueError, match="expected to be of type list"):
        TextEcho().generate("a string")
    with pytest.raises(TypeError, match="prompts"):
        TextEcho().generate()
    with pytest.raises(ValueError, match="Invalid input type"):
        list(Echo().stream(3))
    with pytest.raises(TypeError):
        Echo().batch(3)
    with pytest.raises(TypeError, match="input"):
        Shelf().invoke()
    assert Echo().batch([]) == []
    assert TextEcho().generate(prompts=["a", "b"]).generations[1][0].text == "echo: b"


def test_chains_without_a_retriever_or_documents(traces: Any) -> None:
    assert Echo().invoke("only this").text == "echo: only this"
    assert traces.stages("context") == [] and traces.stages("generation")[0].attributes["ragtrace.query"] == "only this"
    traces.clear()
    lcel(retriever=Gives(what=[])).invoke("q")
    assert traces.documents() == [] and traces.stages("context") == []
    traces.clear()
    lcel(retriever=Gives(what=[Document(page_content="")])).invoke("q")
    [context] = traces.stages("context")
    assert json.loads(context.attributes["ragtrace.documents.in_prompt"]) == []


def test_nothing_is_logged_in_a_usual_run(traces: Any, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, logger="ragtrace"):
        for path in PATHS:
            call(path, lcel(), ["q", "r"])
    assert [r for r in caplog.records if r.name.startswith(("ragtrace", "opentelemetry"))] == []


# scores and the candidate pool

TEXTS = [f"document number {i}" for i in range(30)]


class Related(InMemoryVectorStore):
    """The in-memory store with relevance scores, which it lacks."""

    def _select_relevance_score_fn(self) -> Any:
        return lambda similarity: (similarity + 1) / 2


def in_memory() -> Any:
    store = Related(DeterministicFakeEmbedding(size=16))
    store.add_texts(TEXTS)
    return store


def faiss() -> Any:
    from langchain_community.vectorstores import FAISS

    return FAISS.from_texts(TEXTS, DeterministicFakeEmbedding(size=16))


SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("similarity", {}),
    ("similarity_score_threshold", {"score_threshold": -9.0}),
    ("mmr", {"fetch_k": 12}),
]


@pytest.mark.filterwarnings("ignore:Relevance scores must be between")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("search", "more"), SEARCHES)
@pytest.mark.parametrize("make", [in_memory, faiss])
def test_the_stores_scores(traces: Any, make: Any, search: str, more: Any, is_async: bool) -> None:
    """Reference: the store's own scored search."""
    store = make()
    retriever = store.as_retriever(search_type=search, search_kwargs={"k": 3} | more)
    found = asyncio.run(retriever.ainvoke("number 7")) if is_async else retriever.invoke("number 7")
    scored = (
        store.similarity_search_with_relevance_scores if "threshold" in search else store.similarity_search_with_score
    )
    wanted = {d.page_content: float(s) for d, s in scored("number 7", k=12)}
    rows = traces.documents()
    assert [r["content"] for r in rows] == [d.page_content for d in found]
    assert [r["score"] for r in rows] == pytest.approx([wanted[d.page_content] for d in found], rel=1e-5)


def test_scores_in_metadata_or_nowhere(traces: Any) -> None:
    what = [
        Document(page_content="a", metadata={"score": 0.25}),
        Document(page_content="b", metadata={"relevance_score": 0.75}),
        Document(page_content="c"),
    ]
    Gives(what=what).invoke("q")
    assert [r["score"] for r in traces.documents()] == [0.25, 0.75, None]


def test_a_changed_score_goes_back_where_it_was(traces: Any) -> None:
    from dataclasses import replace

    what = [Document(page_content="a", metadata={"relevance_score": 0.75, "x": 1}), Document(page_content="b")]
    with ragtrace.defend(Hooked("retrieval", lambda ds: [replace(d, score=0.5) for d in ds])):
        first, second = Gives(what=what).invoke("q")
    assert first.metadata == {"relevance_score": 0.5, "x": 1} and second is what[1]
    assert traces.effects()[0]["scores_changed"] is True


@pytest.mark.filterwarnings("ignore:Relevance scores must be between")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("search", "more"), SEARCHES)
@pytest.mark.parametrize("on_call", [False, True])
def test_a_retrieval_defense_sees_a_larger_pool(
    traces: Any, search: str, more: Any, is_async: bool, on_call: bool
) -> None:
    given: list[int] = []

    def last_first(documents: Any) -> Any:
        given.append(len(documents))
        return documents[::-1]

    retriever = in_memory().as_retriever(search_type=search, search_kwargs=({} if on_call else {"k": 3}) | more)
    options = {"k": 3} if on_call else {}

    def ask() -> Any:
        return asyncio.run(retriever.ainvoke("q", **options)) if is_async else retriever.invoke("q", **options)

    plain = ask()
    with ragtrace.defend(Hooked("content", lambda ds: ds)):
        assert ask() == plain
    assert len(plain) == 3 and all("ragtrace.retrieval.pool" not in s.attributes for s in traces.spans)
    traces.clear()
    with ragtrace.defend(Hooked("retrieval", last_first)):
        defended = ask()
    assert given == [12] and len(defended) == 3
    [stage] = traces.stages("retrieval")
    assert stage.attributes["ragtrace.retrieval.pool"] == 12
    pool = [r["content"] for r in traces.documents()]
    assert len(pool) == 12 and [d.page_content for d in defended] == pool[::-1][:3]
    assert retriever.search_kwargs.get("k") == (None if on_call else 3)


def test_the_pool_of_a_failing_or_blocking_defense(traces: Any) -> None:
    retriever = in_memory().as_retriever(search_kwargs={"k": 3})
    plain = retriever.invoke("q")
    with ragtrace.defend(Hooked("retrieval", lambda ds: 1 / 0)):
        assert retriever.invoke("q") == plain
    with ragtrace.defend(Hooked("retrieval", lambda ds: 1 / 0, "block")):
        assert retriever.invoke("q") == []


def test_oversample_is_an_option(instrumented: Any) -> None:
    traces = instrumented(oversample=2)
    with ragtrace.defend(Hooked("retrieval", lambda ds: ds)):
        in_memory().as_retriever(search_kwargs={"k": 3}).invoke("q")
    assert len(traces.documents()) == 6


# the context stage

LONG = [
    f"{name} wrote on Monday that {what}, and that nobody in the {place} office should be told before {day}."
    for name, what, place, day in (
        ("Ann", "the northern branch will be sold", "Oslo", "June"),
        ("Bob", "the new contract has a hidden clause", "Lima", "August"),
        ("Eve", "her password is kept under the keyboard", "Cairo", "May"),
    )
]


@pytest.mark.parametrize(
    ("assemble", "wanted"),
    [
        (lambda ts: "\n".join(ts), [(0, True), (1, True), (2, True)]),
        (lambda ts: "\n".join(ts[::-1]), [(2, True), (1, True), (0, True)]),
        (lambda ts: ts[1], [(1, True)]),
        (lambda ts: ts[0] + "\n" + ts[2][:50], [(0, True), (2, False)]),
        (lambda ts: ts[1][-50:] + "\n" + ts[0][20:70], [(1, False), (0, False)]),
        (lambda ts: "nothing of it", []),
    ],
)
@pytest.mark.parametrize("path", ["invoke", "astream"])
def test_what_stands_in_the_prompt(traces: Any, path: str, assemble: Any, wanted: list[Any]) -> None:
    retriever = Gives(what=[Document(page_content=t, id=str(i)) for i, t in enumerate(LONG)])
    call(path, retriever | RunnableLambda(lambda ds: assemble([d.page_content for d in ds])) | Echo(), ["q"])
    [context], [generation], [root] = traces.stages("context"), traces.stages("generation"), traces.roots()
    rows = json.loads(context.attributes["ragtrace.documents.in_prompt"])
    assert [(r["of"], r["whole"]) for r in rows] == wanted
    assert all(r["whole"] or r["content"] == LONG[r["of"]][r["start"] : r["start"] + r["run"]] for r in rows)
    assert context.parent.span_id == generation.parent.span_id == root.context.span_id
    assert context.start_time >= traces.stages("retrieval")[0].start_time


def test_the_context_has_what_the_content_hook_left(traces: Any) -> None:
    from dataclasses import replace

    with ragtrace.defend(Hooked("content", lambda ds: [replace(d, content=d.content.upper()) for d in ds])):
        lcel().invoke("q")
    after = {r["id"]: r["hash"] for r in traces.documents("ragtrace.documents.after_defense")}
    rows = traces.documents("ragtrace.documents.in_prompt")
    assert {r["id"]: r["hash"] for r in rows} == after and all(r["whole"] for r in rows)


@pytest.mark.parametrize("path", STREAMS)
def test_text_models_that_do_not_stream(traces: Any, path: str) -> None:
    with ragtrace.defend(Hooked("prompt", lambda ms: [*ms, ragtrace.Message("user", "more")])):
        assert call(path, FakeListLLM(responses=["one"]), ["q"]) == ["one"]
        assert "".join(call(path, TextEcho(), ["q"])) == "echo: q\n\nmore"


def test_traces_of_two_providers_do_not_mix(instrumented: Any) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumented(tracer_provider=provider)
    lcel().invoke("q")
    assert len(Traces(exporter).roots()) == 1
