"""Giving space back: the database is written anew and takes the place of the old file in one step."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from ragtrace.errors import StoreError
from ragtrace.record import tally
from ragtrace.record.spool import spool_of
from ragtrace.store.database import existing, opened_alone
from ragtrace.store.encryption import attach, key_of
from ragtrace.store.retention import Removed, remove_older

if TYPE_CHECKING:
    from datetime import timedelta

_FRESH = "ragtrace_fresh"
_SUFFIX = ".compact"
_WRITING = 60  # seconds that nobody needs for a segment
_NOTHING = Removed(0, 0, 0)


class Compacted(NamedTuple):
    """What :func:`compact` did: traces removed because of their age, and bytes before and after."""

    removed: Removed
    before: int
    after: int


def compact(database: str | Path, older_than: timedelta | None = None, *, key: str | None = None) -> Compacted:
    """Merges the spool, removes what is older than ``older_than``, and rewrites the file without the space this left.

    The old file is there, whole, until the new one is: a failure or a kill loses nothing.

    :raises StoreError: no database, or one that is open elsewhere; or there is no room for the new file.
    """
    path = existing(database)
    with opened_alone(path, key) as connection:
        removed = _NOTHING if older_than is None else remove_older(connection, older_than)
        before, after = rewrite(connection, path, key)
    return Compacted(removed, before, after)


def rewrite(connection: duckdb.DuckDBPyConnection, path: Path, key: str | None) -> tuple[int, int]:
    """Writes the database anew, and returns its size before and after. Nothing else may have it open.

    What processes that were killed left beside it goes too: half of a segment, of a rewritten file, of a spilled sort.
    """
    target = path.resolve()
    _tidy(target)
    _sweep(spool_of(path))
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{_SUFFIX}")
    try:
        connection.execute("FORCE CHECKPOINT")  # so that nothing of the old file is in a log beside the new one
        before = target.stat().st_size
        _copy(connection, fresh, key_of(key))
        fresh.chmod(target.stat().st_mode & 0o777)
        _sync(fresh)
        after = fresh.stat().st_size
        fresh.replace(target)
    except (OSError, duckdb.Error) as error:
        _remove(fresh)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise StoreError(
            f"{path} could not be rewritten ({reason}), and is as it was; what was deleted in it may still be in the "
            "file's bytes: make room for a second file of its size beside it, and run `ragtrace compact` again"
        ) from error
    except BaseException:
        _remove(fresh)
        raise
    with suppress(OSError):
        _sync(target.parent)
    return before, after


def _copy(connection: duckdb.DuckDBPyConnection, fresh: Path, key: str | None) -> None:
    [(name,)] = connection.execute("SELECT current_database()").fetchall()
    quoted = '"' + str(name).replace('"', '""') + '"'  # DuckDB names a database after its file
    attach(connection, fresh, _FRESH, key)
    try:
        connection.execute(f"COPY FROM DATABASE {quoted} TO {_FRESH}")
        if _counts(connection, name) != _counts(connection, _FRESH):
            raise duckdb.DataError("the copy has not the same rows")
        connection.execute(f"CHECKPOINT {_FRESH}")
    finally:
        connection.execute(f"DETACH {_FRESH}")


def _counts(connection: duckdb.DuckDBPyConnection, database: str) -> dict[tuple[str, str], int]:
    tables = connection.execute(
        "SELECT schema_name, table_name, "
        'format(\'"{}"."{}"."{}"\', replace(database_name, \'"\', \'""\'), replace(schema_name, \'"\', \'""\'), '
        "replace(table_name, '\"', '\"\"')) FROM duckdb_tables() WHERE database_name = ? AND NOT temporary",
        [database],
    ).fetchall()
    found = {}
    for schema, table, quoted in tables:
        [(found[schema, table],)] = connection.execute(f"SELECT count(*) FROM {quoted}").fetchall()  # noqa: S608 - names, quoted
    return found


def _tidy(target: Path) -> None:
    """Removes what killed processes left: we hold the database, so none of these files is in use."""
    for left in target.parent.glob("." + _escaped(target.name) + f".*{_SUFFIX}*"):
        _unlink(left)
    for left in target.with_name(target.name + ".tmp").glob("duckdb_temp_*"):
        _unlink(left)


def _sweep(spool: Path) -> None:
    """Halves of segments whose writers are gone."""
    counted = [tally.read(file) for file in spool.glob(f".*{tally.SUFFIX}")]
    alive = {each.process for each in counted if each is not None and each.alive}
    for left in spool.glob(".*-*.tmp"):
        with suppress(OSError):
            if not alive.intersection(left.name.split("-")) and time.time() - left.stat().st_mtime > _WRITING:
                left.unlink()


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _remove(fresh: Path) -> None:
    _unlink(fresh)
    _unlink(fresh.with_name(fresh.name + ".wal"))


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
