"""What became of every span: counted whatever happens to the disk, the queue or the process; the app never waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ragtrace
from ragtrace.errors import UsageError
from ragtrace.record import queueing, spool, tally
from ragtrace.record.spool import SpoolExporter, spool_of

COUNTS = "ended, written, dropped, failed, rotated, unwritten, killed, lost, alive"


def losses(database: Path) -> list[tuple[Any, ...]]:
    with ragtrace.open(database) as db:
        return db.execute(f"SELECT {COUNTS} FROM losses ORDER BY started_at").fetchall()


def spans(tracing: Any, n: int) -> None:
    tracer = tracing.provider.get_tracer("app")
    for i in range(n):
        with tracer.start_as_current_span(f"s{i}"):
            pass


def run(code: str, folder: Path, returncode: int = 0) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, timeout=120, capture_output=True, text=True)
    assert done.returncode == returncode, done.stderr


def test_nothing_is_lost_where_nothing_happens(tmp_path: Path) -> None:
    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    spans(tracing, 10)
    tracing.flush()
    assert losses(tmp_path / "t.duckdb") == [(10, 10, 0, 0, 0, 0, 0, 0, True)]
    spans(tracing, 5)
    assert losses(tmp_path / "t.duckdb") == [(15, 10, 0, 0, 0, 5, 0, 0, True)], "alive: they may still come"
    tracing.shutdown()
    assert losses(tmp_path / "t.duckdb") == [(15, 15, 0, 0, 0, 0, 0, 0, False)]
    assert not list(spool_of(tmp_path / "t.duckdb").glob(".*.tally")), (
        "of a process that is gone the numbers are stored"
    )
    assert losses(tmp_path / "t.duckdb") == [(15, 15, 0, 0, 0, 0, 0, 0, False)]


def test_a_full_queue_drops_counts_and_says_so_once(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    stuck, begun = threading.Event(), threading.Event()
    write = SpoolExporter._write

    def slow(self: SpoolExporter, rows: Any) -> None:
        begun.set()
        assert stuck.wait(60)
        write(self, rows)

    monkeypatch.setattr(SpoolExporter, "_write", slow)
    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    spans(tracing, 8)
    assert begun.wait(60)  # the disk hangs with these eight in its hands
    spans(tracing, 12)
    stuck.set()
    tracing.flush()
    spans(tracing, 3)
    tracing.shutdown()
    assert losses(tmp_path / "t.duckdb") == [(23, 11, 12, 0, 0, 0, 0, 12, False)]
    assert [r.message for r in caplog.records if "drops spans" in r.message] == [
        "ragtrace drops spans: 8 wait to be written; the view losses counts them"
    ]


def test_what_the_disk_refuses_is_counted(tmp_path: Path, monkeypatch: Any) -> None:
    tracing = ragtrace.setup(tmp_path / "t.duckdb")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spool.pq, "write_table", full)
        spans(tracing, 4)
        tracing.flush()
    spans(tracing, 2)
    tracing.shutdown()
    assert losses(tmp_path / "t.duckdb") == [(6, 2, 0, 4, 0, 0, 0, 4, False)]


def test_a_killed_process_loses_what_it_had_not_written_and_that_is_counted(tmp_path: Path) -> None:
    run(
        """
import os, ragtrace
tracing = ragtrace.setup("t.duckdb")
tracer = tracing.provider.get_tracer("app")
for i in range(30):
    tracer.start_span("x").end()
    if i == 19:
        tracing.flush()
os.kill(os.getpid(), 9)
""",
        tmp_path,
        -9,
    )
    assert losses(tmp_path / "t.duckdb") == [(30, 20, 0, 0, 0, 10, 10, 10, False)]
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert db.execute("SELECT count(*) FROM spans").fetchone() == (20,)


def test_a_segment_that_was_not_counted_before_the_kill_is_no_loss(tmp_path: Path) -> None:
    run(
        """
import os, ragtrace
from ragtrace.record.queueing import SpoolProcessor
tracing = ragtrace.setup("t.duckdb")
SpoolProcessor.left = lambda self, n, became: os.kill(os.getpid(), 9)
for i in range(7):
    tracing.provider.get_tracer("app").start_span("x").end()
tracing.flush()
""",
        tmp_path,
        -9,
    )
    assert losses(tmp_path / "t.duckdb") == [(7, 7, 0, 0, 0, 0, 0, 0, False)]


def test_a_forked_worker_counts_for_itself(tmp_path: Path) -> None:
    run(
        """
import os, ragtrace
tracing = ragtrace.setup("t.duckdb")
tracer = tracing.provider.get_tracer("app")
for _ in range(3): tracer.start_span("before").end()
child = os.fork()
for _ in range(2 if child == 0 else 4): tracer.start_span("x").end()
tracing.flush()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
""",
        tmp_path,
    )
    found = losses(tmp_path / "t.duckdb")
    assert sorted(row[:2] for row in found) == [(2, 2), (7, 7)], "what waited at the fork is the parent's to write"
    assert all(row[-2:] == (0, False) for row in found)


def test_the_oldest_segments_go_beyond_the_limit(tmp_path: Path) -> None:
    exporter = SpoolExporter(tmp_path / "t.duckdb", "full", limit=2**20)
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full", spool_limit=2**20)
    tracer = tracing.provider.get_tracer("app")
    noise = os.urandom(60_000).hex()
    for i in range(40):
        tracer.start_span(f"{i:02d}", attributes={"noise": noise[i:] + noise[:i]}).end()
        tracing.flush()
    folder = spool_of(tmp_path / "t.duckdb")
    segments = sorted(folder.glob("*.parquet"))
    assert sum(s.stat().st_size for s in segments) <= exporter.limit * 1.2
    names = [pq.read_table(s)["name"][0].as_py() for s in segments]
    assert names == [f"{i:02d}" for i in range(40 - len(names), 40)], "the newest stay"
    tracing.shutdown()
    ((ended, written, _, _, rotated, *_, lost, _),) = losses(tmp_path / "t.duckdb")
    assert (ended, written, rotated, lost) == (40, 40, 40 - len(names), 40 - len(names))


@pytest.mark.parametrize("limit", [0, 2**20 - 1, "1GB", True])
def test_a_limit_that_is_none(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(UsageError, match="spool_limit is"):
        ragtrace.setup(tmp_path / "t.duckdb", spool_limit=limit)


@pytest.mark.parametrize("content", [b"", b"x" * 512, tally.MAGIC + b"\0" * 504, b"ragtall1" + b"\xff" * 504])
def test_a_torn_or_foreign_tally_is_left_alone(tmp_path: Path, content: bytes) -> None:
    folder = spool_of(tmp_path / "t.duckdb")
    folder.mkdir()
    file = folder / f".0-1-abc{tally.SUFFIX}"
    file.write_bytes(content)
    assert tally.read(file) is None
    assert losses(tmp_path / "t.duckdb") == []
    assert file.exists()


def test_without_a_file_the_app_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    def refused(*_: Any) -> None:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(tally.mmap, "mmap", refused)
        tracing = ragtrace.setup(tmp_path / "t.duckdb")
    spans(tracing, 3)
    tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert db.execute("SELECT count(*) FROM spans").fetchone() == (3,)


def test_a_queue_size_that_is_no_number_is_the_default(monkeypatch: Any) -> None:
    for value in ("many", "0", "-5"):
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", value)
        assert queueing._queue_size() == queueing.QUEUE


def test_an_exporter_that_raises_blocks_no_queue(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")

    def raises(*_: Any) -> None:
        raise RuntimeError("no")

    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    with monkeypatch.context() as patch:
        patch.setattr(SpoolExporter, "export", raises)
        for _ in range(3):
            spans(tracing, 4)
            tracing.flush()
    spans(tracing, 2)
    tracing.shutdown()
    assert losses(tmp_path / "t.duckdb") == [(14, 2, 0, 12, 0, 0, 0, 12, False)]
