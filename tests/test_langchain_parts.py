"""LangChain's own parts: compressors, transformers and re-rankers are observed without being asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import (
    CrossEncoderReranker,
    DocumentCompressorPipeline,
    LLMChainExtractor,
)
from langchain_classic.retrievers.document_compressors.cross_encoder import BaseCrossEncoder
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_text_splitters import CharacterTextSplitter
from pipelines import Echo, Hooked, Shelf, Traces, call, join, lcel
from ragtrace_langchain import LangChainInstrumentor
from store_fixtures import Bench, rows

import ragtrace


class Mask(BaseDocumentCompressor):
    """Writes over a word: in the documents themselves, or in new ones."""

    in_place: bool = True
    word: str = "alpha"

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Any:
        if self.in_place:
            for document in documents:
                document.page_content = document.page_content.replace(self.word, "[word]")
            return documents
        return [Document(page_content=d.page_content.replace(self.word, "[word]")) for d in documents]


class Top(BaseDocumentCompressor):
    n: int = 1

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Any:
        return list(documents)[: self.n]


class Stub(BaseDocumentCompressor):
    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Any:
        return documents


class Broken(BaseDocumentCompressor):
    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Any:
        raise OSError("the compressor is out")


class Untagged(BaseDocumentTransformer):
    """Takes the author out of the metadata, in place."""

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Any:
        for document in documents:
            document.metadata.pop("score", None)
        return documents


class Length(BaseCrossEncoder):
    def score(self, text_pairs: Any) -> list[float]:
        return [float("beta" in text) for _, text in text_pairs]


def compressing(compressor: Any, **kwargs: Any) -> Any:
    return ContextualCompressionRetriever(base_compressor=compressor, base_retriever=Shelf(**kwargs))


def ask(retriever: Any, path: str) -> list[str]:
    return [d.page_content for d in call(path, retriever, ["q"])[0]]


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_compressor_that_edits_text(chains: Bench, path: str, in_place: bool) -> None:
    assert ask(compressing(Mask(in_place=in_place)), path) == ["[word] for q", "beta for q"]
    with chains.open() as db:
        [effect] = rows(db, "SELECT * FROM effects")
        assert (effect["defense"], effect["hook"], effect["status"], effect["text_changed"]) == (
            "Mask", "content", "changed", True
        )  # fmt: skip
        assert (effect["ids_changed"], effect["order_changed"], effect["path"]) == (False, False, path)
        told = "SELECT phase, document_id, content FROM documents JOIN stages USING (span_id) WHERE {} ORDER BY ALL"
        raw = [("retrieved", "alpha", "alpha for q"), ("retrieved", "beta", "beta for q")]
        after = [("after_defense", "alpha", "[word] for q"), ("after_defense", "beta", "beta for q")]
        assert db.execute(told.format("NOT nested")).fetchall() == after + raw
        assert db.execute(told.format("nested")).fetchall() == raw


def test_what_a_part_changes_names_its_hook(traces: Traces) -> None:
    cases: list[tuple[Any, str | None, str]] = [
        (Top(), "retrieval", "changed"),
        (Top(n=2), None, "unchanged"),
        (Stub(), None, "unchanged"),
        (CrossEncoderReranker(model=Length(), top_n=2), "retrieval", "changed"),
        (DocumentCompressorPipeline(transformers=[Untagged()]), "content", "changed"),
    ]
    for compressor, hook, status in cases:
        traces.clear()
        ask(compressing(compressor), "invoke")
        [effect] = traces.effects()
        assert (effect.get("hook"), effect["status"]) == (hook, status), compressor


def test_an_idle_part_is_named_by_what_it_does_elsewhere(chains: Bench) -> None:
    for n in (2, 2, 1):
        ask(compressing(Top(n=n)), "invoke")
    ask(compressing(Stub()), "invoke")
    with chains.open() as db:
        found = "SELECT defense, hook, status, count(*) FROM effects GROUP BY ALL ORDER BY ALL"
        assert db.execute(found).fetchall() == [
            ("Stub", "content", "unchanged", 1),
            ("Top", "retrieval", "changed", 1),
            ("Top", "retrieval", "unchanged", 2),
        ]
        verdicts = dict(db.execute("SELECT defense, verdict FROM verdicts").fetchall())
        assert verdicts == {"Stub": "dormant", "Top": "active"}


def test_a_pipeline_of_parts_is_its_parts(traces: Traces) -> None:
    pipeline = DocumentCompressorPipeline(transformers=[Mask(), Top(n=1)])
    assert ask(compressing(pipeline), "invoke") == ["[word] for q"]
    assert [(e["defense"], e["hook"]) for e in traces.effects()] == [("Mask", "content"), ("Top", "retrieval")]


def test_a_part_that_fails_fails_the_app_as_before(traces: Traces) -> None:
    with pytest.raises(OSError, match="the compressor is out"):
        compressing(Broken()).invoke("q")
    [effect] = traces.effects()
    assert (effect["defense"], effect["status"], effect["error"]) == ("Broken", "error", "OSError")


def test_a_part_outside_any_retriever(chains: Bench) -> None:
    """In a chain of the app's own: the prompt holds what the part left, and the trace says so."""
    mask = Mask(in_place=False)
    inputs = {
        "context": Shelf() | RunnableLambda(lambda ds: mask.compress_documents(ds, "q")) | RunnableLambda(join),
        "question": RunnablePassthrough(),
    }
    chain = RunnablePassthrough() | inputs | RunnableLambda(lambda d: f"{d['context']} {d['question']}") | Echo()
    assert chain.invoke("q").text == "echo: [word] for q | beta for q q"
    with chains.open() as db:
        found = "SELECT phase, content FROM documents ORDER BY phase, rank"
        assert db.execute(found).fetchall() == [
            ("after_defense", "[word] for q"),
            ("after_defense", "beta for q"),
            ("in_prompt", "[word] for q"),
            ("in_prompt", "beta for q"),
            ("retrieved", "alpha for q"),
            ("retrieved", "beta for q"),
        ]


def test_a_declared_part_that_is_not_on_one_path_of_two(chains: Bench) -> None:
    ragtrace.declare("Mask", hooks=["content"])
    lcel(retriever=compressing(Mask())).invoke("q")
    lcel().invoke("q")
    with chains.open() as db:
        assert db.execute("SELECT hook, ran FROM coverage ORDER BY ran").fetchall() == [
            ("content", False),
            ("content", True),
        ]
        assert db.execute("SELECT verdict FROM verdicts").fetchall() == [("bypassed",)]


def test_beside_a_defense_of_ours(traces: Traces) -> None:
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
        assert ask(compressing(Mask()), "invoke") == ["[word] for q"]
    assert [(e["defense"], e["hook"]) for e in traces.effects()] == [("Mask", "content"), ("hooked", "content")]
    assert [d["content"] for d in traces.documents("ragtrace.documents.after_defense")] == ["[word] for q"]


def test_a_part_that_asks_a_model(traces: Traces) -> None:
    """The extractor's own call of a model crosses no hook of the pipeline."""
    extractor = LLMChainExtractor.from_llm(Echo())
    with ragtrace.defend(Hooked("prompt", lambda ms: ms[:0])):
        assert len(ask(compressing(extractor), "invoke")) == 2
    assert [s.attributes.get("ragtrace.nested") for s in traces.stages("generation")] == [True, True]
    assert [(e["defense"], e["hook"], e["status"]) for e in traces.effects()] == [
        ("LLMChainExtractor", "content", "changed")
    ]


def test_cutting_texts_for_an_index_is_no_defense(traces: Traces) -> None:
    splitter = CharacterTextSplitter(separator=" ", chunk_size=5, chunk_overlap=0)
    chain = Shelf() | RunnableLambda(splitter.transform_documents)
    assert len(chain.invoke("q")) > 2
    assert traces.effects() == []


def test_outside_any_request(chains: Bench) -> None:
    """A script that calls retriever and part by hand: the part's effect joins the retriever's trace."""
    Mask().compress_documents(Shelf().invoke("q"), "q")
    asyncio.run(Top().acompress_documents([Document(page_content="x"), Document(page_content="y")], "q"))
    with chains.open() as db:
        found = "SELECT defense, hook, trace_id IN (SELECT trace_id FROM stages) FROM effects ORDER BY 1"
        assert db.execute(found).fetchall() == [("Mask", "content", True), ("Top", "retrieval", True)]


@pytest.mark.parametrize("given", [None, "text", [1, 2]])
def test_odd_documents_are_the_parts_own_business(traces: Traces, given: Any) -> None:
    assert Stub().compress_documents(given, "q") is given
    assert RunnableLambda(lambda _: Stub().compress_documents(given, "q")).invoke("q") is given


def test_classes_of_later_and_the_end(instrumented: Any) -> None:
    traces = instrumented()

    class Late(Stub):
        def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
            return super().compress_documents(documents, query, callbacks)

    class Later(Late):
        pass

    own = vars(Late)["compress_documents"].__wrapped__
    for kind in (Late, Later):
        traces.clear()
        ask(compressing(kind()), "ainvoke")
        assert [e["defense"] for e in traces.effects()] == [kind.__name__]
    LangChainInstrumentor().uninstrument()
    assert vars(Late)["compress_documents"] is own
    assert "__init_subclass__" not in vars(BaseDocumentTransformer)
