"""What a question may cost: time, and memory beyond what DuckDB counts by itself."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_AGAIN = 0.2
_GRACE = 10.0


class Clock:
    """Whether the time is over."""

    def __init__(self) -> None:
        self.over = False


@contextmanager
def time_limit(
    connection: duckdb.DuckDBPyConnection, seconds: float, stuck: Callable[[], None] | None = None
) -> Iterator[Clock]:
    """Interrupts what ``connection`` does after so many seconds, again and again until it stops.

    A single call of an SQL function cannot be interrupted: if that goes on for ten seconds more, ``stuck`` is called.
    """
    clock, done = Clock(), threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        clock.over = True
        end = time.monotonic() + _GRACE
        while True:
            connection.interrupt()
            if done.wait(_AGAIN):
                return
            if stuck is not None and time.monotonic() > end:
                stuck()

    thread = threading.Thread(target=watch, name="time limit", daemon=True)
    thread.start()
    try:
        yield clock
    finally:
        done.set()
        thread.join()


@contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Lets this process map at most so many bytes more than it has now, where the system can do that.

    DuckDB's own limit does not count the strings that a query is working on: one call of ``repeat`` takes gigabytes.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more
    if any(known != resource.RLIM_INFINITY and known < limit for known in (soft, hard)):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
