"""Opening: create or check the schema, merge the spool, hand out a connection."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from threading import RLock

import duckdb

from ragtrace.errors import SchemaVersionError, StoreError
from ragtrace.record.spool import spool_of
from ragtrace.store import encryption, lifting, outgoing, requests
from ragtrace.store.canary_search import search_for_planted
from ragtrace.store.exposure import measure
from ragtrace.store.losses import take_losses
from ragtrace.store.merge import merge
from ragtrace.store.windows import windows

SCHEMA_VERSION = 1
MEMORY = 2.0
"""GB for DuckDB where a store is asked, unless it is told otherwise."""
_SPILLED = "4GB"
_MEASURED = 1_000  # generations of which the exposure is measured at once; `ragtrace exposure` does more
_FILLED = (lifting, outgoing)  # what a merge fills in, and is filled in once where an older version merged
_opening = RLock()  # two threads of one process share DuckDB's file; their merges must not meet


def open(database: str | Path = "traces.duckdb", *, key: str | None = None) -> duckdb.DuckDBPyConnection:
    """Opens ``database`` (made if it is missing), merges its spool, and returns a DuckDB connection with the views.

    Each span is merged exactly once by (trace_id, span_id); segments that cannot be read are left where they are and
    named in a warning. May be called while other processes write to the spool. What it creates is for you alone (0600).

    :param key: the database is encrypted with it; without, the environment's ``RAGTRACE_DB_KEY``. The spool is not.
    :raises StoreError: not a ragtrace database, or held by another process; or it cannot be encrypted here.
    :raises SchemaVersionError: written by a newer ragtrace.
    """
    path = Path(database).expanduser()
    with _opening, _private():
        connection = _connect(path, key, read_only=False)
        try:
            _prepare(connection, path)
            merge(connection, path)
            measure(connection, limit=_MEASURED, seconds=0.5)
            take_losses(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def in_memory() -> duckdb.DuckDBPyConnection:
    """An empty database in memory, with the tables and views of every other one."""
    connection = duckdb.connect()
    _prepare(connection, Path(":memory:"))
    return connection


@contextmanager
def opened_alone(path: Path, key: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same, for as long as nobody else of this process has it open or opens it (no other process can).

    :raises StoreError: somebody has.
    """
    with _opening, _private():
        connection = open(path, key=key)
        try:
            with suppress(duckdb.CatalogException):  # before DuckDB 1.5 nobody can tell
                [(count,)] = connection.execute("FROM duckdb_connection_count()").fetchall()
                if count > 1:
                    raise StoreError(f"{path} is open in this process, {count - 1} times; close these connections")
            yield connection
        finally:
            connection.close()


def open_readonly(database: str | Path, *, memory: float = MEMORY, key: str | None = None) -> duckdb.DuckDBPyConnection:
    """Opens ``database`` for questions only: nothing is written, and SQL reaches neither files nor the network.

    Nor Python's variables, and what it spills to disk is bounded too.

    :param memory: GB for DuckDB; the process holds some 0.2 more.
    :raises StoreError: the database is missing, is not ours, or is held by another process.
    """
    path = existing(database)
    connection = _connect(path, key, read_only=True)
    try:
        if not _check(connection, path):
            raise _foreign(path)
        connection.execute("SET memory_limit = ?", [f"{1_000 * memory:.0f}MB"])
        connection.execute("SET max_temp_directory_size = ?", [_SPILLED])
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET autoload_known_extensions = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def existing(database: str | Path) -> Path:
    """The path of a database that is there, or whose spool is.

    :raises StoreError: neither is.
    """
    path = Path(database).expanduser()
    if not path.exists() and not spool_of(path).is_dir():
        raise StoreError(
            f"no database at {path}; run your app with ragtrace.setup({str(path)!r}), or give another --db"
        )
    return path


@contextmanager
def _private() -> Iterator[None]:
    """What is created meanwhile (the file, DuckDB's log beside it) is for its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _connect(path: Path, key: str | None = None, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, expected a database file; give for example {path / 'traces.duckdb'}")
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        if (secret := encryption.key_of(key)) is not None:
            return encryption.connect(path, secret, read_only=read_only)
        return duckdb.connect(str(path), read_only=read_only)
    except duckdb.ConnectionException as error:
        raise StoreError(
            f"{path} is already open in this process in another way ({_first_line(error)}); close that connection first"
        ) from error
    except duckdb.Error as error:
        if "set lock" in str(error):
            holder = re.search(r"PID \d+", str(error))
            raise StoreError(
                f"{path} is open in another process{f' ({holder[0]})' if holder else ''}; "
                "close it there, or copy the file and open the copy"
            ) from error
        if "encrypt" in str(error):
            raise StoreError(
                f"{path} is encrypted, and no key is given; set {encryption.VARIABLE}, or open it with key=…"
            ) from error
        raise StoreError(
            f"{path} is not a readable DuckDB database ({_first_line(error)}); expected a file made by ragtrace; "
            "move it away and open again to start a new one (the spool beside it is kept)"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}; choose a path you may write to") from error


def _check(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether the schema is there; raises if it is somebody else's or a newer one."""
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not tables:
        return False
    if "ragtrace_meta" not in tables:
        raise _foreign(path)
    row = connection.execute(
        "SELECT try_cast(value AS INTEGER) FROM ragtrace_meta WHERE key = 'schema_version'"
    ).fetchone()
    if row is None or row[0] is None:
        raise _foreign(path)
    if row[0] > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{path} has schema version {row[0]}, this ragtrace knows up to {SCHEMA_VERSION}; upgrade: "
            "pip install --upgrade ragtrace-audit"
        )
    return True


def _foreign(path: Path) -> StoreError:
    return StoreError(
        f"{path} is a DuckDB database, but not one of ragtrace (no schema version in a table ragtrace_meta); "
        "choose another path"
    )


def _prepare(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Makes or renews tables, views and comments, unless they are those of this version already."""
    folder = files("ragtrace.store")
    views = sorted((f for f in folder.joinpath("views").iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    definitions = [file.read_text("utf-8") for file in (folder.joinpath("schema.sql"), *views)]
    definitions.append(windows("\n".join(definitions)))
    comments = folder.joinpath("views", "comments.toml").read_text("utf-8")
    digest = blake2b("".join((*definitions, comments)).encode(), digest_size=16).hexdigest()
    facts: dict[str, str] = {}
    if _check(connection, path):
        facts = dict(connection.execute("FROM ragtrace_meta").fetchall())
        if facts.get("definitions") == digest:
            return
    try:
        connection.execute("BEGIN")
        connection.execute("\n".join(definitions))
        _comment(connection, tomllib.loads(comments))
        connection.execute("COMMIT")
        for each in _FILLED:
            if each.KEY not in facts:
                each.settle_all(connection)
        facts = {"schema_version": str(SCHEMA_VERSION), "definitions": digest} | {each.KEY: "" for each in _FILLED}
        connection.execute("BEGIN")
        connection.execute("DELETE FROM ragtrace_meta")
        connection.executemany("INSERT INTO ragtrace_meta VALUES (?, ?)", list(facts.items()))
        connection.execute("COMMIT")
        search_for_planted(connection)
    except duckdb.Error as error:
        raise StoreError(
            f"{path} cannot take the definitions of this ragtrace ({_first_line(error)}); nothing was changed in it; "
            "open it with the version that made it, or start a new database"
        ) from error
    with suppress(duckdb.Error):  # from before there was request_id: the view finds it too, each time anew
        requests.settle(connection, -1)


def _comment(connection: duckdb.DuckDBPyConnection, texts: dict[str, dict[str, str | dict[str, str]]]) -> None:
    ours = [view for view in texts if view != "columns"]
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE list_contains($views::VARCHAR[], table_name)",
        {"views": ours},
    ).fetchall()
    targets = [(f"VIEW {view}", texts[view]["comment"]) for view in ours]
    for view, column in columns:
        own = texts[view].get("columns", {})
        assert isinstance(own, dict)
        targets.append((f'COLUMN {view}."{column}"', own.get(column) or texts["columns"][column]))
    connection.execute(
        ";".join(f"COMMENT ON {what} IS '{str(text).replace(chr(39), chr(39) * 2)}'" for what, text in targets)
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
