"""What the merge reads out of spans before they are inserted, against what each span says by itself."""

from __future__ import annotations

import gc
import json
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import ragtrace
from ragtrace.ingest.busy import busy
from ragtrace.ingest.dialects import _shapes
from ragtrace.ingest.translate import translated
from ragtrace.record import attributes as a
from ragtrace.record.spool import SpoolExporter, segment_schema
from ragtrace.store import add, add_tables, in_memory, lifting
from ragtrace.store.lifting import COLUMNS, LIFTED, lifted
from ragtrace.store.merge import _numbered
from ragtrace.store.requests import with_requests

ROOT, STAGE = {a.PATH: "invoke"}, {a.PATH: "invoke", a.STAGE: "retrieval"}


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with in_memory() as connection:
        yield connection


def table(*spans: dict[str, Any]) -> pa.Table:
    """A table as a segment holds it; a span says what is not as in all of them."""
    made = []
    for number, span in enumerate(spans):
        attributes = span.get("attributes", {})
        text = attributes if isinstance(attributes, str | None) else json.dumps(attributes)
        made.append(
            {
                "trace_id": span.get("trace", "t"), "span_id": span.get("id", f"s{number}"),
                "parent_span_id": span.get("parent"), "name": "n", "kind": "INTERNAL", "start_time_ns": number,
                "end_time_ns": number, "status": "OK", "service": "app", "scope": span.get("scope", a.SCOPE),
                "attributes": text, "events": "[]", "resource": "{}",
            }
        )  # fmt: skip
    return pa.Table.from_pylist(made, schema=segment_schema())


def prepared(db: duckdb.DuckDBPyConnection, spans: pa.Table) -> pa.Table:
    return with_requests(lifted(db, _numbered(translated(spans))))


def told(span: dict[str, Any], spans: list[dict[str, Any]]) -> str | None:
    """The request of a span, found by walking up, one step at a time."""
    first = {(s["trace"], s["id"]): s for s in reversed(spans)}
    seen = set()
    here = span
    while span["scope"] == a.SCOPE:
        if here["scope"] == a.SCOPE and here["attributes"] == ROOT:
            return str(here["id"])
        if here["parent"] is None:
            return ""
        above = first.get((here["trace"], here["parent"]))
        if above is None or id(above) in seen:
            return None
        seen.add(id(above))
        here = above
    return None


@pytest.mark.parametrize("seed", range(20))
def test_the_request_of_each_span_is_found_by_walking_up(db: duckdb.DuckDBPyConnection, seed: int) -> None:
    source = random.Random(seed)
    ids = [f"s{i}" for i in range(12)]
    spans = [
        {
            "trace": source.choice("tuv"), "id": source.choice(ids), "parent": source.choice([*ids, None, "gone"]),
            "attributes": source.choice([ROOT, STAGE, STAGE, {}]), "scope": source.choice([a.SCOPE] * 3 + ["other"]),
        }
        for _ in range(60)
    ]  # fmt: skip
    once = list({(s["trace"], s["id"]): s for s in reversed(spans)}.values())[::-1]
    once.sort(key=spans.index)
    given = prepared(db, table(*spans))
    assert given["span_id"].to_pylist() == [span["id"] for span in once]
    found = given["request_id"].to_pylist()
    assert found == [told(span, spans) for span in once]
    assert set(found) - {None}


def test_a_long_way_up(db: duckdb.DuckDBPyConnection) -> None:
    spans = [{"attributes": ROOT}] + [{"parent": f"s{i}", "attributes": STAGE} for i in range(1_000)]
    assert set(prepared(db, table(*spans))["request_id"].to_pylist()) == {"s0"}


def test_a_root_that_comes_twice_in_one_merge(tmp_path: Path, db: duckdb.DuckDBPyConnection) -> None:
    spool = SpoolExporter(tmp_path / "t.duckdb", "full")
    root, child = {"id": "r", "attributes": ROOT}, {"id": "c", "parent": "r", "attributes": STAGE}
    spool.write(table(root, child, root))
    spool.write(table(root))
    assert add(db, sorted(spool.folder.glob("*.parquet"))).spans == 2
    rows = db.execute("SELECT span_id, request_id FROM span_data ORDER BY span_id").fetchall()
    assert rows == [("c", "r"), ("r", "r")]


TEXTS = ["{}", '{"a":1}', "null", "[1]", '"x"', "1", "", " ", "{", '{"a":NaN}', '{"a":1,}', '{"a":1} x',
         '{"a":"\\ud800"}', '{"a":"\x01"}', '{"a":"\\u0000"}', "{'a':1}", "/**/{}", None]  # fmt: skip


def test_attributes_that_are_no_json_are_null_and_keep_no_other_out(
    tmp_path: Path, db: duckdb.DuckDBPyConnection
) -> None:
    spool = SpoolExporter(tmp_path / "t.duckdb", "full")
    for scope in (a.SCOPE, "other"):
        spool.write(table(*({"id": f"{scope}{i}", "attributes": t, "scope": scope} for i, t in enumerate(TEXTS))))
    assert add(db, sorted(spool.folder.glob("*.parquet"))).spans == 2 * len(TEXTS)
    stored = db.execute("SELECT attributes::VARCHAR FROM span_data ORDER BY scope, start_ns").fetchall()
    cast = [db.execute("SELECT try_cast(? AS JSON)::VARCHAR", [text]).fetchall()[0] for text in TEXTS]
    assert stored == cast * 2 and (None,) in cast and ("{}",) in cast
    assert db.execute("SELECT count(*) FROM span_data WHERE json_valid(attributes)").fetchall() == [
        (2 * sum(text is not None for (text,) in cast),)
    ]


def test_what_is_lifted_is_what_each_attribute_says(db: duckdb.DuckDBPyConnection) -> None:
    values = {name: f"of {name}" for name in LIFTED}
    found = lifted(db, _numbered(translated(table({"attributes": values}, {"attributes": "{"}, {"scope": None}))))
    assert found["lifted"].to_pylist() == [list(values.values()), None, [None] * len(LIFTED)]
    assert found["ours"].to_pylist() == [True, True, False]


def test_what_a_stranger_says_in_our_names_is_no_column(tmp_path: Path, db: duckdb.DuckDBPyConnection) -> None:
    spool = SpoolExporter(tmp_path / "t.duckdb", "full")
    spool.write(table({"scope": "other", "attributes": {a.RUN_ID: "r", a.STAGE: "generation", a.EFFECTS: "[]"}}))
    add(db, sorted(spool.folder.glob("*.parquet")))
    assert db.execute("SELECT run_id, stage, effects, dialect FROM span_data").fetchall() == [
        (None, None, None, "otel")
    ]


def test_the_order_of_rows_is_kept_where_a_connection_keeps_none(db: duckdb.DuckDBPyConnection) -> None:
    db.execute("SET preserve_insertion_order = false")
    db.execute("SET threads = 4")
    many = table(*({"attributes": {a.RUN_ID: str(i)}} for i in range(20_000)))
    found = lifted(db, _numbered(translated(many)))["lifted"].to_pylist()
    assert [row[LIFTED.index(a.RUN_ID)] for row in found] == [str(i) for i in range(20_000)]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("spans", [0, 3])
def test_texts_of_any_type_are_taken(db: duckdb.DuckDBPyConnection, text: pa.DataType, spans: int) -> None:
    root, child = {"id": "r", "attributes": ROOT}, {"id": "c", "parent": "r", "attributes": STAGE}
    many = translated(table(root, child, {"id": "x", "scope": "other", "attributes": "{"})).slice(0, spans)
    given = many.cast(pa.schema([f.with_type(text if f.type == pa.string() else f.type) for f in many.schema]))
    assert add_tables(db, [given]) == spans
    rows = db.execute("SELECT span_id, request_id, stage, attributes->>'ragtrace.path' FROM span_data").fetchall()
    assert rows == [("r", "r", None, "invoke"), ("c", "r", "retrieval", "invoke"), ("x", None, None, None)][:spans]


def _interpreter() -> tuple[float, tuple[int, int, int]]:
    return sys.getswitchinterval(), gc.get_threshold()


def test_the_interpreter_is_as_before_when_the_last_one_leaves() -> None:
    before = _interpreter()
    first, second = ExitStack(), ExitStack()
    first.enter_context(busy())
    inside = _interpreter()
    second.enter_context(busy())
    first.close()
    assert _interpreter() == inside != before
    second.close()
    assert _interpreter() == before
    with pytest.raises(ZeroDivisionError), busy():
        raise ZeroDivisionError
    assert _interpreter() == before


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(0)
        with busy():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_keys_that_are_remembered_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shapes, "_REMEMBERED", 8)
    known = frozenset(("content",))
    for number in range(50):
        long = {f"docs.{number}.content": "x", "docs.{}.content".format("9" * 200): "y", f"other.{number}": 1}
        assert _shapes.flat_rows(long, "docs", known) is None  # a number of 200 digits is none
        del long["docs.{}.content".format("9" * 200)]
        assert _shapes.flat_rows(long, "docs", known) == [{"content": "x"}]
    remembered = _shapes._PLACES["docs"]
    assert len(remembered) <= 8 and all(len(key) < 100 for key in remembered)


def test_a_database_from_before_there_were_request_ids_gets_them(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    spool = SpoolExporter(database, "full")
    spool.write(table({"id": "r", "attributes": ROOT}, {"id": "c", "parent": "r", "attributes": STAGE}))
    told = "SELECT span_id, request_id FROM span_data ORDER BY span_id"
    with ragtrace.open(database) as connection:
        asked = connection.execute("FROM requests ORDER BY ALL").fetchall()
        for (view,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
            connection.execute(f'DROP VIEW IF EXISTS "{view}"')
        connection.execute("ALTER TABLE span_data DROP COLUMN request_id")
        connection.execute("UPDATE ragtrace_meta SET value = 'older' WHERE key = 'definitions'")
    with ragtrace.open(database) as connection:
        assert connection.execute(told).fetchall() == [("c", "r"), ("r", None)]
        assert (
            connection.execute("FROM requests ORDER BY ALL").fetchall() == asked == [("t", "c", "r"), ("t", "r", "r")]
        )


def test_a_database_from_before_there_were_columns_for_ids_gets_them(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    spool = SpoolExporter(database, "full")
    spool.write(
        table(
            {"id": "r", "attributes": ROOT | {a.CONVERSATION: "c", a.SESSION: "s"}},
            {"id": "o", "scope": "other", "attributes": {"enduser.id": "u"}},
            {"id": "q", "parent": "r", "attributes": STAGE | {a.RETRIEVAL_QUERY: "why?"}},
            {"id": "n"}, {"id": "x", "attributes": "{"},
        )
    )  # fmt: skip
    told = f"SELECT span_id, {', '.join(COLUMNS)} FROM span_data ORDER BY rowid"
    with ragtrace.open(database) as connection:
        before = connection.execute(told).fetchall()
        sessions = connection.execute("FROM sessions ORDER BY ALL").fetchall()
        for (view,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
            connection.execute(f'DROP VIEW IF EXISTS "{view}"')
        for column in COLUMNS:
            connection.execute(f"ALTER TABLE span_data DROP COLUMN {column}")
        connection.execute("DELETE FROM ragtrace_meta WHERE key = ?", [lifting.KEY])
        connection.execute("UPDATE ragtrace_meta SET value = 'older' WHERE key = 'definitions'")
    with ragtrace.open(database) as connection:
        assert connection.execute(told).fetchall() == before
        assert connection.execute("FROM sessions ORDER BY ALL").fetchall() == sessions
    assert before == [
        ("r", "c", "s", None, None), ("o", None, None, "u", None), ("q", None, None, None, "why?"),
        ("n", None, None, None, None), ("x", None, None, None, None),
    ]  # fmt: skip
