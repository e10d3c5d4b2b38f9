"""LlamaIndex's own parts: node postprocessors and query transforms are observed without being asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.indices.query.query_transform.base import (
    BaseQueryTransform,
    HyDEQueryTransform,
    IdentityQueryTransform,
)
from llama_index.core.postprocessor import (
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PIINodePostprocessor,
    SimilarityPostprocessor,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine, TransformQueryEngine
from llama_index.core.response_synthesizers import TreeSummarize
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode
from llama_pipelines import (
    CHAT,
    PATHS,
    QUERY,
    STREAMS,
    ChatEcho,
    Echo,
    Gives,
    Shelf,
    call,
    instrumented,  # noqa: F401
    memory,
    query_engine,
    recorded,  # noqa: F401
)
from pipelines import Hooked
from ragtrace_llama_index import LlamaIndexInstrumentor
from store_fixtures import Bench, rows

import ragtrace


class Mask(BaseNodePostprocessor):
    """Writes over a word: in the nodes themselves, or in new ones."""

    in_place: bool = True

    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        if not self.in_place:
            nodes = [NodeWithScore(node=n.node.model_copy(), score=n.score) for n in nodes]
        for found in nodes:
            found.node.set_content(found.node.get_content().replace("alpha", "[word]"))
        return nodes


class Top(BaseNodePostprocessor):
    n: int = 1

    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return nodes[: self.n]


class Broken(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        raise OSError("the part is out")


class Loud(BaseQueryTransform):
    """Asks in capitals."""

    def _get_prompts(self) -> Any:
        return {}

    def _update_prompts(self, prompts: Any) -> None: ...

    def _run(self, query_bundle: QueryBundle, metadata: Any) -> QueryBundle:
        if query_bundle.query_str == "bad":
            raise OSError("the transform is out")
        return QueryBundle(query_bundle.query_str.upper())


def engine(*parts: Any, retriever: Any = None, **options: Any) -> Any:
    synthesizer = query_engine(**options)._response_synthesizer
    return RetrieverQueryEngine(retriever or Shelf(), synthesizer, node_postprocessors=list(parts))


def met(traces: Any) -> list[Any]:
    return [(e["defense"], e.get("hook"), e["status"]) for e in traces.effects()]


@pytest.fixture
def nodes(llama_instrumented: Callable[..., Any], tmp_path: Path) -> Iterator[Bench]:
    """LlamaIndex, recorded into a store."""
    bench = Bench(tmp_path / "t.duckdb")
    llama_instrumented(tracer_provider=bench.provider)
    yield bench


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_postprocessor_that_edits_text(nodes: Bench, path: str, in_place: bool) -> None:
    """A sync one on an async path runs in a thread: still once, and in the same trace."""
    pipeline = engine(Mask(in_place=in_place), streaming=path in STREAMS)
    said = "".join(map(str, call(path, QUERY, pipeline, ["q"])))
    assert "[word] for q" in said and "alpha" not in said
    with nodes.open() as db:
        [effect] = rows(db, "SELECT * FROM effects")
        assert (effect["defense"], effect["hook"], effect["status"], effect["text_changed"]) == (
            "Mask", "content", "changed", True
        )  # fmt: skip
        assert (effect["ids_changed"], effect["order_changed"], effect["path"]) == (False, False, path)
        found = "SELECT phase, document_id, content FROM documents ORDER BY phase, rank"
        assert db.execute(found).fetchall() == [
            ("after_defense", "alpha", "[word] for q"),
            ("after_defense", "beta", "beta for q"),
            ("in_prompt", "alpha", "[word] for q"),
            ("in_prompt", "beta", "beta for q"),
            ("retrieved", "alpha", "alpha for q"),
            ("retrieved", "beta", "beta for q"),
        ]


@pytest.mark.parametrize("path", ["invoke", "ainvoke", *STREAMS])
def test_in_a_chat_engine(llama_traces: Any, path: str) -> None:
    from llama_index.core.chat_engine import ContextChatEngine

    parts = [Mask(), Top()]
    chat = ContextChatEngine.from_defaults(Shelf(), llm=ChatEcho(), memory=memory(), node_postprocessors=parts)
    assert "beta" not in "".join(map(str, call(path, CHAT, chat, ["q"])))
    assert met(llama_traces) == [("Mask", "content", "changed"), ("Top", "retrieval", "changed")]


def test_what_a_part_changes_names_its_hook(llama_traces: Any) -> None:
    class Ranks(Echo):
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return CompletionResponse(text="Doc: 2, Relevance: 9")

    class Hides(Echo):
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return CompletionResponse(text='hidden\nOutput Mapping:\n{"[NAME]": "alpha"}')

    window = [NodeWithScore(node=TextNode(text=t, metadata={"window": f"all of {t}"}), score=0.5) for t in "ab"]
    cases: list[tuple[Any, Any, str | None, str]] = [
        (SimilarityPostprocessor(similarity_cutoff=0.9), Shelf(), "retrieval", "changed"),
        (SimilarityPostprocessor(similarity_cutoff=0.1), Shelf(), None, "unchanged"),
        (LongContextReorder(), Shelf(("a", "b", "c")), "retrieval", "changed"),
        (MetadataReplacementPostProcessor(target_metadata_key="window"), Gives(window), "content", "changed"),
        (PIINodePostprocessor(llm=Hides()), Shelf(), "content", "changed"),
        (LLMRerank(llm=Ranks(), top_n=1), Shelf(), "retrieval", "changed"),
    ]
    for part, retriever, hook, status in cases:
        for path in ("invoke", "ainvoke"):
            llama_traces.clear()
            call(path, QUERY, engine(part, retriever=retriever), ["q"])
            if path == "invoke" or not isinstance(part, MetadataReplacementPostProcessor):  # it has edited its own
                assert met(llama_traces) == [(type(part).__name__, hook, status)], (part, path)
            inner = [s for s in llama_traces.stages("generation") if s.attributes.get("ragtrace.nested")]
            assert bool(inner) is isinstance(part, PIINodePostprocessor | LLMRerank)


def test_nodes_of_all_kinds_are_read(llama_traces: Any) -> None:
    """The picture before and after is made of the text that retrieval shows."""
    given = [NodeWithScore(node=Document(text="alpha", id_="1"), score=0.5)]
    engine(Mask(), retriever=Gives(given)).query("q")
    [effect] = llama_traces.effects()
    assert (effect["status"], effect["chars_before"], effect["chars_after"]) == ("changed", 5, 6)


def test_beside_a_defense_of_ours(llama_traces: Any) -> None:
    with ragtrace.defend(Hooked("content", lambda ds: ds[:1])):
        assert "[word] for q" in str(engine(Mask()).query("q"))
    assert met(llama_traces) == [("hooked", "content", "changed"), ("Mask", "content", "changed")]
    rows_of = [json.loads(s.attributes["ragtrace.documents.in_prompt"]) for s in llama_traces.stages("context")]
    assert [(r["id"], r["whole"]) for r in rows_of[0]] == [("alpha", True)]


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_a_part_that_fails_fails_the_app_as_before(llama_traces: Any, path: str) -> None:
    with pytest.raises(OSError, match="the part is out"):
        call(path, QUERY, engine(Broken()), ["q"])
    assert [(e["defense"], e["status"], e["error"]) for e in llama_traces.effects()] == [("Broken", "error", "OSError")]
    with pytest.raises(OSError, match="the transform is out"):
        call(path, QUERY, TransformQueryEngine(engine(), Loud()), ["bad"])
    assert [(e["defense"], e["status"], e["error"]) for e in llama_traces.effects()][1:] == [
        ("Loud", "error", "OSError")
    ]


def test_parts_may_do_wrong_with_nodes_as_before(llama_traces: Any) -> None:
    class Stub(BaseNodePostprocessor):
        gives: Any = None

        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return nodes if self.gives is None else self.gives

    for odd in (None, "text", [1, 2], ()):
        assert Stub().postprocess_nodes(odd) is odd
        assert asyncio.run(Stub().apostprocess_nodes(odd)) is odd  # type: ignore[arg-type]
    for odd in ("text", [1, 2], 3):
        assert Stub(gives=odd).postprocess_nodes([]) is odd or odd == [1, 2]
    with pytest.raises(ValueError, match="Cannot specify both"):
        Top().postprocess_nodes([], query_bundle=QueryBundle("q"), query_str="q")
    with pytest.raises(TypeError):
        Top().postprocess_nodes()  # type: ignore[call-arg]
    assert llama_traces.roots() == []


def test_declared_parts_that_are_not_on_the_way(nodes: Bench) -> None:
    ragtrace.declare("Mask", hooks=["content"])
    engine(Mask()).query("q")
    engine().query("q")
    with nodes.open() as db:
        assert db.execute("SELECT hook, ran FROM coverage ORDER BY ran").fetchall() == [
            ("content", False),
            ("content", True),
        ]
        assert db.execute("SELECT verdict FROM verdicts").fetchall() == [("bypassed",)]


def test_outside_any_request(nodes: Bench) -> None:
    found = Shelf().retrieve("q")
    Mask().postprocess_nodes(found)
    asyncio.run(Top().apostprocess_nodes(Shelf().retrieve("q")))
    with nodes.open() as db:
        told = "SELECT defense, hook, trace_id IN (SELECT trace_id FROM stages) FROM effects ORDER BY 1"
        assert db.execute(told).fetchall() == [("Mask", "content", True), ("Top", "retrieval", True)]


@pytest.mark.parametrize("path", ["invoke", "ainvoke"])
def test_query_transforms(llama_traces: Any, path: str) -> None:
    class Louder(Loud):
        def run(self, query_bundle_or_str: Any, metadata: Any = None) -> QueryBundle:
            return super().run(query_bundle_or_str, metadata)

    cases = [
        (Loud(), "changed", "alpha for Q"),
        (Louder(), "changed", "alpha for Q"),
        (IdentityQueryTransform(), "unchanged", "alpha for q"),
        (HyDEQueryTransform(llm=Echo()), "changed", "alpha for q"),
    ]
    for transform, status, sign in cases:
        llama_traces.clear()
        assert sign in "".join(map(str, call(path, QUERY, TransformQueryEngine(engine(), transform), ["q"])))
        assert met(llama_traces) == [(type(transform).__name__, "query", status)]
        assert len(llama_traces.roots()) == 1


def test_a_transform_counts_for_the_retrieval_that_it_went_into(nodes: Bench) -> None:
    ragtrace.declare("Loud", hooks=["query"])
    TransformQueryEngine(engine(), Loud()).query("q")
    engine().query("q")
    with nodes.open() as db:
        assert db.execute("SELECT hook, ran FROM coverage ORDER BY ran").fetchall() == [
            ("query", False),
            ("query", True),
        ]


def test_classes_of_later_and_the_end(llama_instrumented: Any) -> None:
    traces = llama_instrumented()

    class Late(Top):
        def postprocess_nodes(self, nodes: Any, query_bundle: Any = None, query_str: Any = None) -> Any:
            return super().postprocess_nodes(nodes, query_bundle, query_str)

    class Later(Late):
        async def _apostprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return self._postprocess_nodes(nodes, query_bundle)

    own = vars(Late)["postprocess_nodes"].__wrapped__
    for kind in (Late, Later):
        for path in ("invoke", "ainvoke"):
            traces.clear()
            call(path, QUERY, engine(kind()), ["q"])
            assert [e["defense"] for e in traces.effects()] == [kind.__name__]
    LlamaIndexInstrumentor().uninstrument()
    assert vars(Late)["postprocess_nodes"] is own
    traces.clear()
    engine(Later()).query("q")
    assert traces.spans == []


def test_a_summarizer_with_parts_keeps_its_answer(llama_instrumented: Any) -> None:
    make: Callable[[], Any] = lambda: RetrieverQueryEngine(  # noqa: E731
        Shelf(), TreeSummarize(llm=ChatEcho()), node_postprocessors=[Mask(), LongContextReorder()]
    )
    expected = str(make().query("q"))
    llama_instrumented()
    assert str(make().query("q")) == expected
