"""The controls of membership attacks are exact: what is retrieved is what an index with or without the target gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_pipelines import instrumented as _llama  # noqa: F401 (a fixture)
from membership_audit import Bag, documents

import ragtrace
from ragtrace.controls import CONTROLS, REFERENCE, NoRetrieval, WithoutTarget, WithTarget
from ragtrace.record.scope import probing
from ragtrace.types import Document, Probe

K = 4
DOCUMENTS = documents(14, 3)
OUTSIDER = documents(15, 3)[14]


pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")


class Untied(Bag):
    """No two documents are equally near to a query: an index says nothing of the order of those that are."""

    def embed_query(self, text: str) -> list[float]:
        rng = random.Random(text)
        return [x + rng.uniform(-0.01, 0.01) for x in super().embed_query(text)]


class LlamaBag(BaseEmbedding):
    """The same vectors for LlamaIndex."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return Untied().embed_query(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return Untied().embed_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return Untied().embed_query(query)


def _langchain(held: list[Document], k: int = K) -> Callable[[str], list[tuple[str, str]]]:
    index = InMemoryVectorStore(Untied())
    index.add_texts([d.content for d in held], ids=[d.id for d in held])
    retriever = index.as_retriever(search_kwargs={"k": k})
    return lambda query: [(str(d.id), d.page_content) for d in retriever.invoke(query)]


def _llama_index(held: list[Document], k: int = K) -> Callable[[str], list[tuple[str, str]]]:
    nodes = [TextNode(text=d.content, id_=d.id) for d in held]
    index = VectorStoreIndex(nodes, embed_model=LlamaBag())
    retriever = index.as_retriever(similarity_top_k=k)
    return lambda query: [(n.node.node_id, n.node.get_content()) for n in retriever.retrieve(query)]


@pytest.fixture(params=["langchain", "llama_index"])
def index(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """An index over documents, of an instrumented framework: (documents, k) → query → (id, text) of what is found."""
    name = "instrumented" if request.param == "langchain" else "llama_instrumented"
    request.getfixturevalue(name)()
    return _langchain if request.param == "langchain" else _llama_index


def _queries(target: Document) -> list[str]:
    words = target.content.split()
    rng = random.Random(target.id)
    return [target.content, " ".join(words[:9]), " ".join(rng.sample(words, 5)), "the report of coins"]


def _asked(retrieve: Any, query: str, target: Document, *defenses: Any) -> Any:
    probe = Probe("p", "a", query, target_id=target.id, target_text=target.content, is_member=True)
    with ragtrace.defend(*defenses), probing("run", "arm", probe):
        return retrieve(query)


def test_without_the_target_it_is_the_index_built_without_it(index: Any) -> None:
    retrieve, found = index(DOCUMENTS), 0
    for target in DOCUMENTS:
        rest = index([d for d in DOCUMENTS if d.id != target.id])
        for query in _queries(target):
            found += (target.id, target.content) in retrieve(query)
            got = _asked(retrieve, query, target, WithoutTarget())
            assert got == rest(query) and len(got) == K
    assert found > 2 * len(DOCUMENTS), "the target must have been there to be taken away"


def test_with_the_target_it_is_first_and_the_others_are_the_indexs(index: Any) -> None:
    retrieve = index(DOCUMENTS)
    for target in (*DOCUMENTS, OUTSIDER):
        rest = index([d for d in DOCUMENTS if d.id != target.id], K - 1)
        for query in _queries(target):
            got = _asked(retrieve, query, target, WithTarget())
            assert [text for _, text in got] == [target.content, *(text for _, text in rest(query))]
    # a target that is nearest is where the index itself puts it
    assert _asked(retrieve, DOCUMENTS[0].content, DOCUMENTS[0], WithTarget()) == retrieve(DOCUMENTS[0].content)


def test_a_target_is_known_by_its_text_where_ids_are_others(index: Any) -> None:
    target = Document(DOCUMENTS[0].content, "another id")
    got = _asked(index(DOCUMENTS), target.content, target, WithoutTarget())
    assert got == index(DOCUMENTS[1:])(target.content)
    got = _asked(index(DOCUMENTS), target.content, target, WithTarget())
    assert got == index(DOCUMENTS)(target.content)


def test_a_target_is_known_by_its_id_where_the_index_holds_another_form_of_its_text(index: Any) -> None:
    target = Document(f"  {DOCUMENTS[0].content}", DOCUMENTS[0].id)
    got = _asked(index(DOCUMENTS), target.content, target, WithoutTarget())
    assert got == index(DOCUMENTS[1:])(target.content)


def test_without_retrieval_nothing_is_found_and_the_query_goes_on(index: Any) -> None:
    assert _asked(index(DOCUMENTS), DOCUMENTS[0].content, DOCUMENTS[0], NoRetrieval()) == []


def test_outside_a_probe_the_controls_of_the_target_do_nothing(index: Any) -> None:
    retrieve = index(DOCUMENTS)
    query = DOCUMENTS[0].content
    with ragtrace.defend(WithoutTarget(), WithTarget()):
        assert retrieve(query) == index(DOCUMENTS)(query)
    with ragtrace.defend(WithTarget()), probing("run", "arm", Probe("p", "benign", query)):
        assert retrieve(query) == index(DOCUMENTS)(query)


def test_without_a_larger_pool_there_is_one_document_less(instrumented: Any) -> None:
    instrumented(oversample=1)
    target = DOCUMENTS[0]
    got = _asked(_langchain(DOCUMENTS), target.content, target, WithoutTarget())
    assert got == _langchain(DOCUMENTS)(target.content)[1:] and len(got) == K - 1


def test_an_index_that_holds_the_target_alone(index: Any) -> None:
    [target, *_] = DOCUMENTS
    retrieve = index([target])
    assert _asked(retrieve, target.content, target, WithoutTarget()) == []
    assert _asked(retrieve, target.content, target, WithTarget()) == [(target.id, target.content)]
    assert [text for _, text in _asked(retrieve, "x", OUTSIDER, WithTarget())] == [OUTSIDER.content]


def test_the_arms_by_name() -> None:
    assert [(arm.name, arm.defenses[0].name) for arm in CONTROLS] == [("no_retrieval",) * 2, ("without_target",) * 2]
    assert [(arm.name, arm.defenses[0].name) for arm in REFERENCE] == [("with_target",) * 2, ("without_target",) * 2]
