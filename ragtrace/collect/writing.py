"""Requests into segments: what came in while one segment was written goes into the next, together."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ragtrace.collect.answers import Refused
from ragtrace.record.spool import LIMIT, SUFFIX, SpoolExporter
from ragtrace.record.tally import Tally

_log = logging.getLogger("ragtrace.collect")
_RETRY = 5  # seconds
_LOOK_EVERY = 2.0


class Writer:
    """Writes into the spool of ``database``. What it has confirmed is on disk.

    Where the app's exporter removes the oldest segments to keep the spool's limit, this refuses new ones: a stranger
    must not be able to push out what is there.
    """

    def __init__(self, database: Path, limit: int | None = LIMIT) -> None:
        self._exporter = SpoolExporter(database, "full", limit=None)
        self._tally = Tally(self._exporter.folder, "ragtrace collect")  # also says that we live, and may be writing
        self._exporter.process = self._tally.process
        self._limit = limit
        self._waiting: list[tuple[pa.Table, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._size, self._looked = 0, -_LOOK_EVERY
        self._failing = False

    @property
    def folder(self) -> Path:
        """Where the segments go."""
        return self._exporter.folder

    def close(self) -> None:
        """Nothing is written any more."""
        self._tally.close()

    async def write(self, table: Any) -> None:
        """Returns when the table is on disk.

        :raises Refused: it is not (503): the spool is full, or the disk refuses.
        """
        if self._limit is not None and self._held() > self._limit:
            raise Refused(503, "the spool is full; its owner must run `ragtrace compact`", 60)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((table, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        await done

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            failed: Exception | None = None
            try:
                table = pa.concat_tables([table for table, _ in batch])
                await asyncio.to_thread(self._exporter.write, table)
                self._size += table.nbytes
                self._tally.add("ended", table.num_rows)
                self._tally.add("written", table.num_rows)
            except Exception as error:  # of any kind: those who wait must be told
                failed = error
            self._tell(failed)
            for _, done in batch:
                if done.done():
                    continue
                if failed is None:
                    done.set_result(None)
                else:
                    done.set_exception(Refused(503, "the spool cannot be written to now; send it again later", _RETRY))
        self._writing = None

    def _tell(self, failed: Exception | None) -> None:
        """Logs the first of a row of failures, by its kind: its text might quote what was sent."""
        if failed is not None and not self._failing:
            reason = failed.strerror if isinstance(failed, OSError) else type(failed).__name__
            _log.error("cannot write to %s (%s): requests are answered 503 until it can", self.folder, reason)
        elif failed is None and self._failing:
            _log.warning("writes to %s again", self.folder)
        self._failing = failed is not None

    def _held(self) -> int:
        """Bytes in the spool: counted again every few seconds, and what was added since."""
        if (now := time.monotonic()) - self._looked >= _LOOK_EVERY:
            self._looked, self._size = now, 0
            for file in self.folder.glob(f"*{SUFFIX}"):
                with suppress(OSError):  # the merge may remove it at the same time
                    self._size += file.stat().st_size
        return self._size
