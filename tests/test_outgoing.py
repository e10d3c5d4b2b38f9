"""What observed defenses left of answers stands with the model call, in whatever order the spans came."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_fixtures import Bench, effect, rows

from ragtrace.record import attributes as a
from ragtrace.store import forget

# What the views say of it was once a join of all that was told: the reference.
REFERENCE = """
WITH told AS (
    SELECT trace_id, span_id AS left_by, start_ns, unnest(try(from_json(attributes->>'ragtrace.responses.left',
        '[{"span":"VARCHAR","chars":"BIGINT","hash":"VARCHAR","content":"VARCHAR","statistics":"JSON"}]'))) AS r
    FROM span_data WHERE dialect = 'ragtrace' AND contains(effects, '"kept":true')
)
SELECT told.trace_id, r.span AS span_id, r.content AS content, r.hash AS hash, r.chars AS chars,
    r.statistics AS computed, left_by
FROM told JOIN span_data s ON s.trace_id = told.trace_id AND s.span_id = r.span
QUALIFY row_number() OVER (PARTITION BY told.trace_id, r.span ORDER BY told.start_ns DESC, left_by DESC) = 1
ORDER BY ALL
"""
TOLD = "SELECT trace_id, span_id, content, hash, chars, computed, left_by FROM changed_responses ORDER BY ALL"
SAID = [{"role": "assistant", "parts": [{"content": "the secret"}]}]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t.duckdb")


def _left(span: str, text: str) -> dict[str, Any]:
    statistics = {"looked_for": 1, "canaries": []}
    row = {"span": span, "chars": len(text), "hash": f"h-{text}", "content": text, "statistics": statistics}
    ran = json.dumps([effect("mask", "response", kept=True)], separators=(",", ":"))  # as the app writes it
    return {a.EFFECTS: ran, a.RESPONSES_LEFT: [row]}


def _answer(bench: Bench, *texts: str) -> None:
    """A model call, and what masks behind it left of the answer, one after another."""
    with bench.request():
        with bench.stage("generation", **{a.OUTPUT_MESSAGES: SAID}) as call:
            span = f"{call.get_span_context().span_id:016x}"
        for text in texts:
            with bench.span("defense mask", _left(span, text)):
                pass


def _same(db: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    found = rows(db, TOLD)
    assert found == rows(db, REFERENCE)
    return found


def test_the_last_of_them_counts_and_an_answer_that_nobody_changed_stays(bench: Bench) -> None:
    _answer(bench, "first", "last")
    _answer(bench)
    with bench.open() as db:
        [found] = _same(db)
        assert (found["content"], found["chars"], found["hash"]) == ("last", 4, "h-last")
        assert json.loads(found["computed"]) == {"looked_for": 1, "canaries": []}
        said = rows(db, "SELECT response, model_output, response_hash, response_chars FROM generations ORDER BY ALL")
        assert said[0] == {
            "response": "last", "model_output": "the secret", "response_hash": "h-last", "response_chars": 4,
        }  # fmt: skip
        assert said[1]["response"] == "the secret"


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_spans_may_come_in_any_order(bench: Bench, order: tuple[int, ...]) -> None:
    _answer(bench, "first", "last")
    spans = bench.spans()[:3]
    assert [span.name for span in spans] == ["generation X", "defense mask", "defense mask"]
    for place, number in enumerate(order):
        bench.write([spans[number]])
        with bench.open() as db:
            _same(db), place
    with bench.open() as db:
        assert [row["content"] for row in _same(db)] == ["last"]
        assert rows(db, "FROM outgoing_data") == []


def test_the_call_may_lie_far_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragtrace.store.outgoing._BACK", 1)
    _answer(bench, "left")
    call, told, root = bench.spans()
    bench.write([call])
    for _ in range(3):
        _answer(bench)
    bench.write()
    bench.open().close()
    bench.write([told, root])
    with bench.open() as db:
        assert [row["content"] for row in _same(db)] == ["left"]


def test_an_older_store_is_told_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragtrace.store.outgoing._PIECE", 3)
    for number in range(4):
        _answer(bench, f"left {number}", f"then {number}")
    _answer(bench, "waits")
    bench.write(bench.spans()[:-3] + bench.spans()[-2:])
    with bench.open() as db:
        before = _same(db)
        db.execute("ALTER TABLE span_data DROP COLUMN outgoing")
        db.execute("DROP TABLE outgoing_data")
        db.execute("DELETE FROM ragtrace_meta WHERE key = 'outgoing'")
        db.execute("UPDATE ragtrace_meta SET value = 'an older digest' WHERE key = 'definitions'")
    with bench.open() as db:
        assert _same(db) == before
        assert len(before) >= 4
        db.execute("UPDATE span_data SET outgoing = NULL")
    with bench.open() as db:
        assert rows(db, TOLD) == []  # not once more


def test_what_waits_is_forgotten_with_its_trace(bench: Bench) -> None:
    _answer(bench, "zqxwaits")
    bench.write(bench.spans()[1:])
    with bench.open() as db:
        [(trace, content)] = db.execute("SELECT trace_id, content FROM outgoing_data").fetchall()
        assert content == "zqxwaits"
    forget(bench.database, "trace", trace)
    assert b"zqxwaits" not in bench.database.read_bytes()
    with bench.open() as db:
        assert rows(db, "FROM outgoing_data") == []
