"""Passive exposure: what of each document reached each answer, by hand; incremental, interrupted, by processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from hashlib import md5
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_fixtures import SPAN, START, TRACE, Store
from store_fixtures import Bench, rows
from typer.testing import CliRunner

import ragtrace
from ragtrace.cli import app
from ragtrace.overlap import LIMIT
from ragtrace.record import attributes as a
from ragtrace.store import compact, comparing, exposure, forget, in_memory
from ragtrace.store.exposure import Measured, measure

LETTER = "Please write to Ann Lee <ann.lee@corp.com> before the second quarter ends."
ANSWER = "You may write to Ann Lee <ann.lee@corp.com> before it ends."
# By hand. The answer's words: you may write to ann lee ann lee corp com before it ends (13; 9 five-word runs). "write
# to ann lee ann lee corp com before" stands in the letter (9 words; 5 of these runs). Leaked: the name and the address.
QUOTED = (9, 5 / 9, 2)


def said(text: str | None) -> list[dict[str, Any]]:
    part = {"type": "text"} if text is None else {"type": "text", "content": text}
    return [{"role": "assistant", "parts": [part]}]


def listed(*documents: tuple[str, str | None]) -> list[dict[str, Any]]:
    """Each with its hash, by which later phases find its text."""
    return [{"id": id, "hash": f"h-{text}"} | ({} if text is None else {"content": text}) for id, text in documents]


def talk(
    bench: Bench,
    *answers: str | None,
    found: tuple[tuple[str, str | None], ...] = (("d1", LETTER), ("d2", "It rains.")),
    query: str = "Whom do I ask?",
    stages: dict[str, Any] | None = None,
    told: dict[str, Any] | None = None,
    **root: Any,
) -> None:
    """One request: documents, then a model call for each answer; ``stages``: more of retrieval, or of a context."""
    more = dict(stages or {})
    with bench.request(**root):
        context = more.pop(a.IN_PROMPT, None)
        with bench.stage("retrieval", **{a.RETRIEVAL_DOCUMENTS: listed(*found), **more}):
            pass
        if context is not None:
            with bench.stage("context", **{a.IN_PROMPT: context}):
                pass
        for answer in answers:
            given = {a.QUERY: query, a.OUTPUT_MESSAGES: said(answer)} | (told or {})
            with bench.stage("generation", **given):
                pass


def exposed(db: duckdb.DuckDBPyConnection) -> dict[str | None, tuple[Any, ...]]:
    """The numbers of each document of a store that has one answer."""
    found = rows(db, "FROM exposure")
    assert len({row["document_id"] for row in found}) == len(found)
    return {row["document_id"]: (row["longest_run"], row["containment"], row["entities_leaked"]) for row in found}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t.duckdb")


def test_by_hand(bench: Bench) -> None:
    talk(bench, ANSWER, **{a.USER: "ann"})
    with bench.open() as db:
        assert exposed(db) == {"d1": QUOTED, "d2": (1, 0.0, 0)}  # it
        [row] = rows(db, "FROM exposure WHERE document_id = 'd1'")
    assert (row["rank"], row["phase"], row["answer_words"], row["path"], row["user_id"], row["measured"]) == (
        1, "retrieved", 13, "invoke", "ann", True,
    )  # fmt: skip
    assert row["day"] == row["start_time"].date() and row["session"].startswith("user ann")


def test_what_was_asked_for_is_no_leak(bench: Bench) -> None:
    talk(bench, ANSWER, query="Is it ANN.LEE@corp.com?")
    with bench.open() as db:
        assert exposed(db)["d1"] == (9, 5 / 9, 1)


KEPT = [{"id": "d1", "of": 0, "hash": f"h-{LETTER}"}]
MASKED = [{"id": "d1", "hash": "masked", "content": "Please write to [NAME] before the second quarter ends."}]


@pytest.mark.parametrize(
    ("stages", "phase", "expected"),
    [
        ({a.AFTER_DEFENSE: KEPT}, "after_defense", {"d1": QUOTED}),
        ({a.AFTER_DEFENSE: MASKED}, "after_defense", {"d1": (2, 0.0, 0)}),  # write to
        ({a.AFTER_DEFENSE: []}, None, {}),
        ({a.IN_PROMPT: [{"id": "d2", "hash": "h-It rains."}]}, "in_prompt", {"d2": (1, 0.0, 0)}),
        ({a.IN_PROMPT: []}, "retrieved", {"d1": QUOTED, "d2": (1, 0.0, 0)}),  # rewritten, for all one knows
        (
            {
                a.AFTER_DEFENSE: MASKED,
                a.IN_PROMPT: [{"id": "d1", "hash": "x", "whole": False, "content": "write to Ann"}],
            },
            "in_prompt",
            {"d1": (3, 0.0, 0)},
        ),
    ],
)
def test_what_could_be_read(bench: Bench, stages: dict[str, Any], phase: str | None, expected: dict[str, Any]) -> None:
    talk(bench, ANSWER, stages=stages)
    with bench.open() as db:
        assert exposed(db) == expected
        assert {row["phase"] for row in rows(db, "FROM exposure")} == ({phase} if phase else set())


def test_documents_that_no_defense_got_count_too(bench: Bench) -> None:
    """An agent's second retriever is not defended."""
    with bench.request():
        given = {a.RETRIEVAL_DOCUMENTS: listed(("d1", LETTER), ("d2", "It rains.")), a.AFTER_DEFENSE: MASKED}
        with bench.stage("retrieval", **given):
            pass
        with bench.stage("retrieval", **{a.RETRIEVAL_DOCUMENTS: listed(("d3", LETTER))}):
            pass
        with bench.stage("generation", **{a.OUTPUT_MESSAGES: said(ANSWER)}):
            pass
    with bench.open() as db:
        assert exposed(db) == {"d1": (2, 0.0, 0), "d3": QUOTED}


def test_several_generations_of_a_request(bench: Bench) -> None:
    talk(bench, ANSWER, "No.")
    with bench.open() as db:
        found = rows(db, "FROM exposure WHERE document_id = 'd1' ORDER BY longest_run")
    assert [row["longest_run"] for row in found] == [0, 9] and len({row["span_id"] for row in found}) == 2


def test_requests_of_one_trace_are_kept_apart(bench: Bench) -> None:
    with bench.span("POST /ask", {"http.route": "/ask"}, scope="app"):
        talk(bench, "No.")
        talk(bench, ANSWER, found=(("d3", LETTER),))
    with bench.open() as db:
        assert exposed(db) == {"d1": (0, 0.0, 0), "d2": (0, 0.0, 0), "d3": QUOTED}
        assert {row["route"] for row in rows(db, "FROM exposure")} == {"/ask"}


@pytest.mark.parametrize(
    ("answer", "found", "expected"),
    [
        (None, (("d1", LETTER),), {"d1": (None, None, None)}),  # not kept, or none came
        (ANSWER, (("d1", None),), {"d1": (None, None, None)}),
        (ANSWER, (), {}),
        ("", (("d1", LETTER),), {"d1": (0, None, 0)}),
        ("…", (("d1", LETTER),), {"d1": (0, None, 0)}),
        (ANSWER, (("d1", ""),), {"d1": (0, 0.0, 0)}),
        (ANSWER, (("d1", LETTER), ("d1", LETTER)), {"d1": QUOTED}),  # two retrievers found it
    ],
)
def test_what_is_missing_is_never_a_number(bench: Bench, answer: Any, found: Any, expected: dict[str, Any]) -> None:
    talk(bench, answer, found=found)
    with bench.open() as db:
        assert exposed(db) == expected


def test_a_retrieval_alone_has_no_row(bench: Bench) -> None:
    talk(bench)
    with bench.open() as db:
        assert rows(db, "FROM exposure") == []


def test_huge_texts_are_read_to_the_limit(bench: Bench) -> None:
    filler = "tick " * (LIMIT // 5)
    talk(bench, f"{ANSWER} {filler}{filler}", found=(("d1", f"{LETTER} {filler}"), ("d2", filler + LETTER)))
    start = time.process_time()
    with bench.open() as db:
        found = exposed(db)
    assert time.process_time() - start < 20
    assert found["d1"][2] == 2 and found["d1"][0] > 3_000
    assert found["d2"][2] == 0  # what stands behind the limit is not read


def test_audits_too(bench: Bench) -> None:
    who = {a.RUN_ID: "r", a.ARM: "none"}
    talk(bench, ANSWER, told=who, **who)
    with bench.open() as db:
        [row] = rows(db, "FROM exposure WHERE document_id = 'd1'")
    assert (row["run_id"], row["arm"], row["longest_run"], row["user_id"]) == ("r", "none", 9, None)


def test_where_texts_are_not_kept(bench: Bench) -> None:
    """In the modes digest and masked the numbers are those of the app, of the texts as they were."""
    computed = {a.STATISTICS: {"overlap": [{"id": "d1", "longest_run": 7, "containment": 0.5, "entities": 3}]}}
    talk(bench, None, found=(("d1", None), ("d2", None)), told=computed)
    talk(bench, "You may write to [NAME].", found=(("d1", "Write to [NAME]."),), told=computed)
    with bench.open() as db:
        found = rows(db, "FROM exposure ORDER BY answer_words, document_id")
    assert [[r["document_id"], r["longest_run"], r["containment"], r["entities_leaked"]] for r in found] == [
        ["d1", 7, 0.5, 3], ["d1", 7, 0.5, 3], ["d2", None, None, None],
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["digest", "masked", "full"])
def test_every_mode_says_the_same(tmp_path: Path, mode: Any) -> None:
    """Through the real recorder, documents and answer given by hand."""
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture=mode)

    @ragtrace.pipeline("mail")
    def ask(question: str) -> str:
        with ragtrace.retrieval(question) as stage:
            stage.documents([ragtrace.Document(LETTER, "d1"), ragtrace.Document("It rains.", "d2")])
        with ragtrace.generation(question, model="m") as stage:
            return str(stage.response(ANSWER))

    ask("Whom do I ask?")
    tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert exposed(db) == {"d1": QUOTED, "d2": (1, 0.0, 0)}


@pytest.mark.parametrize("named", [True, False])
def test_foreign_traces(tmp_path: Path, named: bool) -> None:
    """OpenInference, without a question: documents and answer are enough; without ids their texts tell them apart."""
    kind = "openinference.span.kind"

    def span(id: str, attributes: dict[str, Any]) -> dict[str, Any]:
        given = [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()]
        return {"traceId": TRACE, "spanId": id, "name": "x", "startTimeUnixNano": str(START), "attributes": given}

    document = "retrieval.documents.{}.document.{}"
    ids = {document.format(0, "id"): "d1", document.format(1, "id"): "d2"} if named else {}
    spans = [
        span(SPAN, {kind: "RETRIEVER", document.format(0, "content"): LETTER,
                    document.format(1, "content"): "It rains.", **ids}),
        span("f" * 16, {kind: "LLM", "llm.output_messages.0.message.role": "assistant",
                        "llm.output_messages.0.message.content": ANSWER}),
    ]  # fmt: skip
    scope = {"name": "openinference.instrumentation.langchain"}
    store = Store(tmp_path)
    store.took({"resourceSpans": [{"scopeSpans": [{"scope": scope, "spans": spans}]}]})
    [row] = rows(store.db, "FROM exposure")
    assert (row["document_id"], row["longest_run"], row["measured"]) == (None, None, False)
    assert measure(store.db) == Measured(1, 2, 0)
    by_text = [f"text {md5(text.encode()).hexdigest()[:16]}" for text in (LETTER, "It rains.")]
    first, second = ("d1", "d2") if named else by_text
    assert exposed(store.db) == {first: QUOTED, second: (1, 0.0, 0)}
    store.db.close()


# -- a little at a time ------------------------------------------------------------------------------


def test_only_what_is_new_is_measured(bench: Bench) -> None:
    talk(bench, ANSWER)
    with bench.open() as db:
        assert measure(db) == Measured(0, 0, 0)
        db.execute("UPDATE exposure_data SET longest_run = -1")  # would be repaired
    talk(bench, ANSWER)
    with bench.open() as db:
        assert [r["longest_run"] for r in rows(db, "FROM exposure ORDER BY longest_run")] == [-1, -1, 1, 9]


def test_documents_that_come_late(bench: Bench) -> None:
    """From another process, after the answer was measured without them; the clock does not matter."""
    talk(bench, ANSWER)
    retrieval, generation, root = bench.spans()
    bench.write([generation])
    with bench.open() as db:
        assert exposed(db) == {}
    bench.write([retrieval, root])
    with bench.open() as db:
        assert exposed(db) == {"d1": QUOTED, "d2": (1, 0.0, 0)}


def many(bench: Bench, n: int) -> None:
    for i in range(n):
        talk(bench, f"{ANSWER} Number {i}.", found=(("d1", LETTER), (f"e{i % 3}", f"Number {i}.")))


EVERY = "SELECT * EXCLUDE (start_time, day) FROM exposure ORDER BY ALL"


def again(db: duckdb.DuckDBPyConnection) -> None:
    db.execute("DELETE FROM exposure_data")
    db.execute("UPDATE exposure_mark_data SET row_id = -1")


def in_small_windows(monkeypatch: pytest.MonkeyPatch, many: int = 30) -> None:
    monkeypatch.setattr(exposure, "_SPANS", 7)  # so that traces, of three spans, lie in two
    monkeypatch.setattr(exposure, "_MANY", many)


def test_windows_limits_and_processes_change_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    many(bench, 40)
    with bench.open() as db:
        expected = rows(db, EVERY)
        assert len(expected) == 80
        again(db)
        in_small_windows(monkeypatch)
        assert measure(db, limit=5).left > 60
        assert 5 <= len({r["span_id"] for r in rows(db, "FROM exposure WHERE measured")}) <= 8
        assert len(rows(db, "FROM exposure WHERE NOT measured")) > 30
        told: list[tuple[int, int]] = []
        assert measure(db, tell=lambda *step: told.append(step)).left == 0  # in processes
        assert told[-1][0] == told[-1][1] and told == sorted(told) and len(told) > 10
        assert rows(db, EVERY) == expected


@pytest.mark.parametrize("fault", ["import sys", "print('x' * 99)", "import os; os.kill(os.getpid(), 9)"])
def test_a_process_that_does_not_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    many(bench, 20)
    with bench.open() as db:
        expected = rows(db, EVERY)
        again(db)
        in_small_windows(monkeypatch)
        real = subprocess.Popen
        monkeypatch.setattr(
            comparing.subprocess, "Popen", lambda command, **more: real([sys.executable, "-c", fault], **more)
        )
        assert measure(db).left == 0
        assert rows(db, EVERY) == expected


def test_killed_half_way_and_resumed(bench: Bench) -> None:
    """Killed after some windows were stored: what is there is right, and going on gives the same rows, none twice."""
    many(bench, 60)
    with bench.open() as db:
        expected = rows(db, EVERY)
        again(db)
    script = (
        "import sys, time; import duckdb; from ragtrace.store import exposure\n"
        "exposure._SPANS = 7\n"
        "def tell(done, of):\n"
        "    print(done, flush=True)\n"
        "    done > 60 and time.sleep(60)\n"
        "exposure.measure(duckdb.connect(sys.argv[1]), tell=tell)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(bench.database)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        while int(process.stdout.readline()) <= 60:
            pass
        os.kill(process.pid, signal.SIGKILL)
    with duckdb.connect(str(bench.database)) as db:
        part = rows(db, EVERY.replace("FROM exposure", "FROM exposure WHERE measured"))
        assert 0 < len(part) < len(expected) and all(row in expected for row in part)
        done = measure(db)
        assert done.left == 0 and done.generations < 60
        assert rows(db, EVERY) == expected


def test_two_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another connection of the process measures in between: this one leaves it to that one."""
    many(bench, 10)
    with bench.open() as db:
        expected = rows(db, EVERY)
        again(db)
        in_small_windows(monkeypatch, many=10**9)
        with db.cursor() as other:
            report = measure(db, tell=lambda done, of: measure(other) and None)
            assert report.left > 0
        assert rows(db, EVERY) == expected


# -- what goes ---------------------------------------------------------------------------------------


def test_what_is_forgotten_is_gone_and_the_rest_is_not_measured_again(bench: Bench) -> None:
    for user in ("qxann", "bob", "qxann", "cyd"):
        talk(bench, ANSWER, **{a.USER: user})
    with bench.open() as db:
        db.execute("UPDATE exposure_data SET rank = 99")
    for user, left in (("qxann", {"bob", "cyd"}), ("cyd", {"bob"})):  # the last one holds the mark
        forget(bench.database, "user", user)
        assert b"qxann" not in bench.database.read_bytes()
        with bench.open() as db:
            found = rows(db, "FROM exposure")
            assert {row["user_id"] for row in found} == left
            assert {row["rank"] for row in found} == {99} and len(found) == 2 * len(left)
    talk(bench, ANSWER, **{a.USER: "dan"})
    with bench.open() as db:
        assert {(r["user_id"], r["measured"]) for r in rows(db, "FROM exposure")} == {("bob", True), ("dan", True)}
    forget(bench.database, "user", "bob")
    forget(bench.database, "user", "dan")
    with bench.open() as db:
        assert rows(db, "FROM exposure") == [] and rows(db, "SELECT row_id FROM exposure_mark_data") == [{"row_id": -1}]


def test_compacting_keeps_what_was_measured(bench: Bench) -> None:
    many(bench, 3)
    with bench.open() as db:
        db.execute("UPDATE exposure_data SET rank = 99")
    compact(bench.database)
    with bench.open() as db:
        assert [row["rank"] for row in rows(db, "FROM exposure")] == [99] * 6


# -- the command -------------------------------------------------------------------------------------


def test_the_command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "d1\x1b[31m"
    talk(bench, ANSWER, found=((hostile, LETTER),))
    talk(bench, "No.", found=(("d2", LETTER),))
    with bench.open() as db:
        again(db)
    monkeypatch.setattr("ragtrace.store.database._MEASURED", 0)
    monkeypatch.setattr("ragtrace.store.database.measure", lambda *_, **__: None)
    run = CliRunner().invoke
    first = run(app, ["exposure", "--db", str(bench.database), "--words", "8"])
    assert first.exit_code == 0, first.output
    assert "2 answers measured now, 2 in all" in first.output
    assert "1 of them quote more than 8 words of a document: 50.0%" in first.output
    assert "d1" in first.output and "\x1b" not in first.output
    told = json.loads(run(app, ["exposure", "--db", str(bench.database), "--json"]).stdout)
    assert (told["measured"], told["answers"], told["quoting"], told["share"], told["words"]) == (0, 2, 0, 0.0, 10)
    assert [d["document_id"] for d in told["documents"]] == [hostile, "d2"]


def test_the_command_where_there_is_nothing(bench: Bench) -> None:
    bench.open().close()
    told = CliRunner().invoke(app, ["exposure", "--db", str(bench.database)])
    assert told.exit_code == 0 and "0 answers measured now, 0 in all" in told.output
    assert (
        json.loads(CliRunner().invoke(app, ["exposure", "--db", str(bench.database), "--json"]).stdout)["share"] is None
    )


# -- any texts ---------------------------------------------------------------------------------------

text = st.none() | st.text(max_size=40) | st.sampled_from([LETTER, ANSWER])


@settings(max_examples=60, deadline=None)
@given(text, st.lists(st.tuples(st.sampled_from("abc"), text), max_size=4), text)
def test_any_texts(answer: str | None, found: list[tuple[str, str | None]], query: str | None) -> None:
    """Numbers or none for each document, once, whatever stands in the texts; none where a text is missing."""
    spans = [
        ("retrieval", {a.RETRIEVAL_DOCUMENTS: json.dumps([{"id": i, "content": t, "hash": str(t)} for i, t in found])}),
        ("generation", {a.OUTPUT_MESSAGES: json.dumps(said(answer))} | ({} if query is None else {a.QUERY: query})),
    ]
    with in_memory() as db:
        for stage, given in spans:
            db.execute(
                "INSERT INTO span_data BY NAME SELECT 't' AS trace_id, ? AS span_id, ? AS stage, "
                "'ragtrace' AS dialect, 0 AS start_ns, false AS nested, ? AS attributes",
                [stage, stage, json.dumps(given)],
            )
        measure(db)
        got = rows(db, "FROM exposure")
    assert len(got) == len(set(found))
    for row in got:
        numbers = row["longest_run"], row["entities_leaked"]
        lacks = answer is None or (numbers == (None, None) and (row["document_id"], None) in found)
        assert (None in numbers) == lacks
