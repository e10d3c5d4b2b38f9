"""The library of named questions: each on rows in and rows out, worked out by hand; parameters, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_store import ask
from store_fixtures import Bench, effect, rows
from typer.testing import CliRunner

from ragtrace import questions
from ragtrace.cli import app
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a

EMAIL = "ann.lee@corp.com"
DECLARED = {"mask": ["response"]}


def _masked(status: str = "changed", **more: Any) -> dict[str, Any]:
    counts = {"chars_before": 40, "chars_after": 10, "duration_us": 2_000, "text_changed": status == "changed"}
    return effect("mask", "response", status, **(counts | more))


def _traffic(bench: Bench) -> None:
    """Three calls: masked on invoke, round the mask on stream, and one whose retriever fails."""
    found = (("d1", f"Write to {EMAIL}."), ("d2", "It rains."))
    common: dict[str, Any] = {"found": found, "declared": DECLARED}
    ask(bench, "r", "none", "p1", "Write to [e-mail].", [_masked()], **common)
    ask(bench, "r", "none", "p2", f"Write to {EMAIL}.", path="stream", **common)
    with (
        pytest.raises(RuntimeError),
        bench.request("invoke", run_id="r", arm="none"),
        bench.stage("retrieval", **{a.RETRIEVAL_QUERY: "?", "error.type": "TimeoutError"}),
    ):
        raise RuntimeError


def _idle(bench: Bench) -> None:
    """A defense that runs twice: once it changes nothing, once it fails."""
    ask(bench, "r", "idle", "p1", "Yes.", [_masked("unchanged")])
    ask(bench, "r", "idle", "p2", "Yes.", [_masked("error", error="ValueError")])


def _planted(bench: Bench) -> None:
    """One canary, retrieved in two traces and given away in one of them."""
    with bench.request(
        run_id="r", probe_id="p0", **{a.RUN: {"canaries": [{"text": "zq-77", "family": "id", "document_id": "d1"}]}}
    ):
        pass
    ask(bench, "r", "none", "p1", "It is zq-77.", found=(("d1", "zq-77"),))
    ask(bench, "r", "none", "p2", "No.", found=(("d1", "zq-77"),))


def _results(bench: Bench) -> None:
    ask(bench, "r", "none", "p1", "Yes.")
    with bench.open() as db:
        for arm, value, low, high, reading in (
            ("none", 0.5, 0.4, 0.6, "interpretable"), ("mask", 0.1, 0.0, 0.2, "interpretable"),
            ("noise", 0.5, 0.3, 0.6, "nuisance"), ("empty", None, None, None, "no data"),
        ):  # fmt: skip
            db.execute(
                "INSERT INTO result_data BY NAME SELECT 'r' AS run_id, ? AS arm, 'canary' AS attack, 'c' AS corpus, "
                "'m' AS metric, ?::DOUBLE AS value, ?::DOUBLE AS ci_low, ?::DOUBLE AS ci_high, 9 AS n, "
                "? AS interpretable",
                [arm, value, low, high, reading],
            )


RULE = "The committee shall meet on the first Monday of each month unless the chair decides otherwise"


def _served(bench: Bench) -> None:
    """Four answers: one quotes d1 and one gives away an address of d2, both to Ann; one to Bob says nothing of his; and
    one of an audit quotes d1."""
    found = [{"id": "d1", "content": RULE}, {"id": "d2", "content": f"Write to {EMAIL}."}]
    audited = {a.RUN_ID: "r", a.PROBE_ID: "p1", a.ARM: "none"}
    for user, route, path, answer, more in (
        ("ann", "/ask", "invoke", f"It says: {RULE}.", {}), ("ann", "/ask", "invoke", f"Ask {EMAIL}.", {}),
        ("bob", "/mail", "stream", "No.", {}), (None, None, "invoke", RULE, audited),
    ):  # fmt: skip
        given = {} if user is None else {a.USER: user, "http.route": route}
        with bench.request(path, **given, **more):
            with bench.stage("retrieval", path, **{a.RETRIEVAL_DOCUMENTS: found, **more}):
                pass
            said = [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]
            with bench.stage("generation", path, **{a.QUERY: "Who?", a.OUTPUT_MESSAGES: said, **more}):
                pass


CASES: dict[str, tuple[Callable[[Bench], None], dict[str, Any], list[dict[str, Any]]]] = {
    "verdicts": (
        _traffic, {},
        [{"defense": "mask", "hook": "response", "verdict": "bypassed", "bypassed_paths": "stream", "changed": 1}],
    ),
    "bypasses": (
        _traffic, {},
        [{"defense": "mask", "hook": "response", "path": "stream", "bypassed": 1, "crossings": 1, "share": 1.0}],
    ),
    "inert": (_idle, {}, [{"defense": "mask", "hook": "response", "runs": 2, "verdict": "error"}]),
    "canaries": (
        _planted, {},
        [
            {"canary": "zq-77", "family": "id", "channel": "response", "traces": 1},
            {"canary": "zq-77", "channel": "prompt", "traces": 2},
            {"canary": "zq-77", "channel": "retrieval", "traces": 2},
        ],
    ),
    "entities_by_path": (
        _traffic, {},
        [{"path": "stream", "type": "EMAIL_REAL", "with_entity": 1, "generations": 1, "share": 1.0}],
    ),
    "defense_cost": (
        _traffic, {}, [{"defense": "mask", "hook": "response", "runs": 1, "median_ms": 2.0, "p95_ms": 2.0, "errors": 0}]
    ),
    "stage_times": (
        _traffic, {},
        [{"calls": 1}, {"calls": 1}, {"calls": 1}, {"calls": 2}],  # 2 generations and 3 retrievals, by path
    ),
    "errors": (
        _traffic, {}, [{"stage": "retrieval", "path": "invoke", "error_type": "TimeoutError", "failures": 1}]
    ),
    "failing_defenses": (_idle, {}, [{"defense": "mask", "path": "invoke", "error": "ValueError", "failures": 1}]),
    "removed": (
        _traffic, {},
        [{"defense": "mask", "changes": 1, "characters_left": 0.25, "documents_left": None, "text_changed": 1}],
    ),
    "models": (_traffic, {}, [{"model": "m", "calls": 2, "failures": 0}]),
    "documents": (
        _traffic, {"limit": 1}, [{"document_id": "d1", "retrieved": 2, "in_prompts": 0, "mean_rank": 1.0}]
    ),
    "trace": (
        _planted, {},
        [
            {"span": "pipeline Chain", "defenses": None},
            {"span": "  retrieval X"},
            {"span": "  generation X"},
        ],
    ),
    "losses": (_traffic, {}, []),
    "readable": (_results, {}, [{"arm": "mask", "value": 0.1}, {"arm": "none", "value": 0.5}]),
    "versus_undefended": (
        _results, {},
        [{"arm": "mask", "undefended": 0.5, "change": -0.4, "intervals_apart": True},
         {"arm": "noise", "change": 0.0, "intervals_apart": False}],
    ),
    "most_exposed_documents": (
        _served, {},
        [
            {"document_id": "d1", "quoting": 2, "with_entities": 0, "answers": 4, "longest_run": 16},
            {"document_id": "d2", "quoting": 0, "with_entities": 1, "answers": 4, "longest_run": 4,
             "entities_leaked": 1},
        ],
    ),
    "quoting_answers": (
        _served, {"words": 3},
        [{"path": "invoke", "quoting": 3, "answers": 3, "share": 1.0, "longest_run": 16, "unmeasured": 0},
         {"path": "stream", "quoting": 0, "answers": 1, "share": 0.0, "longest_run": 0, "unmeasured": 0}],
    ),
    "exposure_by_user": (
        _served, {},
        [{"who": "ann", "answers": 2, "quoting": 1, "documents_quoted": 1, "entities_leaked": 1, "longest_run": 16},
         {"who": "bob", "answers": 1, "quoting": 0, "documents_quoted": 0, "entities_leaked": 0, "longest_run": 0}],
    ),
    "exposure_by_route": (
        _served, {"words": 5},
        [{"route": None, "path": "invoke", "answers": 1, "quoting": 1, "share": 1.0, "with_entities": 0},
         {"route": "/ask", "path": "invoke", "answers": 2, "quoting": 1, "share": 0.5, "with_entities": 1},
         {"route": "/mail", "path": "stream", "answers": 1, "quoting": 0, "share": 0.0, "with_entities": 0}],
    ),
    "unanswered": (
        _traffic, {},
        [{"path": "invoke", "without": 0, "generations": 1}, {"path": "stream", "without": 0, "generations": 1}],
    ),
}  # fmt: skip


def _asked(db: duckdb.DuckDBPyConnection, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    question = questions.find(name)
    bound = question.bound([f"{k}={v}" for k, v in values.items()])
    answer = db.execute(question.sql, bound)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def test_every_question_has_a_case() -> None:
    assert set(CASES) == set(questions.load())


@pytest.mark.parametrize("name", sorted(CASES))
def test_rows_in_and_rows_out(name: str, tmp_path: Path) -> None:
    fill, values, expected = CASES[name]
    bench = Bench(tmp_path / "t.duckdb")
    fill(bench)
    with bench.open() as db:
        found = _asked(db, name, values)
    if name == "stage_times":
        found.sort(key=lambda row: row["calls"])
    assert [{key: row[key] for key in want} for row, want in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_empty_store_gives_no_rows(name: str, tmp_path: Path) -> None:
    with Bench(tmp_path / "t.duckdb").open() as db:
        assert _asked(db, name, {}) == []


def test_every_question_says_what_its_rows_are() -> None:
    for question in questions.load().values():
        assert question.title.endswith("?"), question.name
        assert question.description.startswith("One row"), question.name
        for name, parameter in question.parameters.items():
            assert f"${name}" in question.sql
            assert parameter.meaning


def test_one_trace_by_its_id(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    _traffic(bench)
    with bench.open() as db:
        [first] = rows(db, "SELECT trace_id FROM generations WHERE path = 'invoke'")
        found = _asked(db, "trace", {"trace": first["trace_id"]})
    assert [row["defenses"] for row in found] == [None, None, "mask · response · changed"]


def test_from_the_command_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    _traffic(bench)
    bench.open().close()
    run = CliRunner().invoke
    shown = run(app, ["ask", "documents", "limit=1", "--db", str(bench.database)])
    assert shown.exit_code == 0, shown.output
    assert "Which documents are retrieved most?" in shown.output
    assert "d1" in shown.output and "d2" not in shown.output
    told = run(app, ["ask", "documents", "--db", str(bench.database), "--format", "json"])
    assert [row["document_id"] for row in json.loads(told.stdout)] == ["d1", "d2"]
    listed = run(app, ["ask", "LIST", "--format", "json"])
    assert {row["name"] for row in json.loads(listed.stdout)} == set(CASES)
    assert all(name in run(app, ["ask"]).output for name in CASES)
    assert run(app, ["ask", "verdicts", "--sql"]).output.strip() == questions.find("verdicts").sql


def test_a_question_of_ones_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    _traffic(bench)
    bench.open().close()
    own = tmp_path / "mine.sql"
    own.write_text("-- How many?\n-- :least NUMBER 0.5 no fewer\nSELECT count(*) AS n FROM stages HAVING n > $least")
    told = CliRunner().invoke(app, ["ask", str(own), "least=2", "--db", str(bench.database), "--format", "json"])
    assert json.loads(told.stdout) == [{"n": 5}]
    own.write_text("-- How much?\nSELECT current_setting('memory_limit') AS held")
    told = CliRunner().invoke(app, ["ask", str(own), "--db", str(bench.database), "--format", "json", "--memory", "4"])
    assert json.loads(told.stdout) == [{"held": "3.7 GiB"}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["verdict"], "did you mean verdicts?"),
        (["no-such-thing"], "`ragtrace ask list` names them"),
        (["documents", "limit"], "expected some of: limit=<integer>"),
        (["documents", "limits=3"], "expected some of: limit=<integer>"),
        (["documents", "limit=3; DROP TABLE span_data"], "expected limit=<integer>: rows of the answer"),
        (["verdicts", "limit=3"], "expected some of: none"),
        (["absent.sql"], "cannot read the question in absent.sql"),
    ],
)
def test_what_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(app, ["ask", *words], catch_exceptions=False, standalone_mode=False)
    assert says in str(caught.value)


def test_the_list_in_other_formats(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["ask", "list", "--format", "csv"])
    names = [line.split(",")[0].strip('"') for line in told.stdout.splitlines()]
    assert names == ["question", *questions.load()]
    CliRunner().invoke(app, ["ask", "list", "--format", "json", "--out", str(tmp_path / "list.json")])
    assert [row["question"] for row in json.loads((tmp_path / "list.json").read_text())] == names[1:]


@pytest.mark.parametrize("text", ["", "SELECT 1", "-- only a title?", "\n\n"])
def test_a_file_that_is_no_question(text: str) -> None:
    with pytest.raises(UsageError, match="expected a first line"):
        questions.parse("odd", text)


@given(st.text())
def test_no_value_of_a_parameter_becomes_sql(value: str) -> None:
    question = questions.find("trace")
    assert question.bound([f"trace={value}"]) == {"trace": value}
