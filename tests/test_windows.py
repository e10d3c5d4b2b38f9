"""Large stores: the request of each span, found at its merge; the views of some hours."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_fixtures import Bench, effect, rows

from ragtrace.record import attributes as a
from ragtrace.store import in_memory
from ragtrace.store.windows import WINDOWED

DECLARED = {"mask": ["response"]}
EVER = "'2000-01-01', '2200-01-01'"
REQUESTS = "SELECT trace_id, span_id, request_id FROM requests ORDER BY ALL"
NOON = int(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp() * 1e9)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t.duckdb")


def _request(bench: Bench, ran: bool = True, path: str = "invoke") -> None:
    with bench.request(path, declared=DECLARED), bench.span("theirs", scope="other"):
        with bench.stage("retrieval", path, **{"gen_ai.retrieval.query.text": "who?"}):
            pass
        with bench.stage("generation", path, **({"effects": [effect("mask", "response")]} if ran else {})):
            pass


def _looked_up(db: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """As an older store has it: nothing was found when it was merged."""
    db.execute("BEGIN")
    db.execute("UPDATE span_data SET request_id = NULL")
    found = rows(db, REQUESTS)
    db.execute("ROLLBACK")
    return found


def test_the_request_of_a_span_is_found_when_it_is_merged(bench: Bench) -> None:
    _request(bench)
    with bench.request(), bench.request("stream"), bench.stage("generation"):
        pass  # a root inside a root: the nearest counts
    with bench.stage("retrieval"):
        pass  # none at all
    with bench.open() as db:
        assert rows(db, REQUESTS) == _looked_up(db)
        assert rows(db, "SELECT stage, count(*) AS n FROM span_data WHERE request_id = '' GROUP BY ALL") == [
            {"stage": "retrieval", "n": 1}
        ]
        assert rows(db, "FROM span_data WHERE request_id IS NULL AND dialect = 'ragtrace'") == []
        assert len(rows(db, REQUESTS)) == 6


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_a_root_and_what_lies_between_may_come_in_any_order(bench: Bench, order: tuple[int, ...]) -> None:
    _request(bench)
    spans = bench.spans()
    assert len(spans) == 4
    for place, number in enumerate(order):
        bench.write([spans[number]])
        with bench.open() as db:
            assert rows(db, REQUESTS) == _looked_up(db), place
    with bench.open() as db:
        assert len(rows(db, REQUESTS)) == 3
        assert rows(db, "FROM span_data WHERE request_id IS NULL AND dialect = 'ragtrace'") == []


def test_a_span_that_is_its_own_ancestor_has_no_request(bench: Bench) -> None:
    with bench.stage("retrieval"):
        pass
    with bench.open() as db:
        db.execute("UPDATE span_data SET request_id = NULL, parent_span_id = span_id")
        assert rows(db, REQUESTS) == []


def test_each_window_over_all_times_is_the_view(bench: Bench) -> None:
    _request(bench)
    _request(bench, ran=False, path="stream")
    with bench.open() as db:
        for view in WINDOWED:
            assert rows(db, f"FROM {view}_between({EVER}) ORDER BY ALL") == rows(db, f"FROM {view} ORDER BY ALL"), view
        assert len(rows(db, f"FROM coverage_between({EVER})")) == 2


def test_a_trace_counts_where_it_began(bench: Bench) -> None:
    _request(bench)
    with bench.open() as db:
        # begun two seconds before noon; the answer, and the defense on it, half a minute after
        db.execute("UPDATE span_data SET start_ns = ?, end_ns = ?", [NOON - 2_000_000_000, NOON + 60_000_000_000])
        db.execute("UPDATE span_data SET start_ns = ? WHERE stage = 'generation'", [NOON + 30_000_000_000])
        before, after = "'2026-05-04 11:00', '2026-05-04 12:00'", "'2026-05-04 12:00', '2026-05-04 13:00'"
        for view in ("coverage", "effects", "generations", "verdicts"):
            assert rows(db, f"FROM {view}_between({before})") == rows(db, f"FROM {view}"), view
            assert rows(db, f"FROM {view}_between({after})") == [], view
        assert [row["ran"] for row in rows(db, f"FROM coverage_between({before})")] == [True]


def test_windows_answer_on_an_empty_store_and_say_what_they_are() -> None:
    with in_memory() as db:
        for view in WINDOWED:
            assert rows(db, f"FROM {view}_between({EVER})") == [], view
        told = rows(
            db, "SELECT function_name FROM duckdb_functions() WHERE function_name LIKE '%_between' AND comment <> ''"
        )
        assert {row["function_name"] for row in told} == {f"{view}_between" for view in WINDOWED}


def test_canaries_that_were_planted_before_are_looked_for(bench: Bench) -> None:
    with bench.span("run", {a.RUN_ID: "r", a.RUN: {"canaries": [{"text": "zephyr-1", "family": "phrase"}]}}):
        pass
    for text in ("say zephyr-1", "say nothing"):
        with bench.request(), bench.stage("generation", **{a.OUTPUT_MESSAGES: [{"parts": [{"content": text}]}]}):
            pass
    with bench.open() as db:
        db.execute("UPDATE span_data SET start_ns = ? WHERE run_id IS NULL", [NOON])
        db.execute("UPDATE span_data SET start_ns = ? WHERE run_id IS NOT NULL", [NOON - 10 * 86_400_000_000_000])
        found = rows(db, "FROM canary_hits_between('2026-05-04', '2026-05-05')")
        assert [(row["canary"], row["channel"]) for row in found] == [("zephyr-1", "response")]
        assert found == rows(db, "FROM canary_hits")
        assert rows(db, "FROM canary_hits_between('2026-05-03', '2026-05-04')") == []
