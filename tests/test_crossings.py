"""Which crossings an observed defense met: judged by what it was shown, beside what really crossed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from pipelines import STREAMS, Echo, Shelf, call, join, lcel
from store_fixtures import Bench

import ragtrace
from ragtrace.record.crossings import Crossing, met_behind
from ragtrace.record.pictures import Documents
from ragtrace.types import Document


def observed(hook: Any, act: Any) -> Any:
    return ragtrace.observe(hook=hook, name="house")(act)


def ran(chains: Bench) -> list[tuple[str, bool]]:
    with chains.open() as db:
        return db.execute("SELECT query, ran FROM coverage JOIN stages USING (span_id) ORDER BY ALL").fetchall()


def test_a_query_that_was_cleaned_for_one_retriever_only(chains: Bench) -> None:
    clean = observed("query", str.upper)

    def ask(q: str) -> str:
        return join(Shelf().invoke(clean(q))) + join(Shelf().invoke(q))

    RunnableLambda(ask).invoke("q")
    assert ran(chains) == [("Q", True), ("q", False)]


def test_a_change_that_is_thrown_away_did_not_run(chains: Bench) -> None:
    clean = observed("query", str.upper)

    def ask(q: str) -> Any:
        clean(q)
        return Shelf().invoke(q)

    RunnableLambda(ask).invoke("q")
    assert ran(chains) == [("q", False)]


def test_a_query_derived_from_the_cleaned_one(chains: Bench) -> None:
    clean = observed("query", str.strip)
    (RunnableLambda(clean) | RunnableLambda(lambda q: q[::-1]) | Shelf()).invoke(" abc ")
    assert ran(chains) == [("cba", True)]


def test_a_prompt_of_messages_and_of_text(chains: Bench) -> None:
    def shorten(messages: list[Any]) -> list[Any]:
        return messages[-1:]

    chain = RunnableLambda(lambda q: [("system", "s"), ("user", q)]) | RunnableLambda(
        lambda pairs: [Echo()._convert_input(pairs).to_messages()][0]
    )
    (chain | observed("prompt", shorten) | Echo()).invoke("q")
    (chain | Echo()).invoke("q")
    with chains.open() as db:
        found = db.execute("SELECT prompt, ran FROM coverage JOIN generations USING (span_id) ORDER BY ran").fetchall()
    assert found == [("s\n\nq", False), ("q", True)]


@pytest.mark.parametrize("path", ["invoke", *STREAMS])
def test_two_answers_joined_and_masked_once(chains: Bench, path: str) -> None:
    mask = observed("response", lambda text: text.replace("echo", "****"))
    two = RunnableParallel(a=lcel(), b=lcel(retriever=Shelf(words=["x"])))
    call(path, two | RunnableLambda(lambda d: d["a"] + d["b"]) | mask, ["q"])
    with chains.open() as db:
        assert db.execute("SELECT ran FROM coverage").fetchall() == [(True,), (True,)]


@pytest.mark.parametrize("path", STREAMS)
def test_a_side_branch_masks_what_streams_away_beside_it(chains: Bench, path: str) -> None:
    mask = observed("response", lambda text: text.replace("echo", "****"))
    chunks = call(path, RunnableParallel(raw=lcel()) | RunnablePassthrough.assign(safe=lambda d: mask(d["raw"])), ["q"])
    assert any("echo" in str(c) for c in chunks)
    with chains.open() as db:
        late = db.execute("SELECT late FROM effects").fetchall()
        covered = db.execute("SELECT ran FROM coverage").fetchall()
    assert (late, covered) == ([(True,)], [(False,)])


def test_one_of_two_retrievers_is_masked(chains: Bench) -> None:
    def mask(documents: list[Any]) -> list[Any]:
        return [d.model_copy(update={"page_content": "[gone]", "id": None}) for d in documents]

    hidden = Shelf(words=["a"]) | RunnableLambda(observed("content", mask))
    RunnableParallel(x=hidden, y=Shelf(words=["b"])).invoke("q")
    with chains.open() as db:
        found = """SELECT d.document_id, c.ran FROM coverage c JOIN documents d USING (span_id) WHERE hook = 'content'
                   ORDER BY ALL"""
        assert db.execute(found).fetchall() == [("a", True), ("b", False)]


def test_a_model_that_failed_gave_no_answer_to_mask(chains: Bench) -> None:
    observed("response", str.upper)
    with pytest.raises(OSError):
        lcel(Echo(fail_at=0)).invoke("q")
    with chains.open() as db:
        assert db.execute("SELECT * FROM coverage").fetchall() == []


def test_a_stream_that_failed_midway_gave_a_part_of_one(chains: Bench) -> None:
    observed("response", str.upper)
    with pytest.raises(OSError):
        list(lcel(Echo(fail_at=2)).stream("q"))
    with chains.open() as db:
        assert db.execute("SELECT hook, ran FROM coverage").fetchall() == [("response", False)]


answers = st.lists(st.text(alphabet="ab ", max_size=4), max_size=4)


@given(answers, st.text(alphabet="ab ", max_size=8))
def test_an_answer_is_met_by_what_was_shown_it(texts: list[str], shown: str) -> None:
    crossings = []
    for place, text in enumerate(texts):
        crossing = Crossing("generation", str(place))
        crossing.answer = text
        crossings.append(crossing)
    met = met_behind(crossings, "response", shown)
    for crossing in crossings:
        if crossing.answer and crossing.answer in shown:
            assert crossing.span_id in met
    assert bool(met) == bool(texts)
    assert len(met) == len(set(met))


def test_documents_are_met_by_id_or_by_text() -> None:
    crossings = []
    for place, id in enumerate("ab"):
        crossing = Crossing("retrieval", str(place))
        crossing.documents = [Document(f"text of {id}", id)]
        crossings.append(crossing)
    assert met_behind(crossings, "content", Documents([Document("other", "b")])) == ["1"]
    assert met_behind(crossings, "content", Documents(["all: text of a, text of b"])) == ["0", "1"]
    assert met_behind(crossings, "content", Documents(["neither"])) == ["1"]
    assert met_behind([], "content", Documents(["neither"])) == []
