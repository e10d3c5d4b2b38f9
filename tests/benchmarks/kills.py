"""Many writers into one spool, killed at random: is any span twice or corrupt, and is every loss counted?

``python tests/benchmarks/kills.py [--processes 8] [--spans 25000] [--kills 50]``. Each writer is started again after a
kill until it has ended its spans; the names of the spans say which writer ended which.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ragtrace

WRITER = """
import sys, time, ragtrace
tracing = ragtrace.setup(sys.argv[1], capture="full")
tracer = tracing.provider.get_tracer("app")
text = "x" * 400
for i in range(int(sys.argv[3]), int(sys.argv[4])):
    with tracer.start_as_current_span(f"{sys.argv[2]}-{i}", attributes={"text": text, "i": i}):
        pass
    if i % 10 == 9:
        time.sleep(0.005)  # an app does something else as well; at full speed the queue drops spans, and counts them
    if i % 100 == 99:
        print(i + 1, flush=True)
tracing.shutdown()
print("done", flush=True)
"""


class Writer:
    """One of the writers: after a kill it goes on after the last span that it said it had ended."""

    def __init__(self, database: Path, name: int, spans: int, log: Path) -> None:
        self.database, self.name, self.spans, self.log = database, name, spans, log
        self.ended, self.lives = 0, 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        file = self.log / f"{self.name}-{self.lives}.log"
        self.out = file
        command = [sys.executable, "-c", WRITER, str(self.database), f"{self.name}/{self.lives}"]
        self.process = subprocess.Popen(
            [*command, str(self.ended), str(self.spans)], stdout=file.open("w"), stderr=subprocess.DEVNULL
        )

    @property
    def said(self) -> list[str]:
        return self.out.read_text().split()

    @property
    def done(self) -> bool:
        return self.process.poll() is not None and bool(self.said) and self.said[-1] == "done"

    def kill(self) -> bool:
        if self.process.poll() is not None:
            return False
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        counted = [int(w) for w in self.said if w != "done"]
        if self.said and self.said[-1] == "done":
            return False
        self.ended = counted[-1] if counted else self.ended
        self.start()
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--spans", type=int, default=25_000)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    rng = random.Random(1)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "t.duckdb"
        writers = [Writer(database, n, options.spans, Path(folder)) for n in range(options.processes)]
        kills = 0
        while not all(w.done for w in writers):
            time.sleep(rng.uniform(0.05, 0.4))
            if kills < options.kills:
                kills += rng.choice(writers).kill()
        for writer in writers:
            writer.process.wait()
        with ragtrace.open(database) as db:
            stored, distinct, odd = db.execute(
                "SELECT count(*), count(DISTINCT (trace_id, span_id)), "
                "count(*) FILTER (length(attributes->>'text') <> 400 OR attributes->>'i' <> split_part(name, '-', 2)) "
                "FROM spans"
            ).fetchone() or (0, 0, 0)
            ended, written, killed, dropped, lost, alive = db.execute(
                "SELECT sum(ended), sum(written), sum(killed), sum(dropped), sum(lost), count(*) FILTER (alive) "
                "FROM losses"
            ).fetchone() or (0, 0, 0, 0, 0, 0)
    print(f"{options.processes} processes, {kills} SIGKILLs, {ended} spans ended in {time.monotonic() - started:.0f} s")
    print(
        f"stored {stored}, distinct {distinct}, corrupt {odd}; counted as lost {lost}: "
        f"{killed} with killed processes, {dropped} dropped"
    )
    assert stored == distinct == written and odd == 0 and alive == 0, "a span twice, corrupt, or a miscount"
    assert ended - stored == lost == killed + dropped, "a loss that was not counted"
    print(f"every span is stored or counted as lost; at most {killed / max(kills, 1):.0f} lost a kill")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
