"""The view canary_hits finds what a plain search finds, whatever canaries look like, however they came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_fixtures import Bench

from ragtrace.canaries import FAMILIES, mint
from ragtrace.record import attributes as a
from ragtrace.store import forget
from ragtrace.store.canary_search import search_for_planted

ODD = [
    "a.c",
    "abc",
    "bcd",
    "abcd",
    "it's",
    "tab\tand\nline",
    "(1) 555-0001",
    "é☃\u202e",
    "\\d+|x",
    "[z]*",
    "KVR-00000001",
    "x\x1by",
]
TEXTS = [
    *ODD,
    "axc",
    "xabcdx",
    "xxbcdxx",
    "IT'S",
    "it's it's",
    "\\d",
    "zz",
    "",
    "abc\x00abcd",
    "kvr-00000001",
    "KVR-000000012",
]
Hit = tuple[str, str, str]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "traces.duckdb")
    yield made
    made.provider.shutdown()


def plant(bench: Bench, run: str, canaries: list[str]) -> None:
    planted = [{"text": c, "family": "id", "document_id": "d"} for c in canaries]
    with bench.span("run", {a.RUN_ID: run, a.RUN: {"canaries": planted}}):
        pass


def say(bench: Bench, texts: list[str], run: str | None = None) -> None:
    for text in texts:
        messages = [{"role": "assistant", "parts": [{"content": text}]}]
        given: dict[str, Any] = {a.OUTPUT_MESSAGES: messages} | ({a.RUN_ID: run} if run else {})
        with bench.stage("generation", **given):
            pass


def hits(db: duckdb.DuckDBPyConnection) -> list[Hit]:
    return db.execute(
        "SELECT response, canary, run FROM (SELECT trace_id, span_id, canary, run_id AS run FROM canary_hits) "
        "JOIN generations USING (trace_id, span_id) ORDER BY ALL"
    ).fetchall()


def expected(texts: list[str], planted: dict[str, list[str]], run: str | None = None) -> list[Hit]:
    return sorted((t, c, r) for t in texts for r, cs in planted.items() if run in (None, r) for c in cs if c in t)


def searched(db: duckdb.DuckDBPyConnection) -> str:
    [(digest,)] = db.execute("SELECT searched_for()").fetchall()
    return str(digest)


def test_odd_canaries_are_found_as_a_plain_search_finds_them(bench: Bench) -> None:
    plant(bench, "r", ODD)
    say(bench, TEXTS)
    with bench.open() as db:
        assert searched(db)  # the macros are in use
        assert db.execute("SELECT may_hold_canary('axc'), may_hold_canary('a.c')").fetchall() == [(False, True)]
        assert hits(db) == expected(TEXTS, {"r": ODD})


def test_traffic_is_searched_for_every_runs_canaries_and_an_audit_for_its_own(bench: Bench) -> None:
    plant(bench, "r1", ["one"])
    plant(bench, "r2", ["two", "one"])
    say(bench, ["one and two"])
    say(bench, ["one, two"], "r1")
    with bench.open() as db:
        both = {"r1": ["one"], "r2": ["two", "one"]}
        assert hits(db) == sorted(expected(["one and two"], both) + expected(["one, two"], both, "r1"))


def test_canaries_that_come_later_are_looked_for_in_what_is_there(bench: Bench) -> None:
    say(bench, ["early and late"])
    plant(bench, "r", ["early"])
    with bench.open() as db:
        first = searched(db)
    plant(bench, "s", ["late"])
    with bench.open() as db:
        assert searched(db) != first
        assert [canary for _, canary, _ in hits(db)] == ["early", "late"]


def test_where_the_patterns_are_not_those_of_the_canaries_every_text_is_searched(bench: Bench) -> None:
    plant(bench, "r", ["one"])
    say(bench, ["one two"])
    with bench.open() as db:
        added = json.dumps({a.RUN: {"canaries": [{"text": "two", "family": "id"}]}})
        db.execute(
            "INSERT INTO span_data BY NAME SELECT 't' AS trace_id, 's' AS span_id, 'ragtrace' AS dialect, "
            "'r' AS run_id, ?::JSON AS attributes",
            [added],
        )
        assert [canary for _, canary, _ in hits(db)] == ["one", "two"]
        search_for_planted(db)
        assert db.execute("SELECT may_hold_canary('two')").fetchall() == [(True,)]
        assert [canary for _, canary, _ in hits(db)] == ["one", "two"]


@pytest.mark.parametrize(("count", "used"), [(1_500, True), (4_000, False)])
def test_thousands_of_canaries_take_several_patterns_and_too_many_none(bench: Bench, count: int, used: bool) -> None:
    if used:
        many = mint(count // 5, 1, tuple(FAMILIES))
    else:
        many = [f"{i:05d}" + "x" * 60 for i in range(count)]
    plant(bench, "r", many)
    texts = [f"say {many[3]} and {many[-1]}", "nothing", many[700]]
    say(bench, texts)
    with bench.open() as db:
        assert bool(searched(db)) is used
        assert hits(db) == expected(texts, {"r": many})


def test_one_too_long_to_be_a_pattern_is_found_all_the_same(bench: Bench) -> None:
    long = "y" * 10_000
    plant(bench, "r", [long, "short"])
    say(bench, [f"a {long} b", "short"])
    with bench.open() as db:
        assert not searched(db)
        assert [canary for _, canary, _ in hits(db)] == [long, "short"]


def test_an_empty_canary_stands_in_every_text(bench: Bench) -> None:
    plant(bench, "r", ["", "one"])
    say(bench, ["two"])
    with bench.open() as db:
        assert hits(db) == [("two", "", "r")]


def test_no_canary_of_a_forgotten_run_stays_in_the_file(bench: Bench) -> None:
    plant(bench, "r", ["zqxforgetme"])
    with bench.open() as db:
        [(trace,)] = db.execute("SELECT trace_id FROM span_data").fetchall()
        assert searched(db)
    assert b"zqxforgetme" in bench.database.read_bytes()
    forget(bench.database, "trace", trace)
    assert b"zqxforgetme" not in bench.database.read_bytes()
    with bench.open() as db:
        assert not searched(db)
        assert db.execute("SELECT may_hold_canary('anything')").fetchall() == [(True,)]


EVER = "'2000-01-01', '2200-01-01'"


def _of_day(db: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Found by a glance at the stored attributes first; checked against the search that reads every text."""
    found = db.execute(f"FROM canary_hits_between({EVER}) ORDER BY ALL").fetchall()
    assert found == db.execute("FROM canary_hits ORDER BY ALL").fetchall()
    return found


@pytest.mark.parametrize("canaries", [["KVR-00000001", "it's", 'a "b" cdef'], ODD, mint(8, 1, tuple(FAMILIES))])
def test_a_glance_at_the_attributes_leaves_no_hit_out(bench: Bench, canaries: list[str]) -> None:
    plant(bench, "r", canaries)
    say(bench, [f"so {canary}!" for canary in canaries] + ["nothing", "KVR-0000000"])
    with bench.open() as db:
        assert searched(db)
        assert len(_of_day(db)) >= len(canaries)


def test_a_glance_spares_the_traces_without_any(bench: Bench) -> None:
    plant(bench, "r", ["KVR-00000001"])
    say(bench, ["KVR-00000001", "nothing", "é"])
    with bench.open() as db:
        [(suspected,)] = db.execute(
            "SELECT count(*) FROM suspected_traces JOIN generations USING (trace_id)"
        ).fetchall()
        assert suspected == 1


@pytest.mark.parametrize("text", ["\\u004bVR-00000001", "\\\\u004bVR-00000001"])
def test_letters_that_are_escaped_by_number_are_read(bench: Bench, text: str) -> None:
    plant(bench, "r", ["KVR-00000001"])
    say(bench, ["PUTHERE"])
    with bench.open() as db:
        db.execute("UPDATE span_data SET attributes = replace(attributes::VARCHAR, 'PUTHERE', ?)::JSON", [text])
        assert len(_of_day(db)) == 1


def test_a_text_that_another_span_points_at_is_found(bench: Bench) -> None:
    plant(bench, "r", ["KVR-00000001"])
    found = [{"id": "d", "hash": "h", "content": "see KVR-00000001"}]
    with bench.request():
        with bench.stage("retrieval", **{a.RETRIEVAL_DOCUMENTS: found}):
            pass
        with bench.stage("retrieval", **{a.AFTER_DEFENSE: [{"id": "d", "hash": "h"}]}):
            pass
    with bench.open() as db:
        assert {row[4] for row in _of_day(db)} == {"retrieval", "content"}
