"""The receiver as a process of its own: stock exporters send to it, it is drained, it is killed."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from ingest_fixtures import otlp, span
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from store_fixtures import Bench
from typer.testing import CliRunner

import ragtrace
from ragtrace import cli
from ragtrace.collect import serve
from ragtrace.errors import StoreError, UsageError

_MAIN = [sys.executable, "-W", "error", "-c", "from ragtrace.cli import main; main()"]
CANARY = "canary-7f3a9"


class Running:
    """A receiver that runs."""

    def __init__(self, process: subprocess.Popen[str], database: Path) -> None:
        self.process, self.database = process, database
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.match(r"listening on (http://[^/]+:(\d+)/v1/traces); spans go to (.+)", said)
        assert found and Path(found[3]) == database.with_name("t.duckdb.spool"), said
        self.url, self.port = found[1], int(found[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextmanager
def _running(database: Path, *arguments: str, **environment: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [*_MAIN, "collect", "--db", str(database), "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        yield Running(process, database)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with _running(tmp_path / "t.duckdb") as made:
        yield made


def _tracing(exporter: OTLPSpanExporter) -> TracerProvider:
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=64))
    return provider


@pytest.mark.parametrize("compression", Compression)
def test_a_stock_exporter_sends_to_it(running: Running, compression: Compression) -> None:
    provider = _tracing(OTLPSpanExporter(running.url, compression=compression))
    tracer = provider.get_tracer("app")
    for i in range(500):
        with tracer.start_as_current_span("outer"), tracer.start_as_current_span("chat m") as inner:
            inner.set_attributes(
                {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "n": i, "l": [1.5, 2.0]}
            )
            inner.add_event("e", {"k": CANARY})
    provider.shutdown()
    code, out, err = running.stop()
    assert (code, out, err) == (0, "stopped; everything that was confirmed is in the spool\n", "")
    with ragtrace.open(running.database) as db:
        assert db.execute("SELECT service, count(*), count(DISTINCT span_id) FROM spans GROUP BY ALL").fetchall() == [
            ("shop", 1000, 1000)
        ]
        assert db.execute("SELECT stage, model, count(*) FROM stages GROUP BY ALL").fetchall() == [
            ("generation", "m", 500)
        ]
        assert db.execute(
            "SELECT sum((attributes->>'n')::INT), count(DISTINCT parent_span_id), min(attributes->>'l'), "
            "min(events->0->'attributes'->>'k') FROM spans WHERE name = 'chat m'"
        ).fetchall() == [(124_750, 500, "[1.5,2.0]", CANARY)]


def test_our_own_spans_come_through_as_ours(running: Running) -> None:
    bench = Bench(running.database.with_name("direct.duckdb"))
    documents = [{"id": "d1", "content": f"text {CANARY}", "score": 0.5}]
    with (
        bench.request(declared={"mask": ["content"]}),
        bench.stage("retrieval", **{"gen_ai.retrieval.documents": documents}),
    ):
        pass
    spans = bench.spans()
    assert OTLPSpanExporter(running.url).export(spans) is SpanExportResult.SUCCESS
    bench.write(spans)
    assert running.stop()[0] == 0
    queries = (
        "SELECT * FROM documents",
        "SELECT * FROM coverage",
        "SELECT * FROM stages",
        "SELECT * FROM spans ORDER BY 2",
    )
    with ragtrace.open(running.database) as sent, bench.open() as direct:
        for query in queries:
            told = sent.execute(query).fetchall()
            assert told and told == direct.execute(query).fetchall()


def test_a_request_under_way_is_answered_before_it_ends(running: Running) -> None:
    content = json.dumps(otlp(span())).encode()
    head = (
        "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with running.connect() as slow:
        slow.sendall(head.encode() + content[:10])
        with running.connect() as other:  # its answer says that the first one has been taken up too
            other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while other.recv(4096):
                pass
        running.process.send_signal(signal.SIGTERM)
        while True:  # until nobody is let in any more
            try:
                running.connect().close()
            except OSError:
                break
        slow.sendall(content[10:])
        answer = b""
        while b"{}" not in answer and (piece := slow.recv(4096)):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200")
    assert running.process.wait(60) == 0
    with ragtrace.open(running.database) as db:
        assert db.execute("SELECT count(*) FROM spans").fetchall() == [(1,)]


def test_a_signal_before_the_server_s_own_handlers_ends_it(tmp_path: Path) -> None:
    """``say`` is called between ours and uvicorn's: the signal comes at the worst time, each time."""
    app = """
import os, signal, sys
from pathlib import Path
from ragtrace.collect import serve

for number in [signal.SIGTERM, signal.SIGINT] * 5:
    said = []
    def say(line):
        said.append(line.split()[0])
        if len(said) == 1:
            os.kill(os.getpid(), number)
    serve(Path(sys.argv[1]), port=0, say=say)
    print(*said)
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", app, str(tmp_path / "t.duckdb")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["listening stopped;"] * 10


def test_a_signal_right_after_the_line_ends_it(tmp_path: Path) -> None:
    for _ in range(10):
        with _running(tmp_path / "t.duckdb") as started:
            code, out, errors = started.stop()
        assert (code, errors) == (0, "") and out.startswith("stopped")


def test_killed_it_has_what_it_confirmed(running: Running) -> None:
    confirmed: set[str] = set()
    ready = threading.Event()

    def send(sender: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            for i in range(100_000):
                id = f"{sender + 1:04x}{i:012x}"
                content = json.dumps(otlp(span(spanId=id)))
                connection.request("POST", "/v1/traces", content, {"Content-Type": "application/json"})
                with connection.getresponse() as answer:
                    answer.read()
                if answer.status == 200:
                    confirmed.add(id)
                if len(confirmed) > 100:
                    ready.set()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    assert ready.wait(60)
    running.process.kill()
    for thread in threads:
        thread.join(60)
    running.process.wait(60)
    with ragtrace.open(running.database) as db:
        stored = db.execute("SELECT span_id FROM spans").fetchall()
    assert len(stored) == len(set(stored)) and confirmed <= {id for (id,) in stored}


def test_a_stock_exporter_comes_again_when_it_is_told_to(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x.duckdb")
    with _running(tmp_path / "t.duckdb", "--rate", "1") as running:
        exporter = OTLPSpanExporter(running.url)
        for i in range(4):
            with bench.span(f"s{i}"):
                pass
            assert exporter.export(bench.spans()) is SpanExportResult.SUCCESS, "after a 429 and the time that it says"
        exporter.shutdown()
        assert running.stop()[0] == 0
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert db.execute("SELECT count(*) FROM spans").fetchall() == [(4,)]


def test_a_token_from_the_environment_and_all_interfaces(tmp_path: Path) -> None:
    token = "correct-horse-battery"
    with _running(tmp_path / "t.duckdb", "--host", "0.0.0.0", RAGTRACE_COLLECT_TOKEN=token) as running:
        url = f"http://127.0.0.1:{running.port}/v1/traces"
        bench = Bench(tmp_path / "x.duckdb")
        with bench.span("s"):
            pass
        spans = bench.spans()
        assert OTLPSpanExporter(url).export(spans) is SpanExportResult.FAILURE
        held = OTLPSpanExporter(url, headers={"authorization": f"Bearer {token}"})
        assert held.export(spans) is SpanExportResult.SUCCESS
        code, out, err = running.stop(signal.SIGINT)
        assert code == 0 and token not in out + err
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert db.execute("SELECT name FROM spans").fetchall() == [("s",)]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_hosts_need_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match=r"no token is given; expected --token.*secrets\.token_urlsafe.*127\.0\.0\.1"):
        serve(tmp_path / "t.duckdb", host)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "token", ["", "short", "with a blank in it", "ünïcödé-ünïcödé-ünïcödé", "line\nbreak-line\nbreak"]
)
def test_what_is_no_token(tmp_path: Path, token: str) -> None:
    with pytest.raises(UsageError, match="expected at least 16, ASCII, no blanks"):
        serve(tmp_path / "t.duckdb", token=token)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    said = "Address already in use; give another --host or --port"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match=said):
        serve(tmp_path / "t.duckdb", port=taken.getsockname()[1])
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        serve(tmp_path / "t.duckdb", "192.0.2.1", 0, "correct-horse-battery")
    with pytest.raises(UsageError, match="--rate -1"):
        serve(tmp_path / "t.duckdb", rate=-1)


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "foreign.duckdb").write_bytes(b"SQLite format 3\0" + bytes(100))
    (tmp_path / "file").write_bytes(b"")
    for name, said in (
        ("folder", "is a folder"),
        ("foreign.duckdb", "is no DuckDB database"),
        ("file/t.duckdb", "cannot"),
    ):
        with pytest.raises(StoreError, match=said):
            serve(tmp_path / name)
    assert not (tmp_path / "foreign.duckdb.spool").exists()


def test_without_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(
        UsageError, match=r"needs uvicorn, which is not installed; pip install 'ragtrace-audit\[collect\]'"
    ):
        serve(tmp_path / "t.duckdb")


def test_it_knows_no_database() -> None:
    code = "import sys, ragtrace.collect.app, ragtrace.collect.writing; print('duckdb' in sys.modules)"
    run: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_wrong_options() -> None:
    for wrong in (["--port", "70000"], ["--port", "x"], ["--rate", "fast"]):
        assert CliRunner().invoke(cli.app, ["collect", *wrong]).exit_code == 2
