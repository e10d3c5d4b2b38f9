"""What the views answer on hand-made spans: verdicts, requests, and what is cut or odd."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from store_fixtures import CONTRACT, Bench, effect, rows

from ragtrace.record import attributes as a


def test_perplexity_is_exp_of_minus_mean_logprob(bench: Bench) -> None:
    for value in (-0.5, -1000.0, None):
        more = {} if value is None else {a.MEAN_LOGPROB: value, a.LOGPROB_TOKENS: 7}
        with bench.stage("generation", **{a.REQUEST_MODEL: "m", **more}):
            pass
    with bench.stage(
        "generation", **{a.RESPONSE_MODEL: "m-1", a.REQUEST_MODEL: "m", a.OUTPUT_TOKENS: 9, a.INPUT_TOKENS: 5}
    ):
        pass
    with bench.open() as db:
        found = db.execute(
            "SELECT perplexity, completion_tokens, model, prompt_tokens FROM generations ORDER BY start_time"
        ).fetchall()
    assert found == [
        (math.exp(0.5), 7, "m", None),
        (math.inf, 7, "m", None),
        (None, None, "m", None),
        (None, 9, "m-1", 5),
    ]


def test_two_requests_of_one_trace_are_told_apart(bench: Bench) -> None:
    claim = {"mask": ["content", "response"]}
    with bench.span("app", scope="app"):
        with bench.request(declared=claim), bench.span("between", scope="http"):
            with bench.stage("retrieval", effects=[effect("mask", "content")]):
                pass
            with bench.stage("generation", effects=[effect("mask", "response")]):
                pass
        with bench.request(declared=claim):
            with bench.stage("retrieval"):
                pass
            with bench.stage("generation", effects=[effect("mask", "response")]):
                pass
    with bench.open() as db:
        assert db.execute("SELECT count(DISTINCT trace_id), count(DISTINCT request_id) FROM coverage").fetchone() == (
            1,
            2,
        )
        ran = db.execute("SELECT hook, list(ran ORDER BY ran) FROM coverage GROUP BY hook ORDER BY hook").fetchall()
    assert ran == [("content", [False, True]), ("response", [True, True])]


def test_what_ran_beside_the_request_in_its_trace_is_no_bypass(bench: Bench) -> None:
    with bench.span("app", scope="app"):
        with bench.request(declared={"mask": ["response"]}), bench.stage("generation"):
            pass
        with bench.span("defense mask", {a.FRAMEWORK: "none", a.EFFECTS: [effect("mask", "response")]}):
            pass
    with bench.open() as db:
        assert db.execute("SELECT ran FROM coverage").fetchall() == [(True,)]


def test_a_nested_stage_crosses_no_hook(bench: Bench) -> None:
    outer, inner = bench.stage("retrieval"), bench.stage("generation", **{a.NESTED: True})
    with bench.request(declared={"mask": ["retrieval", "response"]}), outer, inner:
        pass
    with bench.open() as db:
        assert rows(db, "SELECT hook FROM coverage") == [{"hook": "retrieval"}]
        assert rows(db, "SELECT nested FROM generations") == [{"nested": True}]


def test_spans_that_are_their_own_ancestors_end(bench: Bench) -> None:
    with bench.stage("retrieval"):
        pass
    (span,) = bench.spans()
    span._parent = span.get_span_context()  # type: ignore[attr-defined]
    bench.write([span])
    with bench.open() as db:
        assert rows(db, "FROM requests") == []


def test_entities_say_what_is_an_echo_and_what_was_read(bench: Bench) -> None:
    documents = [{"id": "1", "content": "Write to CAROL@corp.com", "hash": "h", "chars": 9}]
    answer = [{"role": "assistant", "parts": [{"content": "dave@corp.com, carol@corp.com and erin@corp.com"}]}]
    with bench.request():  # the generation arrives first, its documents in a later segment
        with bench.stage("generation", **{a.QUERY: "Is Dave@Corp.com right?", a.OUTPUT_MESSAGES: answer}):
            pass
        bench.write()
        bench.open().close()
        with bench.stage("retrieval", **{a.RETRIEVAL_DOCUMENTS: documents}):
            pass
    with bench.open() as db:
        found = db.execute("SELECT type, text, in_query, in_documents FROM entities ORDER BY text").fetchall()
    assert found == [
        ("EMAIL_REAL", "carol@corp.com", False, True),
        ("EMAIL_REAL", "dave@corp.com", True, False),
        ("EMAIL_REAL", "erin@corp.com", False, False),
    ]


_WHOLE = json.dumps([{"id": "1", "content": "x", "hash": "h", "chars": 1}])


@pytest.mark.parametrize(
    ("stage", "attribute", "lost", "kept"),
    [
        ("retrieval", a.RETRIEVAL_DOCUMENTS, "documents", "effects"),
        (
            "retrieval",
            a.AFTER_DEFENSE,
            "documents WHERE phase = 'after_defense'",
            "documents WHERE phase = 'retrieved'",
        ),
        ("context", a.IN_PROMPT, "documents WHERE phase = 'in_prompt'", "stages"),
        ("generation", a.OUTPUT_MESSAGES, "generations WHERE response IS NOT NULL", "effects"),
        ("generation", a.INPUT_MESSAGES, "generations WHERE prompt IS NOT NULL", "generations"),
        ("generation", a.EFFECTS, "effects", "generations"),
        (None, a.DECLARED, "claims", "probes"),
        (None, a.PROBE, "probes WHERE attack IS NOT NULL", "claims"),
        (None, a.RUN, "canaries", "probes"),
    ],
)
def test_an_attribute_cut_by_a_length_limit_loses_only_itself(
    bench: Bench, stage: str | None, attribute: str, lost: str, kept: str
) -> None:
    whole = {
        a.PATH: "invoke",
        a.EFFECTS: [effect("m", "response")],
        a.RETRIEVAL_DOCUMENTS: _WHOLE,
        a.RUN_ID: "r",
        a.PROBE_ID: "p",
        a.INPUT_MESSAGES: [{"role": "user", "parts": [{"content": "q"}]}],
        a.DECLARED: {"m": ["response"]},
        a.PROBE: {"attack": "x"},
    } | ({a.STAGE: stage} if stage else {})
    for cut in ('[{"id":"1","content":"x', '{"m":["re', "", "[", '"'):
        with bench.span("s", whole | {attribute: cut}):
            pass
    with bench.open() as db:
        assert db.execute(f"SELECT count(*) FROM {lost}").fetchone() == (0,)
        assert db.execute(f"SELECT count(*) FROM {kept}").fetchone() == (5,)
        for view in CONTRACT:
            db.execute(f"FROM {view}").fetchall()


def _verdicts(bench: Bench, source: dict[tuple[str, str], str] | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    with bench.open() as db:
        for (defense, hook), status in (source or {}).items():
            db.execute(
                "INSERT INTO inventory_data VALUES (?, 'duck', ?, ?, 'app.py', 7, 'because')", [defense, hook, status]
            )
        return {(row["defense"], row["hook"]): row for row in rows(db, "FROM verdicts")}


def _ran(bench: Bench, claims: dict[str, list[str]], *effects: Any) -> None:
    with bench.request(declared=claims):
        with bench.stage("retrieval", effects=[e for e in effects if e["hook"] in ("query", "retrieval", "content")]):
            pass
        with bench.stage("generation", effects=[e for e in effects if e["hook"] in ("prompt", "response")]):
            pass


@pytest.mark.parametrize(
    ("status", "source", "verdict"),
    [
        ("changed", "active", "active"),
        ("changed", None, "active"),
        ("changed", "stub", "active"),
        ("unchanged", "stub", "silent_stub"),
        ("unchanged", "pass_through", "pass_through"),
        ("unchanged", "active", "dormant"),
        ("unchanged", "conditional", "dormant"),
        ("unchanged", None, "dormant"),
        ("unchanged", "unknown", "unknown"),
        ("unchanged", "dead", "pass_through"),
        ("error", "active", "error"),
        ("error", None, "error"),
    ],
)
def test_verdicts_join_source_and_run_time(bench: Bench, status: str, source: str | None, verdict: str) -> None:
    error = {"error": "KeyError"} if status == "error" else {}
    _ran(bench, {"m": ["content"]}, effect("m", "content", status, **error))
    found = _verdicts(bench, {("m", "content"): source} if source else None)[("m", "content")]
    assert (found["verdict"], found["source_status"], found["runtime_status"]) == (verdict, source, status)
    assert (found["runs"], found["changed"], found["errors"]) == (1, status == "changed", status == "error")
    evidence = [f"changed something in {int(status == 'changed')} of 1 runs"]
    evidence += ["failed in 1 (KeyError)"] if status == "error" else []
    evidence += [f"source says {source}: because (app.py:7)"] if source else []
    if source is None and status == "unchanged":
        evidence.append(
            "no source inventory is stored, so a stub cannot be told from a defense that met nothing to change"
        )
    if source == "stub" and status == "changed":
        evidence.append("source and run time disagree: the run time is right")
    if source in ("active", "conditional") and status == "unchanged":
        evidence.append("it met nothing to change in this traffic")
    assert found["evidence"] == "; ".join(evidence)


TRIED = {"email": "changes", "plain": "leaves"}


@pytest.mark.parametrize(
    ("status", "source", "battery", "verdict", "says"),
    [
        ("unchanged", "active", TRIED, "dormant", "the battery says it acts on email; it met nothing to change"),
        ("unchanged", "active", {"email": "leaves"}, "dormant", "could not make it act (3 specimens of 1 families)"),
        ("unchanged", "stub", {"email": "leaves"}, "silent_stub", "could not make it act"),
        ("unchanged", "stub", TRIED, "dormant", "source and battery disagree: the battery is right"),
        ("unchanged", "dead", TRIED, "dormant", "source and battery disagree: the battery is right"),
        ("unchanged", "dead", {"email": "leaves"}, "pass_through", "could not make it act"),
        ("unchanged", "unknown", TRIED, "dormant", "the battery says it acts on email; it met nothing to change"),
        ("unchanged", "unknown", {"email": "leaves"}, "unknown", "could not make it act"),
        ("unchanged", None, {"email": "error"}, "dormant", "the battery could not try it: OSError"),
        ("changed", "active", {"email": "leaves"}, "active", "battery and run time disagree: it acts on what"),
        ("changed", "stub", TRIED, "active", "source and run time disagree: the run time is right"),
        (None, "stub", TRIED, "not_run", "source and battery disagree: the battery is right"),
        (None, None, TRIED, "not_run", "its hook was never crossed here; the battery says it acts on email"),
    ],
)
def test_three_witnesses(bench: Bench, status: Any, source: Any, battery: Any, verdict: str, says: str) -> None:
    if status is not None:
        _ran(bench, {"m": ["content"]}, effect("m", "content", status))
    with bench.open() as db:
        if source is not None:
            db.execute("INSERT INTO inventory_data VALUES ('m', 'duck', 'content', ?, 'app.py', 7, NULL)", [source])
        for family, found in battery.items():
            error = "OSError" if found == "error" else None
            columns, values = "defense, hook, family, status, n, error", [family, found, error]
            db.execute(f"INSERT INTO battery_data ({columns}) VALUES ('m', 'content', ?, ?, 3, ?)", values)
        [row] = rows(db, "FROM verdicts")
    assert (row["verdict"], row["source_status"]) == (verdict, source)
    assert says in row["evidence"]


def test_two_classes_of_one_name(bench: Bench) -> None:
    _ran(bench, {"m": ["content"]}, effect("m", "content", "unchanged"))
    insert = "INSERT INTO inventory_data VALUES ('m', 'duck', 'content', ?, ?, 7, 'because')"
    with bench.open() as db:
        db.execute(insert, ["stub", "b.py"])
        db.execute(insert, ["active", "a.py"])
        [row] = rows(db, "FROM verdicts")
    assert (row["verdict"], row["source_status"]) == ("unknown", "unknown")
    assert "classes of this name differ: active (a.py:7), stub (b.py:7)" in row["evidence"]


def test_verdicts_by_path(bench: Bench) -> None:
    for path, missed in (("invoke", False), ("stream", True), ("stream", True)):
        with bench.request(path, declared={"m": ["response"]}):
            ran = [] if missed else [effect("m", "response")]
            with bench.stage("generation", path, effects=ran):
                pass
    with bench.open() as db:
        found = "SELECT path, crossings, bypassed, runs, changed FROM verdict_paths ORDER BY path"
        assert db.execute(found).fetchall() == [("invoke", 1, 0, 1, 1), ("stream", 2, 2, 0, 0)]


def test_verdicts_of_what_did_not_run(bench: Bench) -> None:
    with bench.request(declared={"m": ["content", "response"]}), bench.stage("generation"):
        pass
    found = _verdicts(bench, {("m", "content"): "active", ("other", "query"): "stub", ("third", "query"): "active"})
    assert {key: row["verdict"] for key, row in found.items()} == {
        ("m", "content"): "not_run",
        ("m", "response"): "bypassed",
        ("other", "query"): "silent_stub",
        ("third", "query"): "not_run",
    }
    assert (
        found[("m", "content")]["evidence"] == "its hook was never crossed here; source says active: because (app.py:7)"
    )
    assert found[("m", "response")]["evidence"] == "its hook was crossed without it in 1 of 1 crossings (path invoke)"


def test_a_defense_that_acts_where_it_does_not_say_is_undeclared(bench: Bench) -> None:
    _ran(bench, {"m": ["content"]}, effect("m", "content"), effect("m", "response"), effect("Compressor", "content"))
    assert {key: row["verdict"] for key, row in _verdicts(bench).items()} == {
        ("m", "content"): "active",
        ("m", "response"): "undeclared",
        ("Compressor", "content"): "active",
    }


def test_evidence_of_an_inventory_without_a_line_stays_readable(bench: Bench) -> None:
    _ran(bench, {"m": ["content"]}, effect("m", "content", "unchanged"))
    with bench.open() as db:
        db.execute("INSERT INTO inventory_data VALUES ('m', 'duck', 'content', 'stub', NULL, NULL, NULL)")
        assert db.execute("SELECT evidence FROM verdicts").fetchone() == (
            "changed something in 0 of 1 runs; source says stub",
        )
