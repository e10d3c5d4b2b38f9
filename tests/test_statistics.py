"""What is computed at the join point where texts are not kept: the same as the analyst finds in them where they are."""

from __future__ import annotations

import gc
import json
from collections import Counter
from typing import Any

import pytest
from both import FRAMEWORKS, PATHS, STREAMS, ask, instrumented
from llama_pipelines import agent
from pipelines import BATCHES, Hooked, Traces
from store_fixtures import Bench, rows

import ragtrace
from ragtrace import ner, overlap
from ragtrace.record import attributes as a
from ragtrace.record import statistics
from ragtrace.record.capture import Capture, digest
from ragtrace.record.planted import Canaries, Planted
from ragtrace.record.scope import Scope
from ragtrace.record.statistics import Source, Statistics
from ragtrace.types import Canary

KEY = b"a key"
CANARY = "kotumar zepolin"
DOCUMENTS = {
    "staff": f"Amy Schumer (amy@corp.com) signs for the second quarter. The agreed wording is {CANARY}.",
    "plan": "The plan for the second quarter was written by Bob Stone, 555-123-4567.",
}
QUESTION = "Does Bob Stone sign, or who does?"
ANSWER = "Ask amy@corp.com. Amy Schumer signs for the second quarter, not Bob Stone, nor kotumar zepolin."
# By hand. The answer's words: ask amy corp com amy schumer signs for the second quarter not bob stone nor kotumar
# zepolin (17; 13 five-word runs). "signs for the second quarter" is in "staff"; in "plan", "for the second quarter".
RUNS = {"staff": (5, 1 / 13), "plan": (4, 0.0)}


def computed(traces: Any) -> list[dict[str, Any]]:
    return [json.loads(s.attributes[a.STATISTICS]) for s in traces.stages("generation")]


def recorded(bench: Bench, mode: Any, path: str, framework: str, canaries: Any = None, **options: Any) -> Traces:
    capture = Capture(mode, KEY, canaries=Canaries([Planted(CANARY, "phrase")]) if canaries is None else canaries)
    with instrumented(bench.provider, capture=capture):
        ask(framework, path, DOCUMENTS, ANSWER, (QUESTION, QUESTION), **options)
    return Traces(bench.memory)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", PATHS)
def test_every_path_computes_the_same(bench: Bench, framework: str, path: str) -> None:
    found = computed(recorded(bench, "digest", path, framework))
    assert len(found) == (2 if path in BATCHES else 1)
    for one in found:
        assert one["entities"] == {k: n for k, n in ner.counts(ANSWER).items() if n}
        of_documents = Counter(e.type for text in DOCUMENTS.values() for e in ragtrace.entities(text))
        assert one["in_documents"] == of_documents and of_documents["PHONE"] == 1
        assert one["leaked"] == 2  # Amy's address and name; Bob's was asked for
        assert {row["id"]: (row["longest_run"], row["containment"]) for row in one["overlap"]} == RUNS
        assert {row["id"]: row["entities"] for row in one["overlap"]} == {"staff": 2, "plan": 0}
        assert one["canaries"] == [
            {"digest": digest(CANARY, KEY), "family": "phrase", "channel": channel}
            for channel in ("prompt", "response")
        ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", ["digest", "masked"])
def test_the_views_show_what_they_show_of_whole_texts(tmp_path: Any, framework: str, path: str, mode: str) -> None:
    """Entities and canary hits: those of the same requests in mode ``full``."""
    seen: dict[str, Any] = {}
    for captured in ("full", mode):
        bench = Bench(tmp_path / captured / "t.duckdb")
        bench.database.parent.mkdir()
        planted = [{"text": CANARY, "family": "phrase", "document_id": "staff"}]
        if captured != "full":
            planted[0]["digest"] = digest(CANARY, KEY)
        with bench.span("run", {a.RUN_ID: "r1", a.RUN: {"canaries": planted}}):
            pass
        with ragtrace.defend(Hooked("content", lambda documents: documents[::-1])):
            recorded(bench, captured, path, framework, False if captured == "full" else None)
        with bench.open() as db:
            entities = rows(db, "SELECT type, text, in_query, in_documents FROM entities")
            if captured == "full":
                for row in entities:
                    row["text"] = digest(row["text"].lower(), KEY)
            hits = "SELECT canary, family, channel, c.run_id, document_id, stage FROM canary_hits c JOIN stages "
            hits += "USING (span_id)"
            seen[captured] = (
                Counter(tuple(row.values()) for row in entities),
                Counter(tuple(row.values()) for row in rows(db, hits)),
            )
    assert seen["full"] == seen[mode]
    assert {hit[2] for hit in seen[mode][1]} == {"retrieval", "content", "prompt", "response"} and seen[mode][0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_a_run_that_tells_it_the_canary_is_its_digest(bench: Bench, framework: str) -> None:
    recorded(bench, "digest", "invoke", framework)
    with bench.open() as db:
        assert rows(db, "SELECT DISTINCT canary, family, run_id FROM canary_hits") == [
            {"canary": digest(CANARY, KEY), "family": "phrase", "run_id": None}
        ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_in_full_only_the_canaries_that_were_given_are_looked_for(bench: Bench, framework: str) -> None:
    [found] = computed(recorded(bench, "full", "invoke", framework))
    assert found.keys() == {"canaries", "looked_for"} and {hit["text"] for hit in found["canaries"]} == {CANARY}
    with bench.open() as db:
        assert db.execute("SELECT DISTINCT canary FROM canary_hits").fetchall() == [(CANARY,)]
        assert db.execute("SELECT count(*) FROM entities WHERE text = 'Amy Schumer' AND in_documents").fetchone() == (
            1,
        )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_in_none_nor_in_full_nor_where_it_is_off(bench: Bench, framework: str) -> None:
    for capture in (Capture("none", canaries=Canaries([Planted(CANARY)])), Capture("full"), Capture(statistics=False)):
        with instrumented(bench.provider, capture=capture):
            ask(framework, "invoke", DOCUMENTS, ANSWER)
        spans = bench.spans()
        assert len(spans) > 3 and all(a.STATISTICS not in s.attributes for s in spans)
        assert capture.statistics._counts == {}


def test_digests_of_names_need_a_key(bench: Bench) -> None:
    with instrumented(bench.provider, capture="digest"):
        ask("langchain", "invoke", DOCUMENTS, ANSWER)
    [found] = computed(Traces(bench.memory))
    assert found["found"] and all("digest" not in row for row in found["found"])


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", PATHS)
def test_a_failure_of_ours_costs_the_statistics_only(
    bench: Bench, monkeypatch: Any, caplog: Any, framework: str, path: str
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError(ANSWER)

    monkeypatch.setattr(ner, "entities", broken)
    capture = Capture("digest", KEY)
    with instrumented(bench.provider, capture=capture):
        said = ask(framework, path, DOCUMENTS, ANSWER)
    assert ANSWER in "".join(map(str, said))
    [generation, *_] = Traces(bench.memory).stages("generation")
    assert a.RESPONSE_HASH in generation.attributes and a.STATISTICS not in generation.attributes
    assert "could not record a stage" in caplog.text and "RuntimeError at test_statistics.py" in caplog.text
    assert "amy" not in caplog.text


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_has_given_all_its_tokens_before(bench: Bench, monkeypatch: Any, framework: str, path: str) -> None:
    """Nothing is computed while the app waits for a token: neither of documents before the first, nor of the answer."""
    import asyncio

    import llama_pipelines
    import pipelines
    from both import LCFiles, LCSays, LIFiles, LISays

    happened: list[str] = []
    for owner, name in ((Statistics, "answered"), (ner, "counts"), (ner, "entities"), (overlap.Answer, "against")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, _real=real: happened.append("computed") or _real(*args))

    async def slowly(chunks: Any) -> None:
        async for _ in chunks:
            happened.append("token")

    async def stream(engine: Any) -> None:
        await slowly((await engine.aquery(QUESTION)).async_response_gen())

    with instrumented(bench.provider, capture=Capture("digest", KEY)):
        happened.clear()  # the word lists are loaded
        if framework == "langchain":
            chain = pipelines.lcel(LCSays(answer=ANSWER), LCFiles(documents=DOCUMENTS))
            if path == "astream":
                asyncio.run(slowly(chain.astream(QUESTION)))
            else:
                for _ in chain.stream(QUESTION):
                    happened.append("token")
        else:
            engine = llama_pipelines.query_engine(LISays(answer=ANSWER), LIFiles(DOCUMENTS, {}), streaming=True)
            if path == "astream":
                asyncio.run(stream(engine))
            else:
                for _ in engine.query(QUESTION).response_gen:
                    happened.append("token")
    assert happened.count("token") >= len(ANSWER.split())
    assert "computed" in happened and "token" not in happened[happened.index("computed") :]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", PATHS)
def test_no_request_is_kept_after_its_end(bench: Bench, framework: str, path: str) -> None:
    question = f"{path} of {framework}?"
    with instrumented(bench.provider, capture=Capture("digest", KEY)):
        ask(framework, path, DOCUMENTS, ANSWER, (question, question))
    assert computed(Traces(bench.memory))
    gc.collect()
    # by type(): isinstance would ask strangers for their __class__, and some of them warn then
    assert [o for o in gc.get_objects() if type(o) is Scope and o.query == question] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_an_agents_answers_are_compared_with_all_it_looked_up(bench: Bench) -> None:
    with instrumented(bench.provider, capture=Capture("digest", KEY)):
        await agent().run("q")
    first, last = computed(Traces(bench.memory))
    assert "overlap" not in first
    # "echo: alpha for q | beta for q": each document's three words in a row, of four different five-word runs
    assert last["overlap"] == [
        {"id": "alpha", "longest_run": 3, "containment": 0.0, "entities": 0},
        {"id": "beta", "longest_run": 3, "containment": 0.0, "entities": 0},
    ]


def test_a_request_keeps_the_latest_200_documents() -> None:
    scope = Scope("invoke", ())
    for n in range(50):
        scope.found([Source(f"{n}/{i}", "x", None) for i in range(7)])
    assert len(scope.sources) == 200 and scope.sources[-1].id == "49/6"


def test_what_is_read_is_bounded_and_said(monkeypatch: Any) -> None:
    read: list[int] = []
    real = ner.counts
    monkeypatch.setattr(ner, "counts", lambda text: read.append(len(text)) or real(text))
    made = Capture("digest", KEY).statistics
    sources = [Source(f"d{i}", f"{i} " * 20_000, f"hash {i}") for i in range(12)]
    losses: list[str] = []
    found = made.answered("q", sources, "word " * 10_000, losses)
    assert max(read) <= overlap.LIMIT and sum(read) <= 20_000
    assert len(found["overlap"]) == 10 and len(losses) == 3
    assert "2 of 12 documents not compared" in losses[0]
    read.clear()
    made.answered("q", sources[:1], "word", [])
    assert read == []  # known by their digests
    many = " ".join(f"a{n}@corp.com" for n in range(300))
    found = made.answered("a0@corp.com", [Source("d", many, None)], many, losses := [])
    assert found["entities"] == {"EMAIL_REAL": 300} and len(found["found"]) == 200 and found["leaked"] == 199
    assert losses == ["statistics: 200 of the answer's 300 entities looked for in the documents"]
    monkeypatch.setattr(statistics, "_KEPT", 2)
    made.answered("q", sources[5:7], "word", [])
    assert len(made._counts) <= 2


def test_setup_takes_canaries_and_a_switch(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "canaries.txt"
    file.write_text(CANARY + "\n")
    given: list[tuple[Any, str]] = [
        ([CANARY], "unknown"),
        ([Canary(CANARY, "phrase", "staff")], "phrase"),
        (file, "unknown"),
    ]
    given.append((None, "unknown"))
    monkeypatch.setenv("RAGTRACE_CANARIES", str(file))
    for n, (canaries, family) in enumerate(given):
        database = tmp_path / f"{n}.duckdb"
        tracing = ragtrace.setup(database, canaries=canaries, statistics=n != 0)
        ask("langchain", "invoke", DOCUMENTS, ANSWER)
        ask("llama_index", "invoke", DOCUMENTS, ANSWER)
        tracing.shutdown()
        with ragtrace.open(database) as db:
            found = rows(db, "SELECT framework, c.family, channel FROM canary_hits c JOIN generations USING (span_id)")
            assert len(found) == 4 and {row["family"] for row in found} == {family}
            assert db.execute("SELECT count(*) > 0 FROM entities").fetchone() == (n != 0,)
            canary = db.execute("SELECT DISTINCT canary FROM canary_hits").fetchall()
            assert canary == [(digest(CANARY, (tmp_path / f"{n}.duckdb.key").read_bytes()),)]


def test_an_audits_canaries_are_found_where_texts_are_not_kept(tmp_path: Any) -> None:
    from ragtrace.audit import Arm, run
    from ragtrace.types import Probe

    def app(question: str) -> Any:
        return ask("langchain", "invoke", DOCUMENTS, ANSWER, (question,))

    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    run(
        app, [Arm("none")], [Probe("p", "canary", QUESTION)], tracing=tracing,
        canaries=[Canary(CANARY, "phrase", "staff"), Canary("never said", "phrase", "plan")],
    )  # fmt: skip
    tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert rows(
            db, "SELECT DISTINCT canary, document_id, probe_id FROM canary_hits WHERE channel = 'response'"
        ) == [{"canary": CANARY, "document_id": "staff", "probe_id": "p"}]
