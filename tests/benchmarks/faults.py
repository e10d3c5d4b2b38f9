"""What the app notices when the disk, the exporter or a span fails: nothing, is the claim.

``python tests/benchmarks/faults.py [--requests 10000]``. Each fault has a process of its own, which calls a LangChain
chain under ragtrace so many times, after a round without the fault in the same process; printed are failed requests,
the 99th percentile of a call in both rounds, and what the store says was lost. Rounds are cut into interleaved pieces,
so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FAULTS = ("none", "ENOSPC", "EIO", "EACCES", "slow disk, 2 s a write", "exporter raises", "malformed spans")
PIECES = 10


@contextmanager
def fault(name: str, tracing: Any) -> Iterator[None]:
    import errno
    from unittest import mock

    from ragtrace.record import spool

    write = spool.SpoolExporter._write

    def fails(code: int) -> Any:
        def failing(self: Any, rows: Any) -> None:
            raise OSError(code, "injected")

        return failing

    def slow(self: Any, rows: Any) -> None:
        time.sleep(2)
        write(self, rows)

    def raises(*_: Any) -> None:
        raise RuntimeError("injected")

    if name == "none":
        yield
    elif name in ("ENOSPC", "EIO", "EACCES"):
        with mock.patch.object(spool.SpoolExporter, "_write", fails(getattr(errno, name))):
            yield
    elif name.startswith("slow"):
        with mock.patch.object(spool.SpoolExporter, "_write", slow):
            yield
    elif name == "exporter raises":
        with mock.patch.object(spool.SpoolExporter, "export", raises):
            yield
    else:
        tracer = tracing.provider.get_tracer("other")
        for i in range(200):
            with tracer.start_as_current_span(f"odd {i} \ud800") as span:
                pass
            span._attributes = {"object": object(), "nan": float("nan"), "\x00": b"\xff", "big": 2**80}
        yield


def child(name: str, requests: int) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    logging.disable(logging.CRITICAL)
    from pipelines import lcel

    import ragtrace

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "t.duckdb"
        tracing = ragtrace.setup(database, capture="digest")
        chain = lcel()
        times: dict[bool, list[float]] = {False: [], True: []}
        failed = 0

        def calls(n: int, into: list[float]) -> None:
            nonlocal failed
            for i in range(n):
                begun = time.perf_counter()
                try:
                    chain.invoke(f"question {i}")
                except Exception:
                    failed += 1
                into.append(time.perf_counter() - begun)

        calls(300, [])
        for _ in range(PIECES):
            calls(requests // PIECES, times[False])
            with fault(name, tracing):
                calls(requests // PIECES, times[True])
        tracing.shutdown()
        with ragtrace.open(database) as db:
            lost = db.execute("SELECT ended, written, dropped, failed, unwritten FROM losses").fetchone()
    p99 = {k: statistics.quantiles(v, n=100)[98] * 1000 for k, v in times.items()}
    print(json.dumps({"failed": failed, "without": p99[False], "with": p99[True], "lost": lost}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child, options.requests)
        return
    worst = 0.0
    for name in FAULTS:
        command = [sys.executable, __file__, "--requests", str(options.requests), "--child", name]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        added = said["with"] - said["without"]
        worst = max(worst, added)
        ended, written, dropped, failed, unwritten = said["lost"]
        print(
            f"{name:24} {said['failed']} of {options.requests} requests failed; p99 {said['without']:.2f} -> "
            f"{said['with']:.2f} ms ({added:+.2f}); {ended} spans: {written} written, {dropped} dropped, "
            f"{failed} refused, {unwritten} unwritten"
        )
        assert said["failed"] == 0 and ended == written + dropped + failed + unwritten
    print(f"worst added p99: {worst:.2f} ms")


if __name__ == "__main__":
    main()
