"""In mode ``digest`` a string that stands in every text of an app is in no byte that leaves it. See ``leaving.py``."""

from __future__ import annotations

import gzip
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import duckdb
import pyarrow.parquet as pq
import pytest
from both import FRAMEWORKS, PATHS

import ragtrace

APP = Path(__file__).with_name("leaving.py")
OURS = ("ragtrace", "opentelemetry", "urllib3", "requests")  # loggers: a framework's own say what they like


@contextmanager
def receiver() -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP/HTTP server, and the bodies it was sent, decompressed."""
    bodies: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Encoding"] == "gzip"
            bodies.append(gzip.decompress(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def holds(data: bytes | str, canary: str) -> bool:
    return canary.encode() in (data.encode() if isinstance(data, str) else data).lower()


def left(folder: Path, capture: str, canary: str) -> tuple[dict[str, bool], list[str]]:
    """Where the canary is, by kind of place; and what the app has tried."""
    with receiver() as (endpoint, bodies):
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENINFERENCE_", "RAGTRACE_"))
        }
        done = subprocess.run(
            [sys.executable, str(APP), capture, str(folder), endpoint, canary],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2_000:]
    segments = sorted((folder / "traces.duckdb.spool").glob("*.parquet"))
    found = {
        "segments": any(holds(str(pq.read_table(s).to_pylist()), canary) for s in segments),
        "files before the merge": any(holds(f.read_bytes(), canary) for f in folder.rglob("*") if _scanned(f)),
        "otlp": any(holds(body, canary) for body in bodies),
        "log": any(holds(line, canary) for line in _logged(folder)),
        "standard error": holds(done.stderr, canary),
    }
    with ragtrace.open(folder / "traces.duckdb") as db:
        spans, hits = db.execute("SELECT (SELECT count(*) FROM spans), (SELECT count(*) FROM canary_hits)").fetchall()[
            0
        ]
        found["files while it is open"] = any(holds(f.read_bytes(), canary) for f in folder.rglob("*") if _scanned(f))
    assert spans > 1_000 and segments and bodies and _logged(folder)
    assert (hits > 100) == (capture != "none")  # the app was told what to look for, and says where it stood
    found["files after the merge"] = any(holds(f.read_bytes(), canary) for f in folder.rglob("*") if _scanned(f))
    with duckdb.connect(str(folder / "traces.duckdb"), read_only=True) as plain:
        tables = [name for (name,) in plain.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        found["tables"] = any(holds(str(plain.table(name).fetchall()), canary) for name in tables)
    return found, json.loads(done.stdout.splitlines()[-1])


def _scanned(file: Path) -> bool:
    return file.is_file() and file.name != "log"


def _logged(folder: Path) -> list[str]:
    """What our loggers and OpenTelemetry's said; a message may have several lines."""
    kept, ours = [], False
    for line in (folder / "log").read_text(errors="replace").splitlines():
        name, bar, _ = line.partition(" | ")
        if bar and " " not in name:
            ours = name.startswith(OURS)
        if ours:
            kept.append(line)
    return kept


@pytest.mark.parametrize("capture", ["digest", "none"])
def test_no_byte_of_a_text_leaves(tmp_path: Path, capture: str) -> None:
    found, tried = left(tmp_path, capture, f"zq{secrets.token_hex(8)}")
    assert {place for place, is_there in found.items() if is_there} == set()
    assert len(tried) == len(set(tried)) + 3  # agent, chat and fusion twice
    for framework in FRAMEWORKS:
        for path in PATHS:
            assert f"{framework} {path} model fails at 2" in tried


def test_the_same_search_finds_it_where_texts_are_kept(tmp_path: Path) -> None:
    found, _ = left(tmp_path, "full", f"zq{secrets.token_hex(8)}")
    missing = {place for place, is_there in found.items() if not is_there}
    # compressed in files, so that only what reads them sees it
    assert missing <= {"standard error", "files before the merge", "files while it is open", "files after the merge"}
