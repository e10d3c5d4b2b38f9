"""How fast OTLP comes in here and into arize-phoenix: the same batches of the same spans, until they can be queried.

    python tests/benchmarks/phoenix.py PYTHON [spans]

PYTHON is the interpreter of another environment, with arize-phoenix in it (about 700 MB, no torch):

    python -m venv /tmp/phoenix && /tmp/phoenix/bin/pip install arize-phoenix

Phoenix runs as it does by default, with SQLite in a folder of its own, telemetry off. Counted is the time from the
first request until the last span is in its table; of ours, the import of the same requests from a file, and the
receiver from the first request until a merge has the last span in a view. Before the clock each of the three has had
one request: all have loaded what they need. We get ten times as many, of which Phoenix's are the first: it would take
minutes for them. Exit code 1 where the import is less than 80 times as fast.
"""

from __future__ import annotations

import gzip
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from ingest import protobuf, rows

import ragtrace
from ragtrace.store import import_files

BATCH = 512  # spans in one request, as the SDK's exporter sends them
LEAST = 80
MORE = 10
STARTS, INGESTS = 180.0, 1_800.0  # seconds at most
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}


def requests(count: int, folder: Path) -> tuple[Path, list[bytes]]:
    """A file of messages with their lengths, and the messages as an exporter posts them."""
    file = protobuf(rows(count, ours=False), folder / "spans.bin", BATCH)
    data, place, found = file.read_bytes(), 0, []
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        found.append(gzip.compress(data[place + 4 : place + 4 + size], 1))
        place += 4 + size
    return file, found


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@contextmanager
def served(command: list[str], ready: str, log: Path, **environment: str) -> Iterator[int]:
    """A server as a child, from when ``ready`` answers; its process id."""
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | environment)
    try:
        until(lambda: answers(ready) or child.poll() is not None, STARTS, f"{command[0]} to start")
        if child.poll() is not None:
            raise SystemExit(f"{' '.join(command[:3])} ended at once: {log.read_text(errors='replace')[-500:]}")
        yield child.pid
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(20)
        child.kill()
        child.wait()


def used(process: int) -> float:
    """Seconds of processors that a process has used (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except URLError as error:
        return hasattr(error, "code")  # an error is an answer
    except OSError:
        return False


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


def post(url: str, bodies: list[bytes]) -> None:
    for body in bodies:
        with urlopen(Request(url, body, HEADERS), timeout=300) as answer:
            assert answer.status == 200


def into_phoenix(python: str, bodies: list[bytes], count: int, folder: Path) -> tuple[float, float]:
    port, home = free_port(), folder / "phoenix"
    home.mkdir()
    environment = {
        "PHOENIX_WORKING_DIR": str(home), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    command = [python, "-P", "-m", "phoenix.server.main", "serve"]  # -P: this file has the same name
    with served(command, url + "/healthz", folder / "phoenix.log", **environment) as process:

        def held(count: int) -> bool:
            with closing(sqlite3.connect(f"file:{home / 'phoenix.db'}?mode=ro", uri=True)) as database:
                return bool(database.execute("SELECT count(*) FROM spans").fetchone()[0] >= count)

        post(url + "/v1/traces", bodies[:1])
        until(lambda: held(BATCH), INGESTS, f"{BATCH} spans in Phoenix's table")
        began, before = time.perf_counter(), used(process)
        post(url + "/v1/traces", bodies[1:])
        until(lambda: held(count), INGESTS, f"{count} spans in Phoenix's table")
        return time.perf_counter() - began, used(process) - before


def by_import(file: Path, count: int, folder: Path) -> tuple[float, float]:
    with ragtrace.open(folder / "first.duckdb") as connection:
        import_files(connection, [protobuf(rows(BATCH, ours=False), folder / "first.bin", BATCH)])
    with ragtrace.open(folder / "imported.duckdb") as connection:
        began, processors = time.perf_counter(), time.process_time()
        report = import_files(connection, [file])
        took, processor = time.perf_counter() - began, time.process_time() - processors
    assert (report.spans, report.failed) == (count, [])
    return took, processor


def by_collect(bodies: list[bytes], count: int, folder: Path) -> float:
    port, database = free_port(), folder / "collected.duckdb"
    command = [sys.executable, "-c", "from ragtrace.cli import main; main()", "collect", "--db", str(database)]
    command += ["--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with served(command, url + "/", folder / "collect.log"):
        post(url + "/v1/traces", bodies[:1])
        began = time.perf_counter()
        post(url + "/v1/traces", bodies[1:])
        with ragtrace.open(database) as connection:
            assert connection.execute("SELECT count(*) FROM spans").fetchall() == [(count,)]
        return time.perf_counter() - began


def main(python: str, count: int = 4_000) -> int:
    known = [python, "-P", "-c", "import importlib.metadata as m; print(m.version('arize-phoenix'))"]
    found = subprocess.run(known, capture_output=True, text=True, check=False)
    if found.returncode:
        print(__doc__)
        print(f"no arize-phoenix with {python}: make that environment first", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, bodies = requests(MORE * count, folder)
        print(f"{MORE * count} spans of OTLP/protobuf, {file.stat().st_size / MORE / count:.0f} bytes each")
        many, few = MORE * count, bodies[: -(-count // BATCH)]
        imported, ours = by_import(file, many, folder)
        collected = by_collect(bodies, many, folder)
        count = BATCH * len(few)
        took, theirs = into_phoenix(python, few, count, folder)
        count -= BATCH  # not timed
    print(f"arize-phoenix {found.stdout.strip()}: {count / took:,.0f} spans/s ({count} of them)")
    ratio = many / imported / (count / took)
    print(f"ragtrace import: {many / imported:,.0f} spans/s, {ratio:.0f} times as many")
    rate = (many - BATCH) / collected
    print(f"ragtrace collect: {rate:,.0f} spans/s, {rate / (count / took):.0f} times as many")
    print(
        f"processor time a span: {1e6 * theirs / count:,.0f} us there, {1e6 * ours / many:.0f} us for the import: "
        f"{theirs / count / (ours / many):.0f} to 1, which holds on a busy machine too"
    )
    return 0 if ratio >= LEAST else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:3])))
