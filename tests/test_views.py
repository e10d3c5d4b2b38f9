"""What each view answers, on spans of the real recorder and on hand-made ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document as LCDocument
from langchain_core.runnables import RunnableLambda
from pipelines import Echo, Shelf, call, lcel
from ragtrace_langchain import LangChainInstrumentor
from store_fixtures import CONTRACT, Bench, rows

import ragtrace
from ragtrace.record import attributes as a
from ragtrace.record.capture import digest
from ragtrace.record.scope import probing
from ragtrace.types import Probe


class Mask(ragtrace.Defense):
    name = "mask"

    def on_content(self, query: str, documents: list[ragtrace.Document]) -> list[ragtrace.Document]:
        for document in documents:
            document.content = document.content.replace("alpha", "*****")
        return documents[::-1]

    def on_response(self, query: str, documents: list[ragtrace.Document], response: str) -> str:
        return response.replace("beta", "****")


# --- the contract -----------------------------------------------------------------------------------------------------


def test_the_contract_holds_and_every_view_answers_on_an_empty_store(bench: Bench) -> None:
    design = Path(__file__).parents[2] / "shared" / "DESIGN.md"
    if design.is_file():
        table = dict(re.findall(r"^\| `(\w+)` \| ([a-z_, ().`A-Z]+?)(?:: .*)? \|$", design.read_text("utf-8"), re.M))
        plain = {view: re.sub(r" \([^)]*\)|`", "", columns) for view, columns in table.items()}
        assert {view: plain[view] for view in CONTRACT} == CONTRACT
    with bench.open() as db:
        for view, columns in CONTRACT.items():
            assert db.execute(f"SELECT {columns} FROM {view}").fetchall() == []
        types = dict(
            db.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'spans'").fetchall()
        )
        views = [v for (v,) in db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
        assert [v for v in views if db.execute(f"FROM {v}").fetchall()] == []
    assert (types["attributes"], types["resource"], types["start_time"]) == ("JSON", "JSON", "TIMESTAMP")


# --- a real pipeline --------------------------------------------------------------------------------------------------


def test_stages_and_spans_of_a_chain(chains: Bench) -> None:
    lcel().invoke("why")
    with chains.open() as db:
        assert rows(db, "SELECT stage, framework, path, query, status, nested FROM stages ORDER BY start_time") == [
            {
                "stage": stage,
                "framework": "langchain",
                "path": "invoke",
                "query": query,
                "status": "UNSET",
                "nested": False,
            }
            for stage, query in (("retrieval", "why"), ("context", None), ("generation", "why"))
        ]
        assert rows(db, "SELECT DISTINCT dialect, status FROM spans") == [{"dialect": "ragtrace", "status": "UNSET"}]
        assert db.execute("SELECT bool_and(duration_ms >= 0 AND start_time <= end_time) FROM spans").fetchone() == (
            True,
        )
        assert db.execute("SELECT count(DISTINCT request_id), count(*) FROM requests").fetchone() == (1, 4)


def test_documents_in_three_phases(chains: Bench) -> None:
    with ragtrace.defend(Mask()):
        lcel().invoke("why")
    with chains.open() as db:
        found = db.execute(
            "SELECT phase, rank, document_id, score, content, stage, whole, content_hash FROM documents ORDER BY ALL"
        ).fetchall()
    alpha, beta, masked = "alpha for why", "beta for why", "***** for why"
    assert found == [
        ("after_defense", 1, "beta", 0.5, beta, "retrieval", None, digest(beta)),
        ("after_defense", 2, "alpha", 0.5, masked, "retrieval", None, digest(masked)),
        ("in_prompt", 1, "beta", 0.5, beta, "context", True, digest(beta)),
        ("in_prompt", 2, "alpha", 0.5, masked, "context", True, digest(masked)),
        ("retrieved", 1, "alpha", 0.5, alpha, "retrieval", None, digest(alpha)),
        ("retrieved", 2, "beta", 0.5, beta, "retrieval", None, digest(beta)),
    ]


def test_a_document_that_was_cut_in_the_prompt(chains: Bench) -> None:
    long = "The quick brown fox jumps over the lazy dog near the river bank at noon."
    whole = "A second text that stays as it is, from its start to its end."

    def cut(documents: list[LCDocument]) -> str:
        return documents[0].page_content[:50] + " / " + documents[1].page_content

    chain = Shelf(words=[long, whole]) | RunnableLambda(cut) | Echo()
    chain.invoke("q")
    with chains.open() as db:
        found = rows(
            db,
            "SELECT rank, content, whole, chars, content_hash FROM documents WHERE phase = 'in_prompt' ORDER BY rank",
        )
    piece = (long + " for q")[:50]
    assert found == [
        {"rank": 1, "content": piece, "whole": False, "chars": 50, "content_hash": digest(piece)},
        {
            "rank": 2,
            "content": f"{whole} for q",
            "whole": True,
            "chars": len(whole) + 6,
            "content_hash": digest(f"{whole} for q"),
        },
    ]


def test_generations_show_what_went_in_and_what_came_out(chains: Bench) -> None:
    with ragtrace.defend(Mask()):
        answer = lcel().invoke("why")
    with chains.open() as db:
        (found,) = rows(
            db, "SELECT query, prompt, response, path, mean_logprob, perplexity, response_hash FROM generations"
        )
    assert found == {
        "query": "why",
        "prompt": "Be brief.\n\nbeta for why | ***** for why ? why",
        "response": answer,
        "path": "invoke",
        "mean_logprob": None,
        "perplexity": None,
        "response_hash": digest(answer),
    }
    assert "beta" not in answer


def test_effects_and_coverage_of_a_chain(chains: Bench) -> None:
    with ragtrace.defend(Mask()):
        lcel().invoke("why")
    with chains.open() as db:
        found = {
            row.pop("hook"): row for row in rows(db, "SELECT * EXCLUDE (trace_id, span_id, duration_us) FROM effects")
        }
        assert rows(db, "SELECT defense, hook, path, ran FROM coverage ORDER BY hook") == [
            {"defense": "mask", "hook": hook, "path": "invoke", "ran": True} for hook in ("content", "response")
        ]
    length = len("alpha for why") + len("beta for why")
    content, response = found["content"], found["response"]
    assert content == {
        "defense": "mask",
        "status": "changed",
        "ids_changed": False,
        "order_changed": True,
        "scores_changed": False,
        "text_changed": True,
        "documents_before": 2,
        "documents_after": 2,
        "chars_before": length,
        "chars_after": length,
        "path": "invoke",
        "arm": None,
        "buffered": False,
        "metadata_changed": False,
        "late": False,
        "part": False,
        "kept": False,
        "crossings": None,
        "error": None,
        "run_id": None,
        "probe_id": None,
        "framework": "langchain",
    }
    assert (response["text_changed"], response["documents_before"], response["chars_before"]) == (
        True,
        None,
        response["chars_after"],
    )


@pytest.mark.parametrize("path", ["batch", "stream"])
def test_paths_reach_the_views(chains: Bench, path: str) -> None:
    with ragtrace.defend(Mask()):
        call(path, lcel(), ["one", "two"])
    n = 2 if path == "batch" else 1
    with chains.open() as db:
        assert rows(db, "SELECT DISTINCT path FROM stages") == [{"path": path}]
        assert db.execute("SELECT count(*), bool_and(ran) FROM coverage WHERE path = ?", [path]).fetchone() == (
            2 * n,
            True,
        )
        assert db.execute("SELECT count(*), count(DISTINCT request_id) FROM coverage").fetchone() == (2 * n, n)


@pytest.mark.parametrize("mode", ["masked", "digest", "none"])
def test_what_the_capture_mode_withholds_is_null(bench: Bench, mode: Any) -> None:
    LangChainInstrumentor().instrument(tracer_provider=bench.provider, capture=mode)
    try:
        lcel(retriever=Shelf(words=["carol@corp.com"])).invoke("why")
    finally:
        LangChainInstrumentor().uninstrument()
    with bench.open() as db:
        (generation,) = rows(db, "SELECT query, prompt, response, response_chars, response_hash FROM generations")
        contents = {row["content"] for row in rows(db, "SELECT content FROM documents")}
        hashes = {row["content_hash"] for row in rows(db, "SELECT content_hash FROM documents")}
    length = len("echo: Be brief. carol@corp.com for why ? why")
    assert generation["response_chars"] == length and (generation["response_hash"] is None) == (mode == "none")
    assert hashes == {None} if mode == "none" else len(hashes) == 1 and None not in hashes
    if mode == "masked":
        assert contents == {"<EMAIL_REAL> for why"} and "carol" not in generation["prompt"] + generation["response"]
    else:
        assert contents == {None}
        assert generation["query"] is generation["prompt"] is generation["response"] is None


def test_an_audit_s_probes_canaries_and_hits_in_all_five_channels(chains: Bench) -> None:
    class Leak(ragtrace.Defense):
        def on_content(self, query: str, documents: list[ragtrace.Document]) -> list[ragtrace.Document]:
            documents[1].content += " zq-two"
            return documents

    planted = [
        {"text": t, "family": "id", "document_id": d}
        for t, d in (("zq-one", "alpha"), ("zq-two", "beta"), ("zq-3", "c"))
    ]
    with chains.span("run", {a.RUN_ID: "r1", a.RUN: {"canaries": planted}}):
        pass
    probe = Probe(
        "p1", "canary", "say zq-one", corpus="mails", seed=3, target_id="alpha", is_member=True, canary="zq-one"
    )
    with ragtrace.defend(Leak()), probing("r1", "leak", probe):
        lcel().invoke(probe.query)
    with probing("r2", "none", Probe("p1", "canary", "zq-one")):  # another run, which planted nothing
        lcel().invoke("zq-one")
    lcel().invoke("traffic about zq-one")
    with chains.open() as db:
        assert rows(db, "SELECT * EXCLUDE (trace_id) FROM probes WHERE run_id = 'r1'") == [
            {
                "run_id": "r1",
                "probe_id": "p1",
                "arm": "leak",
                "attack": "canary",
                "corpus": "mails",
                "seed": 3,
                "query": "say zq-one",
                "target_id": "alpha",
                "target_text": None,
                "is_member": True,
                "canary": "zq-one",
                "detail": None,
                "status": "UNSET",
            }
        ]
        assert rows(db, "FROM canaries ORDER BY canary DESC LIMIT 1") == [
            {"run_id": "r1", "canary": "zq-two", "family": "id", "document_id": "beta", "digest": None}
        ]
        hits = db.execute(
            "SELECT canary, list(DISTINCT channel ORDER BY channel) FROM canary_hits "
            "WHERE arm = 'leak' GROUP BY ALL ORDER BY 1"
        ).fetchall()
        assert hits == [
            ("zq-one", ["content", "prompt", "query", "response", "retrieval"]),
            ("zq-two", ["content", "prompt", "response"]),
        ]
        assert db.execute("SELECT count(*) FROM canary_hits WHERE arm = 'none'").fetchone() == (0,)
        assert rows(db, "SELECT DISTINCT canary, run_id, document_id, family FROM canary_hits WHERE arm IS NULL") == [
            {"canary": "zq-one", "run_id": "r1", "document_id": "alpha", "family": "id"}
        ]
        assert db.execute(
            "SELECT count(*), count(DISTINCT (span_id, canary, channel)) FROM canary_hits"
        ).fetchone() == (12, 12)


def test_a_bypass_is_a_crossing_without_the_declared_defense(chains: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr("ragtrace.defense._declared", {})

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.upper()

    ragtrace.declare("elsewhere", ["query"])
    (lcel() | RunnableLambda(mask)).invoke("with")
    list(lcel().stream("without"))
    Echo().invoke("no retrieval, so no query hook")
    with chains.open() as db:
        assert db.execute(
            "SELECT path, defense, hook, ran, count(*) FROM coverage GROUP BY ALL ORDER BY ALL"
        ).fetchall() == [
            ("invoke", "elsewhere", "query", False, 1),
            ("invoke", "house-mask", "response", False, 1),
            ("invoke", "house-mask", "response", True, 1),
            ("stream", "elsewhere", "query", False, 1),
            ("stream", "house-mask", "response", False, 1),
        ]
        found = {row["defense"]: row for row in rows(db, "FROM verdicts")}
    assert (found["elsewhere"]["verdict"], found["elsewhere"]["runtime_status"]) == ("bypassed", "bypassed")
    assert (found["house-mask"]["verdict"], found["house-mask"]["runtime_status"]) == ("bypassed", "changed")
    assert found["house-mask"]["evidence"] == (
        "changed something in 1 of 1 runs; its hook was crossed without it in 2 of 3 crossings (path invoke, stream)"
    )
