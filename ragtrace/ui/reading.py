"""The store, open only while a request reads it, so that others may merge into it and ask it meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any

import duckdb

from ragtrace.errors import StoreError
from ragtrace.record.spool import SUFFIX, spool_of
from ragtrace.store import existing, open_readonly
from ragtrace.store import open as open_store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = dict[str, Any]

_PATIENCE = 60.0  # seconds that requests wait for a merge, or a merge for them
_MEMORY = 1.0  # GB; what needs more goes to temporary files
_RETRIES, _PAUSE = 40, 0.05  # for another process that has the file: it may only be merging


class OutdatedError(StoreError):
    """The database lacks a view or a column; opening it to write brings those of this version."""


class Store:
    """One database. Readers share it; a merge has it alone, and nobody has it in between."""

    def __init__(self, database: Path) -> None:
        self.path = existing(database)
        self._state = Condition()
        self._base: DuckDBPyConnection | None = None
        self._readers = 0
        self._merging = False

    @contextmanager
    def reading(self) -> Iterator[DuckDBPyConnection]:
        """A read-only connection.

        :raises StoreError: another process has the database to itself, or it went away.
        """
        with self._state:
            if not self._state.wait_for(lambda: not self._merging, _PATIENCE):
                raise StoreError("the spool is still being merged; ask again in a moment")
            if self._base is None:
                self._base = _patiently(self.path)
            self._readers += 1
            cursor = self._base.cursor()
        try:
            yield cursor
        finally:
            cursor.close()
            with self._state:
                self._readers -= 1
                if not self._readers and self._base is not None:
                    self._base.close()
                    self._base = None
                self._state.notify_all()

    def merge(self) -> int:
        """Merges the spool; the number of segments that are still there, because they could not be read.

        :raises StoreError: another process has the database, or requests read it for too long.
        """
        with self._state:
            free = self._state.wait_for(lambda: not self._merging, _PATIENCE)
            if free:
                self._merging = True
                free = self._state.wait_for(lambda: not self._readers, _PATIENCE)
                if not free:
                    self._merging = False
            if not free:
                raise StoreError("the database is being read; refresh again when that has ended")
        try:
            open_store(self.path).close()
        finally:
            with self._state:
                self._merging = False
                self._state.notify_all()
        return self.waiting()

    def waiting(self) -> int:
        """Segments in the spool."""
        return sum(1 for _ in spool_of(self.path).glob(f"*{SUFFIX}"))


def _patiently(path: Path) -> DuckDBPyConnection:
    for last in [False] * _RETRIES + [True]:
        try:
            return open_readonly(path, memory=_MEMORY)
        except (StoreError, duckdb.InvalidInputException) as error:  # the latter: in this process, with its settings
            if last or not any(sign in str(error) for sign in ("another process", "locked")):
                raise
        time.sleep(_PAUSE)
    raise AssertionError("unreachable")


def rows(connection: DuckDBPyConnection, query: str, **given: Any) -> list[Row]:
    """The answer's rows by column."""
    answer = connection.execute(query, given)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def failed(path: Path, error: duckdb.Error) -> StoreError:
    """What to say where a question of ours could not be answered."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return OutdatedError(
            f"{path} lacks what the viewer reads ({said}); expected a database of this ragtrace: "
            "open it with the version that made it, or import its spans into a new one (`ragtrace import`)"
        )
    return StoreError(f"{path} could not be read ({said}); refresh the page, or start `ragtrace ui` again")
