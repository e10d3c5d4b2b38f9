"""Space given back, traces that are too old, people and documents forgotten, databases that are encrypted."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_fixtures import Bench, rows
from typer.testing import CliRunner

import ragtrace
from ragtrace import cli
from ragtrace.errors import StoreError, UsageError
from ragtrace.record.tally import Tally
from ragtrace.store import SegmentWarning, compact, forget, open_readonly
from ragtrace.store.retention import age

PLANTED = b"PLANTED"


def _chat(bench: Bench, user: str, document: str, n: int = 1, **more: Any) -> None:
    """``n`` requests of one user about one document; both are in every text."""
    for i in range(n):  # each text another one, so that none is stored as a number in a dictionary
        text = f"PLANTED-{user}-{document} met Ann Lee <ann.lee@corp.com> {i} times"
        said = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
        with bench.request(**{"user.id": user, **more}):
            with bench.stage("retrieval", **{"gen_ai.retrieval.documents": [{"id": document, "content": text}]}):
                pass
            with bench.stage("generation", **{"gen_ai.output.messages": said}):
                pass


def _bytes(bench: Bench) -> bytes:
    """Everything beside and in the database: log, spool, whatever else was left."""
    return b"".join(f.read_bytes() for f in sorted(bench.database.parent.rglob("*")) if f.is_file())


def _count(database: Path, table: str = "spans") -> int:
    with open_readonly(database) as connection:
        [(n,)] = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(n)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "t.duckdb")
    _chat(bench, "ann", "d1", 40)
    _chat(bench, "bob", "d2", 40)
    bench.open().close()
    bench.database.chmod(0o600)  # as ragtrace.open makes it
    return bench


@pytest.mark.parametrize(("what", "id"), [("user", "ann"), ("document", "d1")])
def test_forgotten_texts_are_nowhere_in_the_bytes(bench: Bench, what: str, id: str) -> None:
    entities = _count(bench.database, "entities")
    assert _bytes(bench).count(b"PLANTED-ann") > 40 and entities >= 160
    assert forget(bench.database, what, id)[:2] == (40, 120)
    assert b"PLANTED-ann" not in _bytes(bench)
    assert _bytes(bench).count(b"PLANTED-bob") > 40
    assert (_count(bench.database), _count(bench.database, "entities")) == (120, entities // 2)
    assert {f.name for f in bench.database.parent.iterdir()} <= {"t.duckdb", "t.duckdb.spool"}


def test_segments_that_wait_are_forgotten_too(bench: Bench) -> None:
    _chat(bench, "ann", "d3", 2)
    bench.write()
    _chat(bench, "eve", "d3", 1)
    bench.write()
    assert forget(bench.database, "user", "ann")[:2] == (42, 126)
    assert b"PLANTED-ann" not in _bytes(bench) and not list(bench.spool.glob("*.parquet"))
    assert _bytes(bench).count(b"PLANTED-eve")


def test_a_segment_that_cannot_be_read_is_named(bench: Bench) -> None:
    _chat(bench, "ann", "d3")
    segment = bench.write()
    segment.write_bytes(segment.read_bytes()[:-50])
    with pytest.warns(SegmentWarning), pytest.raises(StoreError, match="40 traces of this user are deleted, but 1 seg"):
        forget(bench.database, "user", "ann")
    assert _count(bench.database) == 120
    assert segment.exists()


@pytest.mark.parametrize(
    ("what", "attributes"),
    [
        ("user", {"user.id": "x"}),
        ("user", {"enduser.id": "x"}),
        ("user", {"traceloop.association.properties.user_id": "x"}),
        ("session", {"session.id": "x"}),
        ("session", {"langfuse.session.id": "x"}),
        ("conversation", {"gen_ai.conversation.id": "x"}),
    ],
)
def test_whose_a_trace_is(tmp_path: Path, what: str, attributes: Any) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    for scope, mine in (("ragtrace", attributes), ("app", attributes), ("app", dict.fromkeys(attributes, "y"))):
        with bench.span("root", scope=scope), bench.span("child", mine, scope=scope):
            pass
    bench.open().close()
    assert forget(bench.database, what, "x")[:2] == (2, 4)
    assert forget(bench.database, what, "x")[:2] == (0, 0)
    assert _count(bench.database) == 2


def test_one_trace(bench: Bench) -> None:
    with open_readonly(bench.database) as connection:
        [(trace,)] = connection.execute("SELECT trace_id FROM spans LIMIT 1").fetchall()
    assert forget(bench.database, "trace", trace.upper())[:2] == (1, 3)


def test_numbers_of_forgotten_probes_go_those_of_old_ones_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    for arm in ("none", "mask"):
        for probe, document in (("p1", "d1"), ("p2", "d2")):
            _chat(bench, "auditor", document, run_id="r", probe_id=probe, arm=arm)
    with bench.request(run_id="r", probe_id="p3", arm="none", **{"ragtrace.probe": {"target_id": "d1"}}):
        pass
    with bench.open() as db:
        for run in ("r", "other"):
            for arm in ("none", "mask"):
                for probe in ("p1", "p2", "p3"):
                    db.execute("INSERT INTO score_data VALUES (?, ?, ?, 'a', 'm', 1)", [run, probe, arm])
            for probe in ("p1", "p2"):
                db.execute("INSERT INTO likelihood_data (run_id, probe_id) VALUES (?, ?)", [run, probe])
            db.execute("INSERT INTO result_data (run_id, value) VALUES (?, 1)", [run])
    (tmp_path / "old.duckdb").write_bytes(bench.database.read_bytes())

    assert forget(bench.database, "document", "d1") == (3, 7, 1)
    with open_readonly(bench.database) as db:
        left = db.execute("SELECT run_id, probe_id, arm FROM scores WHERE run_id = 'r' ORDER BY ALL").fetchall()
        assert left == [("r", "p2", "mask"), ("r", "p2", "none"), ("r", "p3", "mask")]
        assert db.execute("SELECT count(*) FROM scores WHERE run_id = 'other'").fetchall() == [(6,)]
        assert db.execute("SELECT run_id FROM results").fetchall() == [("other",)]
        assert db.execute("SELECT run_id, probe_id FROM likelihood_data ORDER BY ALL").fetchall() == [
            ("other", "p1"), ("other", "p2"), ("r", "p2"),
        ]  # fmt: skip

    assert compact(tmp_path / "old.duckdb", timedelta(0)).removed[:2] == (5, 13)
    with open_readonly(tmp_path / "old.duckdb") as db:
        for table, n in (("span_data", 0), ("entity_data", 0), ("scores", 12), ("results", 2), ("likelihood_data", 2)):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchall() == [(n,)], table


def test_only_what_ended_long_ago_is_old(bench: Bench) -> None:
    day = 86_400 * 1_000_000_000
    with ragtrace.open(bench.database) as db:
        db.execute(
            "UPDATE span_data SET start_ns = start_ns - 40 * $day, end_ns = end_ns - 40 * $day "
            "WHERE trace_id IN (SELECT trace_id FROM span_data WHERE attributes->>'user.id' = 'ann')",
            {"day": day},
        )
        db.execute(  # of a trace that goes on, the beginning
            "UPDATE span_data SET start_ns = start_ns - 40 * $day, end_ns = end_ns - 40 * $day "
            "WHERE stage = 'retrieval' AND contains(attributes, 'PLANTED-bob')",
            {"day": day},
        )
    assert compact(bench.database, timedelta(days=41)).removed == (0, 0, 0)
    done = compact(bench.database, timedelta(days=30))
    assert done.removed == (40, 120, 0)
    assert b"PLANTED-ann" not in _bytes(bench)


def test_space_is_given_back_and_all_else_is_as_it_was(bench: Bench) -> None:
    with ragtrace.open(bench.database) as db:
        db.execute("CREATE TABLE big AS SELECT hash(range) AS h FROM range(1000000)")
        db.execute("CHECKPOINT")
        db.execute("CREATE TABLE mine AS SELECT hash(range) AS answer FROM range(100000)")  # behind the hole
        db.execute("CHECKPOINT")
        db.execute("DROP TABLE big")
    queries = (
        "SELECT * FROM spans ORDER BY ALL", "SELECT * FROM documents ORDER BY ALL", "SELECT * FROM mine",
        "SELECT * FROM entities ORDER BY ALL",
        "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
    )  # fmt: skip
    with open_readonly(bench.database) as db:
        before = [db.execute(query).fetchall() for query in queries]
    done = compact(bench.database)
    assert done.before > 4_000_000 > done.after == bench.database.stat().st_size
    assert bench.database.stat().st_mode & 0o777 == 0o600
    with open_readonly(bench.database) as db:
        assert [db.execute(query).fetchall() for query in queries] == before
    with ragtrace.open(bench.database) as db:
        assert db.execute("SELECT count(*) FROM spans").fetchall() == [(240,)]


def test_the_old_file_survives_a_full_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = bench.database.read_bytes()
    monkeypatch.setattr("ragtrace.store.compacting._sync", full)
    with pytest.raises(StoreError, match=r"No space left on device.*is as it was.*make room"):
        compact(bench.database)
    assert bench.database.read_bytes() == before
    assert [f.name for f in bench.database.parent.iterdir() if "compact" in f.name] == []
    monkeypatch.undo()
    compact(bench.database)
    assert _count(bench.database) == 240


def test_killed_when_the_new_file_is_in_its_place(bench: Bench) -> None:
    code = (
        "import os, sys; from ragtrace.store import compacting, forget\n"
        "compacting._sync = lambda path: os.kill(os.getpid(), 9) if path.is_dir() else None\n"
        "forget(sys.argv[1], 'user', 'ann')"
    )
    assert subprocess.run([sys.executable, "-c", code, bench.database], check=False).returncode == -9
    assert b"PLANTED-ann" not in _bytes(bench), "nor in a log that would be read with the new file"
    assert _count(bench.database) == 120


def test_killed_while_rewriting(bench: Bench) -> None:
    code = (
        "import os, sys; from ragtrace.store import compacting\n"
        "compacting._sync = lambda path: os.kill(os.getpid(), 9)\n"
        "compacting.compact(sys.argv[1])"
    )
    killed = subprocess.run([sys.executable, "-c", code, bench.database], check=False)
    assert killed.returncode == -9
    left = [f for f in bench.database.parent.iterdir() if f.name.endswith(".compact")]
    assert len(left) == 1 and left[0].stat().st_mode & 0o777 == 0o600
    assert _count(bench.database) == 240
    forget(bench.database, "user", "ann")
    assert b"PLANTED-ann" not in _bytes(bench) and not left[0].exists()


def test_halves_of_segments_go_when_their_writer_is_gone(bench: Bench) -> None:
    living = Tally(bench.spool)
    halves = {name: bench.spool / f".00-1-{name}-1.tmp" for name in (living.process, "deadbeef", "recent")}
    for path in halves.values():
        path.write_bytes(b"PLANTED-ann")
    for name in (living.process, "deadbeef"):
        os.utime(halves[name], (time.time() - 3_600,) * 2)
    compact(bench.database)
    assert [name for name, path in halves.items() if path.exists()] == [living.process, "recent"]
    living.close()


def test_open_elsewhere(bench: Bench) -> None:
    with ragtrace.open(bench.database), pytest.raises(StoreError, match="open in this process, 1 times"):
        forget(bench.database, "user", "ann")
    assert _count(bench.database) == 240


def test_a_link_stays_a_link(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    bench.database.rename(tmp_path / "real" / "t.duckdb")
    bench.database.symlink_to(tmp_path / "real" / "t.duckdb")
    assert forget(bench.database, "user", "ann")[:2] == (40, 120)
    assert bench.database.is_symlink() and b"PLANTED-ann" not in _bytes(bench)


@pytest.mark.parametrize(("text", "hours"), [("30d", 720), ("12h", 12), ("4W", 672), ("0d", 0)])
def test_ages(text: str, hours: int) -> None:
    assert age(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30m", "999999d", "²d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(UsageError, match="expected a whole number of hours, days or weeks"):
        age(text)


def test_command_line(bench: Bench) -> None:
    runner = CliRunner()
    db = ["--db", str(bench.database)]
    assert (
        runner.invoke(cli.app, ["forget", *db, "--user", "ann"]).output
        == "40 traces (120 spans) and 0 results deleted\n"
    )
    answer = runner.invoke(cli.app, ["compact", *db, "--older-than", "1d"])
    assert answer.output.startswith("0 traces (0 spans) older than 1d removed\n") and answer.exit_code == 0
    for wrong in (["forget", *db], ["forget", *db, "--user", "a", "--trace", "b"], ["forget", *db, "--user", ""]):
        assert isinstance(runner.invoke(cli.app, wrong).exception, UsageError)
    gone = runner.invoke(cli.app, ["compact", "--db", str(bench.database) + ".missing"])
    assert isinstance(gone.exception, StoreError)


def _encrypted(path: Path, source: Path, key: str) -> None:
    """Another DuckDB, with httpfs, would have made this."""
    with duckdb.connect() as connection:
        connection.execute("SET force_mbedtls_unsafe = true")
        connection.execute("ATTACH ? AS made (ENCRYPTION_KEY ?)", [str(path), key])
        connection.execute("ATTACH ? AS source (READ_ONLY)", [str(source)])
        connection.execute("COPY FROM DATABASE source TO made")


@pytest.mark.skipif(duckdb.__version__ < "2", reason="an older DuckDB writes with the crypto that it brings")
def test_no_plain_text_where_encryption_was_asked_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect() as plain:
        try:
            plain.execute("LOAD httpfs")
        except duckdb.Error:
            pass
        else:
            pytest.skip("httpfs is installed here")
    path = bench.database.with_name("new.duckdb")
    monkeypatch.setenv("RAGTRACE_DB_KEY", "correct horse")
    with pytest.raises(StoreError, match="only with its extension httpfs, which is not installed; nothing was written"):
        ragtrace.open(path)
    with pytest.raises(StoreError, match="not encrypted"):
        ragtrace.open(bench.database)
    assert not path.exists()
    monkeypatch.setenv("RAGTRACE_DB_KEY", "")
    with pytest.raises(StoreError, match="empty"):
        ragtrace.open(path)


@pytest.mark.skipif(duckdb.__version__ < "1.5", reason="an older DuckDB has no such setting")
def test_an_encrypted_database_is_read_with_its_key(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.database.with_name("made.duckdb")
    _encrypted(path, bench.database, 'it\'s "quoted"')
    assert PLANTED not in path.read_bytes()
    with open_readonly(path, key='it\'s "quoted"') as connection:
        assert len(rows(connection, "SELECT * FROM documents")) == 80
    monkeypatch.setenv("RAGTRACE_DB_KEY", 'it\'s "quoted"')
    answer = CliRunner().invoke(
        cli.app, ["sql", "--db", str(path), "SELECT count(*) AS n FROM spans", "--format", "csv"]
    )
    assert answer.output == '"n"\n240\n'
    monkeypatch.delenv("RAGTRACE_DB_KEY")
    with pytest.raises(StoreError, match="is encrypted, and no key is given"):
        open_readonly(path)
    with pytest.raises(StoreError, match="does not open with this key") as refused:
        open_readonly(path, key="wrong horse")
    assert "wrong horse" not in str(refused.value)
