"""How the interpreter is set while many spans go through it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_SWITCH = 0.0005  # seconds
_COLLECT = 100_000  # objects
_lock = Lock()
_inside = 0
_before: tuple[float, tuple[int, int, int]] = (0.0, (0, 0, 0))


@contextmanager
def busy() -> Iterator[None]:
    """Threads take turns sooner, and the collector of cycles runs rarely; as before when the last one leaves.

    Whoever needs the interpreter for a moment gets it sooner than after 5 ms, for which the reading of spans would
    keep it. Spans hold no cycles and are many: by its own measure the collector would look at everything that the
    process has, again and again, for as much time as the reading takes.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = sys.getswitchinterval(), gc.get_threshold()
            interval, (young, *older) = _before
            sys.setswitchinterval(min(_SWITCH, interval))
            if young:  # zero: somebody has switched it off
                gc.set_threshold(max(_COLLECT, young), *older)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_before[0])
                gc.set_threshold(*_before[1])
