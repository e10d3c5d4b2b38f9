"""The same probe with and without a defense: what came out otherwise, and at which hook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document as LCDocument
from langchain_core.retrievers import BaseRetriever
from llama_pipelines import query_engine
from pipelines import Echo, Shelf, lcel
from ragtrace_langchain import LangChainInstrumentor
from ragtrace_llama_index import LlamaIndexInstrumentor
from runs import Run
from store_fixtures import Bench

import ragtrace
from ragtrace.record.scope import probing
from ragtrace.types import HOOKS, Document, Message, Probe


class Query(ragtrace.Defense):
    def on_query(self, query: str) -> str:
        return query.replace("why", "who")  # of the same length


class Order(ragtrace.Defense):
    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        return documents[::-1]


class Content(ragtrace.Defense):
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return [Document(d.content.replace("alpha", "*****"), d.id, d.score, d.metadata) for d in documents]


class Drop(ragtrace.Defense):
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return documents[1:]


class Prompt(ragtrace.Defense):
    def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [Message(m.role, m.content.replace("alpha", "omega")) for m in messages]  # of the same length


class Answer(ragtrace.Defense):
    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return response.replace("echo", "ECHO")


class Nothing(ragtrace.Defense):
    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return response


@contextmanager
def recorded(bench: Bench, capture: str) -> Iterator[None]:
    LangChainInstrumentor().instrument(tracer_provider=bench.provider, capture=capture)
    try:
        yield
    finally:
        LangChainInstrumentor().uninstrument()


def ask(arm: str, *defenses: ragtrace.Defense, probe: str = "p", chain: Any = None) -> None:
    with probing("r", arm, Probe(probe, "benign", "why")), ragtrace.defend(*defenses):
        (chain or lcel()).invoke("why")


def paired(db: duckdb.DuckDBPyConnection, arm: str = "on", probe: str = "p") -> dict[str, tuple[str, str | None]]:
    found = db.execute(
        "SELECT channel, how, origin, changed FROM paired WHERE arm = ? AND probe_id = ?", [arm, probe]
    ).fetchall()
    for _, how, _, changed in found:
        assert changed is {"same": False, "no data": None}.get(how, True)
    assert len(found) == len({row[0] for row in found})
    return {channel: (how, origin) for channel, how, origin, _ in found}


SAME = ("same", None)
# By hand, for a model that says its prompt again: what each defense changes, and what only follows from it. The
# documents' texts name the query, so another query finds the same ids with other texts.
EXPECTED = {
    "Query": [("direct", "query"), SAME, *[("through", "query")] * 3],
    "Order": [SAME, ("direct", "retrieval"), SAME, *[("through", "retrieval")] * 2],
    "Content": [SAME, SAME, ("direct", "content"), *[("through", "content")] * 2],
    "Drop": [SAME, ("direct", "content"), ("direct", "content"), *[("through", "content")] * 2],
    "Prompt": [SAME, SAME, SAME, ("direct", "prompt"), ("through", "prompt")],
    "Answer": [SAME, SAME, SAME, SAME, ("direct", "response")],
    "Nothing": [SAME] * 5,
}


@pytest.mark.parametrize("capture", ["full", "masked", "digest"])
@pytest.mark.parametrize("defense", [Query, Order, Content, Drop, Prompt, Answer, Nothing])
def test_each_hook_directly_and_what_follows_from_it(
    bench: Bench, defense: type[ragtrace.Defense], capture: str
) -> None:
    with recorded(bench, capture):
        ask("none")
        ask("on", defense())
    with bench.open() as db:
        assert paired(db) == dict(zip(HOOKS, EXPECTED[defense.__name__], strict=True))


@pytest.mark.parametrize("defense", [Query, Order, Content, Drop, Prompt, Answer, Nothing])
def test_the_same_in_llama_index(bench: Bench, defense: type[ragtrace.Defense]) -> None:
    engine = query_engine()
    LlamaIndexInstrumentor().instrument(tracer_provider=bench.provider, capture="digest")
    try:
        for arm, defenses in (("none", ()), ("on", (defense(),))):
            with probing("r", arm, Probe("p", "benign", "why")), ragtrace.defend(*defenses):
                engine.query("why")
    finally:
        LlamaIndexInstrumentor().uninstrument()
    with bench.open() as db:
        assert paired(db) == dict(zip(HOOKS, EXPECTED[defense.__name__], strict=True))


@pytest.mark.parametrize("defense", [Content, Answer, Nothing])
def test_the_same_on_a_stream(bench: Bench, defense: type[ragtrace.Defense]) -> None:
    with recorded(bench, "full"):
        for arm, defenses in (("none", ()), ("on", (defense(),))):
            with probing("r", arm, Probe("p", "benign", "why")), ragtrace.defend(*defenses):
                assert list(lcel().stream("why"))
    with bench.open() as db:
        assert paired(db) == dict(zip(HOOKS, EXPECTED[defense.__name__], strict=True))


def test_several_hooks_of_one_arm(bench: Bench) -> None:
    with recorded(bench, "full"):
        ask("none")
        ask("on", Content(), Answer())
    with bench.open() as db:
        assert paired(db) == {
            "query": SAME, "retrieval": SAME, "content": ("direct", "content"), "prompt": ("through", "content"),
            "response": ("direct", "content"),
        }  # fmt: skip


def test_where_nothing_is_kept_there_is_no_data(bench: Bench) -> None:
    """But for ids, which are no text."""
    with recorded(bench, "none"):
        ask("none")
        ask("on", Order(), Answer())
    with bench.open() as db:
        found = paired(db)
    assert found.pop("retrieval") == ("direct", "retrieval")
    assert set(found.values()) == {("no data", None)} and len(found) == 4


def test_a_request_without_a_twin_or_without_an_answer_is_no_data(bench: Bench) -> None:
    with recorded(bench, "full"):
        ask("none", probe="failed")
        with pytest.raises(OSError, match="out"):
            ask("on", probe="failed", chain=lcel(Echo(fail_at=0)))
        ask("on", probe="alone")
        ask("none", probe="unsent")
    with bench.open() as db:
        assert set(paired(db, probe="alone").values()) == {("no data", None)}
        found = paired(db, probe="failed")
        assert found.pop("response") == ("no data", None) and set(found.values()) == {SAME}
        assert db.execute("SELECT DISTINCT probe_id FROM paired ORDER BY 1").fetchall() == [("alone",), ("failed",)]
        assert db.execute("SELECT DISTINCT arm FROM paired").fetchall() == [("on",)]


class Wrapping(BaseRetriever):
    """A retriever over another: the inner one finds in another order each time, the outer one sorts."""

    inner: Any
    turn: list[int]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[LCDocument]:
        self.turn[0] += 1
        self.inner.words = ["alpha", "beta"][:: -1 if self.turn[0] % 2 else 1]
        return sorted(self.inner.invoke(query), key=lambda d: str(d.id))


def test_what_runs_inside_another_stage_does_not_count(bench: Bench) -> None:
    chain = lcel(retriever=Wrapping(inner=Shelf(), turn=[0]))
    with recorded(bench, "full"):
        ask("none", chain=chain)
        ask("on", Nothing(), chain=chain)
    with bench.open() as db:
        assert db.execute("SELECT count(*) FROM stages WHERE nested").fetchone() == (2,)
        assert set(paired(db).values()) == {SAME}


def test_the_answer_that_counts_is_the_last_one(bench: Bench) -> None:
    run = Run(bench, {"none": [], "on": ["mask"]})
    run.ask("none", "p", "old")
    run.ask("none", "p", "new")
    run.ask("on", "p", "new")
    run.ask("none", "q", "fine")
    run.ask("none", "q", None)  # sent again, and failed: the metrics too read the last request that reached the model
    run.ask("on", "q", "fine")
    with run.open() as db:
        assert paired(db)["response"] == SAME
        assert paired(db, probe="q")["response"] == ("no data", None)


def test_the_answer_is_what_the_last_model_call_said(bench: Bench) -> None:
    run = Run(bench, {"none": [], "on": ["mask"]})
    run.ask("none", "p", "the same", earlier=["a draft"])
    run.ask("on", "p", "the same", earlier=["another draft"])
    with run.open() as db:
        assert paired(db)["response"] == SAME


def test_a_part_of_the_app_is_not_the_arms_work(bench: Bench) -> None:
    """It runs in both arms; what differs in its documents came through the query."""
    for arms in ({"none": [], "on": ["rewrite"]}, None):  # as the audit says, or as the arms compare
        run = Run(bench, arms)
        part = ("Reranker", "retrieval")
        run.ask("none", "p", "x", [part], query="q", kept=[("d1", "text one")])
        run.ask("on", "p", "y", [part, ("rewrite", "query")], query="other", kept=[("d2", "text two")])
        with run.open() as db:
            assert paired(db) == {
                "query": ("direct", "query"), **dict.fromkeys(HOOKS[1:], ("through", "query")),
            }  # fmt: skip
            db.execute("DELETE FROM span_data")


def test_what_the_audit_did_not_switch_on_is_not_the_arms_work_although_it_ran_there_alone(bench: Bench) -> None:
    run = Run(bench, {"none": [], "on": ["mask"], "again": []})
    run.ask("none", "p", "x")
    for arm in ("on", "again"):
        run.ask(arm, "p", "y", [("Reranker", "retrieval")], kept=[("d2", "text two")])
    with run.open() as db:
        for arm in ("on", "again"):
            assert paired(db, arm)["retrieval"] == paired(db, arm)["response"] == ("through", None)


def test_an_answer_that_differs_by_itself_has_no_origin(bench: Bench) -> None:
    run = Run(bench, {"none": [], "on": ["mask"]})
    run.ask("none", "p", "one")
    run.ask("on", "p", "another", [("mask", "response")], status="unchanged")
    with run.open() as db:
        assert paired(db)["response"] == ("through", None)


def test_an_empty_store_has_no_pairs(bench: Bench) -> None:
    with bench.open() as db:
        assert db.execute("SELECT * FROM paired").fetchall() == []
        assert db.execute("SELECT * FROM outputs").fetchall() == []
        assert db.execute("SELECT * FROM switched_on").fetchall() == []


OUTPUTS = st.fixed_dictionaries({
    "query": st.sampled_from(["q", "r"]),
    "kept": st.none() | st.lists(st.sampled_from([("a", "text one"), ("a", "masked"), ("b", "text two")]), max_size=3),
    "response": st.none() | st.sampled_from(["x", "y"]),
})  # fmt: skip


@given(
    st.lists(st.tuples(OUTPUTS, OUTPUTS, st.sets(st.sampled_from(HOOKS))), min_size=1, max_size=8),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_as_its_definition_says(
    tmp_path_factory: pytest.TempPathFactory, cases: list[tuple[dict[str, Any], dict[str, Any], set[str]]]
) -> None:
    """Against the definition in Python, for random outputs and effects."""
    bench = Bench(tmp_path_factory.mktemp("runs") / "t.duckdb")
    run = Run(bench, {"none": [], "on": ["d"]})
    for i, (plain, defended, hooks) in enumerate(cases):
        run.ask("none", f"p{i}", **plain)
        run.ask("on", f"p{i}", **defended, acts=[("d", h) for h in sorted(hooks)])
    with run.open() as db:
        for i, (plain, defended, hooks) in enumerate(cases):
            assert paired(db, probe=f"p{i}") == _defined(plain, defended, hooks)


def _defined(plain: dict[str, Any], defended: dict[str, Any], hooks: set[str]) -> dict[str, tuple[str, str | None]]:
    def outputs(o: dict[str, Any]) -> dict[str, Any]:
        kept = [("d1", "text one"), ("d2", "text two")] if o["kept"] is None else o["kept"]
        return {
            "query": o["query"], "retrieval": [i for i, _ in kept], "content": sorted(t for _, t in kept),
            "prompt": ([t for _, t in kept], o["query"]), "response": o["response"],
        }  # fmt: skip

    one, other, found = outputs(plain), outputs(defended), {}
    for at, channel in enumerate(HOOKS):
        if one[channel] is None or other[channel] is None:
            found[channel] = ("no data", None)
        elif one[channel] == other[channel]:
            found[channel] = SAME
        else:
            how = "direct" if channel in hooks else "through"
            found[channel] = (how, next((h for h in HOOKS[: at + 1] if h in hooks), None))
    return found


def test_its_columns(tmp_path: Path) -> None:
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        columns = {c for (c,) in db.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = 'paired'").fetchall()}  # fmt: skip
    assert columns == {
        "run_id",
        "probe_id",
        "arm",
        "channel",
        "changed",
        "how",
        "origin",
        "trace_id",
        "baseline_trace_id",
    }
