"""Opening and merging: each span exactly once, whatever happens on the way."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_fixtures import Bench, rows

import ragtrace
from ragtrace.errors import SchemaVersionError, StoreError
from ragtrace.record import attributes as a
from ragtrace.record.spool import segment_schema
from ragtrace.store import SegmentWarning, add, merge, open_readonly


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t.duckdb")


def _fill(bench: Bench, n: int = 3) -> Path:
    """One segment of ``n`` generations, each with an e-mail address in its answer."""
    for i in range(n):
        answer = [{"role": "assistant", "parts": [{"type": "text", "content": f"write to user{i}@corp.com"}]}]
        with bench.stage("generation", **{a.OUTPUT_MESSAGES: answer}):
            pass
    return bench.write()


def _count(db: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """Spans, different spans, entities."""
    (found,) = db.execute(
        "SELECT count(*), count(DISTINCT (trace_id, span_id)), (SELECT count(*) FROM entities) FROM spans"
    ).fetchall()
    return found


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- each span exactly once -------------------------------------------------------------------------------------------


def test_what_is_merged_leaves_the_spool_and_stays(bench: Bench) -> None:
    _fill(bench)
    for _ in range(2):
        with ragtrace.open(bench.database) as db:
            assert _count(db) == (3, 3, 3)
    assert list(bench.spool.iterdir()) == []


@pytest.mark.parametrize("rename", [False, True])
def test_the_same_segment_twice(bench: Bench, tmp_path: Path, rename: bool) -> None:
    segment = _fill(bench)
    copy = shutil.copy(segment, tmp_path / "kept.parquet")
    ragtrace.open(bench.database).close()
    shutil.copy(copy, bench.spool / ("other-name.parquet" if rename else segment.name))
    with ragtrace.open(bench.database) as db:
        assert _count(db) == (3, 3, 3)
    assert list(bench.spool.iterdir()) == []


def test_the_same_span_in_two_segments_and_twice_in_one(bench: Bench) -> None:
    with bench.span("x"):
        pass
    spans = bench.spans()
    bench.write(spans)
    bench.write(spans * 2)
    with bench.open() as db:
        assert _count(db)[:2] == (1, 1)
    later = bench.write(spans)
    table = pq.read_table(later)  # the same span, as another exporter rounds its times
    starts = pa.array([ns // 10**6 * 10**6 for ns in table["start_time_ns"].to_pylist()])
    pq.write_table(table.set_column(table.schema.get_field_index("start_time_ns"), "start_time_ns", starts), later)
    with bench.open() as db:
        assert _count(db)[:2] == (1, 1)


def test_generations_some_of_which_are_known_and_some_come_twice(bench: Bench) -> None:
    tables = [pq.read_table(_fill(bench, 2)) for _ in range(2)]
    with bench.open() as db:
        assert _count(db) == (4, 4, 4)
    new = [pq.read_table(_fill(bench, 2)) for _ in range(2)]
    for path in bench.spool.iterdir():
        path.unlink()
    mixed = pa.concat_tables([new[0], tables[1], new[1], new[0], tables[0]])
    pq.write_table(mixed, bench.spool / "mixed.parquet")
    with bench.open() as db:
        assert _count(db) == (8, 8, 8)
        told = db.execute("SELECT text, count(*) FROM entities GROUP BY ALL ORDER BY ALL").fetchall()
    assert told == [("user0@corp.com", 4), ("user1@corp.com", 4)]


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_merge_leaves_settings_and_connections_as_they_were(
    bench: Bench, monkeypatch: Any, interrupted: bool, tmp_path: Path
) -> None:
    segments = [_fill(bench).rename(tmp_path / f"{i}.parquet") for i in range(3)]
    settings = "SELECT current_setting('threads'), current_setting('checkpoint_threshold')"
    with bench.open() as db:
        db.execute("SET threads = 3")
        before = db.execute(settings).fetchall(), sys.getswitchinterval()
        if interrupted:
            monkeypatch.setattr("ragtrace.store.merge._CHUNK", 1)
            monkeypatch.setattr("ragtrace.store.merge.find_twins", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                add(db, segments)
        else:
            add(db, segments)
        assert (db.execute(settings).fetchall(), sys.getswitchinterval()) == before
        assert _count(db)[0] == (0 if interrupted else 9)
    open_readonly(bench.database).close()  # cannot be, where anything still has it open to write


def test_a_crash_between_commit_and_removal(bench: Bench, monkeypatch: Any) -> None:
    segment = _fill(bench)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ragtrace.open(bench.database)
    monkeypatch.undo()
    assert segment.exists()
    with bench.open() as db:
        assert _count(db) == (3, 3, 3)
    assert not segment.exists()


@pytest.mark.parametrize("where", ["annotate", "_read"])
def test_an_interrupted_merge_rolls_back_and_is_done_next_time(bench: Bench, monkeypatch: Any, where: str) -> None:
    segment = _fill(bench)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"ragtrace.store.merge.{where}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ragtrace.open(bench.database)
    assert segment.exists()
    with bench.open() as db:
        assert _count(db) == (3, 3, 3)


def test_many_segments_are_merged_in_several_transactions(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(merge, "_CHUNK", 2)
    for _ in range(5):
        _fill(bench, 1)
    with bench.open() as db:
        assert _count(db) == (5, 5, 5)
        assert db.execute("SELECT sum(spans), count(*) FROM segment_data").fetchone() == (5, 5)
    _fill(bench, 2)
    with bench.open() as db:
        assert _count(db) == (7, 7, 7)


def test_chunks_grow_with_the_store(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(merge, "_ROWS", 1)
    taken = []
    insert = merge._insert_chunk
    monkeypatch.setattr(
        merge, "_insert_chunk", lambda db, chunk: taken.append(len(chunk.segments)) or insert(db, chunk)
    )
    for _ in range(18):
        _fill(bench, 1)
    bench.open().close()
    for _ in range(40):
        _fill(bench, 1)
    with bench.open() as db:
        assert _count(db) == (58, 58, 58)
    assert taken == [16, 2, 17, 17, 6]  # 17 is the last row of the 18 that were there
    monkeypatch.setattr(merge, "_LONGEST", 16)
    with bench.open() as db:
        assert merge._size(db) == 16


def test_no_spool_and_an_empty_one(bench: Bench) -> None:
    with ragtrace.open(bench.database) as db:
        assert _count(db) == (0, 0, 0)
    bench.spool.mkdir()
    with ragtrace.open(bench.database) as db:
        assert _count(db) == (0, 0, 0)


def test_add_reports_what_is_new_and_leaves_the_files(bench: Bench, tmp_path: Path) -> None:
    segment = _fill(bench).rename(tmp_path / "a.parquet")
    with ragtrace.open(bench.database) as db:
        assert (add(db, [segment]).spans, add(db, [segment]).spans, add(db, []).spans) == (3, 0, 0)
    assert segment.exists()


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_torn_segments_stay_and_are_named_in_one_warning(bench: Bench) -> None:
    whole = _fill(bench).read_bytes()
    torn = []
    for i, length in enumerate([0, 1, 4, 8, len(whole) // 2, len(whole) - 8, len(whole) - 1]):
        torn.append(bench.spool / f"{i:020d}-torn.parquet")
        torn[-1].write_bytes(whole[:length])
    with pytest.warns(SegmentWarning) as caught, bench.open() as db:
        assert _count(db) == (3, 3, 3)
    assert len(caught) == 1 and all(str(path) in str(caught[0].message) for path in torn)
    assert sorted(bench.spool.iterdir()) == torn
    assert caught[0].filename.endswith("store_fixtures.py")  # where open() was called


def test_a_damaged_segment_stops_nothing(bench: Bench) -> None:
    whole = _fill(bench).read_bytes()
    for i in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[i] ^= 0xFF
        (bench.spool / f"damaged-{i:05d}.parquet").write_bytes(damaged)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SegmentWarning)
        with bench.open() as db:
            assert _count(db) == (3, 3, 3)


def test_strangers_in_the_spool_stay(bench: Bench) -> None:
    segment = _fill(bench)
    table = pq.read_table(segment)
    strangers = {name: bench.spool / f"{name}.parquet" for name in ("stray", "future", "columns", "folder")}
    pq.write_table(pa.table({"x": [1]}), strangers["stray"])
    pq.write_table(table.replace_schema_metadata({"ragtrace.segment": "99"}), strangers["future"])
    pq.write_table(table.drop_columns(["span_id"]), strangers["columns"])
    strangers["folder"].mkdir()
    (bench.spool / ".half.tmp").write_text("a writer at work")
    with pytest.warns(SegmentWarning, match="segment format b'99', expected b'1'") as caught, bench.open() as db:
        assert _count(db) == (3, 3, 3)
    assert all(str(path) in str(caught[0].message) for path in strangers.values())
    assert len(list(bench.spool.iterdir())) == 5 and not segment.exists()


def test_broken_json_in_a_foreign_segment_loses_only_itself(bench: Bench) -> None:
    segment = _fill(bench, 1)
    row = pq.read_table(segment).to_pylist()[0]
    broken = row | {"span_id": "b" * 16, "attributes": '{"cut', "events": "", "resource": None}
    pq.write_table(pa.Table.from_pylist([row, broken], schema=segment_schema()), segment)
    with bench.open() as db:
        assert _count(db) == (2, 2, 1)


def test_a_spool_below_a_hive_like_folder(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "env=prod" / "t.duckdb")
    _fill(bench)
    with bench.open() as db:
        assert _count(db) == (3, 3, 3)


# --- several processes ------------------------------------------------------------------------------------------------

_WRITER = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from ragtrace.record.spool import SpoolExporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(SpoolExporter(sys.argv[1])))
for i in range(40):
    with provider.get_tracer("app").start_as_current_span(f"{sys.argv[2]}-{i}"):
        pass
"""
_OPENER = "import sys, ragtrace; db = ragtrace.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def test_three_writers_and_a_reader_that_opens_again_and_again(bench: Bench) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(bench.database), str(i)]) for i in range(3)]
    opened = 0
    while any(writer.poll() is None for writer in writers) or opened < 3:
        ragtrace.open(bench.database).close()
        opened += 1
        time.sleep(0.05)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    with bench.open() as db:
        assert _count(db)[:2] == (120, 120)
        assert db.execute("SELECT count(DISTINCT name) FROM spans").fetchone() == (120,)


def test_of_two_processes_one_opens_and_the_other_is_told(bench: Bench) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OPENER, str(bench.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        for attempt in (ragtrace.open, open_readonly):
            with pytest.raises(
                StoreError, match=rf"open in another process \(PID {holder.pid}\); close it there, or copy"
            ):
                attempt(bench.database)
        holder.communicate("")
    ragtrace.open(bench.database).close()


def test_twice_in_one_process(bench: Bench) -> None:
    with ragtrace.open(bench.database), ragtrace.open(bench.database) as db:
        assert _count(db) == (0, 0, 0)
        with pytest.raises(StoreError, match="already open in this process"):
            open_readonly(bench.database)


# --- opening ----------------------------------------------------------------------------------------------------------


def test_what_is_created_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "deep" / "t.duckdb"
    with ragtrace.open(file):
        assert {p.name: _mode(p) for p in file.parent.iterdir()} == {"t.duckdb": 0o600, "t.duckdb.wal": 0o600}
    assert _mode(file.parent) == _mode(file.parent.parent) == 0o700
    before = os.umask(0o022)
    os.umask(before)
    assert before != 0o077


def test_home_and_relative_paths(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ragtrace.open("~/a.duckdb").close()
    ragtrace.open("b.duckdb").close()
    open_readonly("~/b.duckdb").close()
    assert {p.name for p in tmp_path.iterdir()} == {"a.duckdb", "b.duckdb"}


def test_what_is_no_database_of_ours(tmp_path: Path) -> None:
    (tmp_path / "corrupt.duckdb").write_bytes(b"not a database" * 1000)
    with duckdb.connect(str(tmp_path / "foreign.duckdb")) as other:
        other.execute("CREATE TABLE t (x INT)")
    duckdb.connect(str(tmp_path / "empty.duckdb")).close()
    (tmp_path / "folder").mkdir()
    said = {
        "corrupt.duckdb": "not a readable DuckDB database",
        "foreign.duckdb": "not one of ragtrace",
        "folder": "is a folder, expected a database file",
        "corrupt.duckdb/t.duckdb": "cannot open .*choose a path",
    }
    for name, message in said.items():
        with pytest.raises(StoreError, match=message):
            ragtrace.open(tmp_path / name)
    with pytest.raises(StoreError, match="not one of ragtrace"):
        open_readonly(tmp_path / "empty.duckdb")
    with pytest.raises(StoreError, match=r"no database at .*ragtrace\.setup"):
        open_readonly(tmp_path / "missing.duckdb")
    with duckdb.connect(str(tmp_path / "foreign.duckdb")) as other:
        assert other.execute("SHOW TABLES").fetchall() == [("t",)]


def test_a_newer_schema_is_refused(bench: Bench) -> None:
    with bench.open() as db:
        db.execute("UPDATE ragtrace_meta SET value = '999' WHERE key = 'schema_version'")
    for attempt in (ragtrace.open, open_readonly):
        with pytest.raises(SchemaVersionError, match=r"schema version 999, .* up to 1; upgrade: pip install"):
            attempt(bench.database)


def test_views_are_renewed_when_their_definition_changed(bench: Bench) -> None:
    _fill(bench)
    with bench.open() as db:
        db.execute("CREATE OR REPLACE VIEW stages AS SELECT 1 AS old")
        db.execute("CREATE VIEW mine AS SELECT 2 AS two")
        db.execute("UPDATE ragtrace_meta SET value = 'an older digest' WHERE key = 'definitions'")
    with bench.open() as db:
        assert db.execute("SELECT count(*), min(stage) FROM stages").fetchone() == (3, "generation")
        assert db.execute("FROM mine").fetchone() == (2,)
        keys = [key for (key,) in db.execute("SELECT key FROM ragtrace_meta ORDER BY key").fetchall()]
        assert keys == ["definitions", "lifted", "outgoing", "schema_version"]


def test_definitions_that_the_file_cannot_take_change_nothing(bench: Bench) -> None:
    with bench.open() as db:
        db.execute("DROP TABLE score_data")
        db.execute("CREATE TABLE score_data (x INT)")
        db.execute("UPDATE ragtrace_meta SET value = 'an older digest' WHERE key = 'definitions'")
    with pytest.raises(StoreError, match=r"cannot take the definitions .* nothing was changed"):
        ragtrace.open(bench.database)
    with duckdb.connect(str(bench.database)) as db:
        assert ("an older digest",) in db.execute("SELECT value FROM ragtrace_meta").fetchall()


def test_every_table_view_and_column_has_a_comment(bench: Bench) -> None:
    with bench.open() as db:
        assert rows(db, "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL AND NOT internal") == []
        assert rows(db, "SELECT view_name FROM duckdb_views() WHERE comment IS NULL AND NOT internal") == []
        assert (
            rows(db, "SELECT table_name, column_name FROM duckdb_columns() WHERE comment IS NULL AND NOT internal")
            == []
        )
        stored = db.execute("SELECT count(*) FROM duckdb_columns() WHERE NOT internal").fetchone()
    assert stored is not None and stored[0] > 150


def test_readonly_reaches_nothing_but_the_database(bench: Bench, tmp_path: Path) -> None:
    _fill(bench)
    bench.open().close()
    frame = pa.table({"x": ["a variable of the caller"]})
    assert frame.num_rows
    with open_readonly(bench.database) as db:
        assert _count(db) == (3, 3, 3)
        for statement in (
            "INSERT INTO score_data VALUES (NULL, NULL, NULL, NULL, NULL, 1)",
            f"COPY spans TO '{tmp_path}/x.csv'",
            f"ATTACH '{tmp_path}/y.duckdb' AS y",
            "FROM read_csv('/etc/passwd')",
            "FROM '/etc/passwd'",
            "FROM glob('/etc/*')",
            "FROM frame",
            "SET enable_external_access = true",
            "PRAGMA threads=9",
            "INSTALL httpfs",
            f"EXPORT DATABASE '{tmp_path}/z'",
        ):
            with pytest.raises(duckdb.Error):
                db.execute(statement).fetchall()
    assert {p.name for p in tmp_path.iterdir()} == {"t.duckdb", "t.duckdb.spool"}


def test_threads_of_one_process_may_open_together(bench: Bench) -> None:
    for _ in range(4):
        _fill(bench, 2)
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: _count(ragtrace.open(bench.database)), range(4)))
    assert counts == [(8, 8, 8)] * 4


def test_the_copies_that_tests_open_are_what_opening_makes(bench: Bench, tmp_path: Path) -> None:
    told = [
        "SELECT table_name, comment, sql FROM duckdb_tables() ORDER BY ALL",
        "SELECT view_name, comment, sql FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
        "SELECT table_name, column_name, column_index, data_type, column_default, is_nullable, comment "
        "FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
        "SELECT table_name, constraint_text FROM duckdb_constraints() ORDER BY ALL",
        "SELECT index_name, sql FROM duckdb_indexes() ORDER BY ALL",
        "SELECT function_name, macro_definition FROM duckdb_functions() WHERE NOT internal ORDER BY ALL",
        "FROM ragtrace_meta ORDER BY ALL",
    ]
    script = "import sys, ragtrace; ragtrace.open(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "made.duckdb")], check=True)
    with bench.open() as copy, duckdb.connect(str(tmp_path / "made.duckdb")) as made:
        assert [rows(copy, query) for query in told] == [rows(made, query) for query in told]
        tables = [name for (name,) in made.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        assert {t: rows(copy, f'FROM "{t}"') for t in tables} == {t: rows(made, f'FROM "{t}"') for t in tables}
    assert bench.database.stat().st_mode == (tmp_path / "made.duckdb").stat().st_mode
