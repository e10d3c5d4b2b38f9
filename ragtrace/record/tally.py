"""How many spans a process ended and what became of them, in a file that outlives the process.

Numbers in a memory map beside the segments: writing one costs a memory access, and what a killed process had counted
is still there. While the process lives it holds a lock on the file; who can take the lock (``ragtrace.open`` tries)
knows that nothing will be added.
"""

from __future__ import annotations

import logging
import mmap
import os
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

if sys.platform != "win32":  # there nobody could tell who lives, so there is no file
    import fcntl

_log = logging.getLogger("ragtrace")
SUFFIX = ".tally"
MAGIC = b"ragtall1"
COUNTS = ("ended", "written", "dropped", "failed", "rotated")
_COUNTS_AT = len(MAGIC)
_FACTS_AT = _COUNTS_AT + 8 * len(COUNTS)
_SIZE = 512
_MAX_SERVICE = 200


class Tally:
    """Counts of this process. :meth:`add` may be called by any thread that holds the caller's lock.

    ``ended`` spans were given to us; of these ``dropped`` found the queue full, ``failed`` could not be written,
    ``written`` are in segments, of which ``rotated`` were removed again to keep the spool's limit.
    """

    def __init__(self, folder: Path, service: str = "") -> None:
        self.folder, self.service = folder, service
        self.process = uuid.uuid4().hex[:8]
        self.counts = dict.fromkeys(COUNTS, 0)
        self._descriptor = -1
        self._file: Path | None = None
        self._numbers: memoryview | None = None
        self._open()

    def _open(self) -> None:
        """Makes the file; where that fails the counts are kept in memory alone."""
        if sys.platform == "win32":
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self.folder / f".{time.time_ns():020d}-{os.getpid()}-{self.process}{SUFFIX}"
            facts = {"pid": os.getpid(), "started_ns": time.time_ns(), "service": self.service[:_MAX_SERVICE]}
            content = MAGIC + bytes(8 * len(COUNTS)) + orjson.dumps(facts)
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._descriptor, content[:_SIZE].ljust(_SIZE, b"\0"))
            mapped = mmap.mmap(self._descriptor, _SIZE)
            self._numbers = memoryview(mapped)[_COUNTS_AT:_FACTS_AT].cast("q")
            self._file = file
        except (OSError, ValueError):
            _log.debug("ragtrace keeps its counts in memory: no file in %s", self.folder, exc_info=True)

    def add(self, what: str, n: int = 1) -> None:
        """Counts ``n`` spans more."""
        self.counts[what] += n
        if self._numbers is not None:
            self._numbers[COUNTS.index(what)] = self.counts[what]

    def close(self) -> None:
        """Nothing is added any more. A process that recorded nothing leaves no file, and no empty folder."""
        with suppress(OSError):
            if self._file is not None and not any(self.counts.values()):
                self._file.unlink(missing_ok=True)
                self.folder.rmdir()
        with suppress(OSError):
            if self._descriptor >= 0:
                os.close(self._descriptor)
        self._descriptor, self._numbers = -1, None

    def begin_anew(self) -> None:
        """In a process that was forked: the counts, the lock and the segments' names are the parent's."""
        with suppress(OSError):
            if self._descriptor >= 0:
                os.close(self._descriptor)  # gives no lock back: the parent's descriptor still holds it
        self.process = uuid.uuid4().hex[:8]
        self.counts = dict.fromkeys(COUNTS, 0)
        self._descriptor, self._file, self._numbers = -1, None, None
        self._open()


class Counted(NamedTuple):
    """What a tally file says. ``alive``: its process may still add to it."""

    process: str
    pid: int
    service: str
    started_ns: int
    counts: dict[str, int]
    alive: bool


def read(file: Path) -> Counted | None:
    """The counts in a file; ``None`` for what is none of ours, or torn."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        alive = not _free(descriptor)
        content = os.read(descriptor, _SIZE)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(content) != _SIZE or not content.startswith(MAGIC):
        return None
    numbers = memoryview(content)[_COUNTS_AT:_FACTS_AT].cast("q")
    try:
        facts = orjson.loads(content[_FACTS_AT:].rstrip(b"\0"))
        pid, started, service = int(facts["pid"]), int(facts["started_ns"]), str(facts["service"])
    except (ValueError, KeyError, TypeError):
        return None
    process = file.name.removesuffix(SUFFIX).rpartition("-")[2]
    return Counted(process, pid, service, started, dict(zip(COUNTS, numbers.tolist(), strict=True)), alive)


def _free(descriptor: int) -> bool:
    """Whether nobody holds the lock. Without locks: unknown, so taken for held."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
