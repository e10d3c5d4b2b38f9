"""Opening: create or check the schema, merge the spool, hand out a connection."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from threading import Lock

import duckdb

from ragtrace.errors import SchemaVersionError, StoreError
from ragtrace.store.merge import merge

SCHEMA_VERSION = 1
_opening = Lock()  # two threads of one process share DuckDB's file; their merges must not meet


def open(database: str | Path = "traces.duckdb") -> duckdb.DuckDBPyConnection:
    """Opens ``database`` (made if it is missing), merges its spool, and returns a DuckDB connection with the views.

    Each span is merged exactly once by (trace_id, span_id); a segment that cannot be read is left where it is and
    named in a warning. May be called while other processes write to the spool.

    :raises StoreError: not a ragtrace database, or held by another process.
    :raises SchemaVersionError: written by a newer ragtrace.
    """
    path = Path(database).expanduser()
    with _opening:
        connection = _connect(path, read_only=False)
        try:
            _prepare(connection, path)
            merge(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def open_readonly(database: str | Path, *, memory_limit: str = "2GB") -> duckdb.DuckDBPyConnection:
    """Opens ``database`` for questions only: nothing is written, and SQL reaches neither files nor the network.

    :raises StoreError: the database is missing, is not ours, or is held by another process.
    """
    path = Path(database).expanduser()
    if not path.is_file():
        raise StoreError(f"no database at {path}; run your app with ragtrace.setup({str(path)!r}), or give another --db")
    connection = _connect(path, read_only=True)
    try:
        _check(connection, path)
        connection.execute(f"SET memory_limit = '{memory_limit}'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                connection = duckdb.connect(str(path))
                path.chmod(0o600)
                return connection
        return duckdb.connect(str(path), read_only=read_only)
    except duckdb.Error as error:
        text = str(error)
        if "lock" in text.lower():
            raise StoreError(
                f"{path} is open in another process; close it there, or copy the file and open the copy"
            ) from error
        raise StoreError(
            f"{path} is not a readable DuckDB database ({text.splitlines()[0]}); expected a file made by ragtrace; "
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
        raise StoreError(
            f"{path} is a DuckDB database, but not one of ragtrace (it has no table ragtrace_meta); choose another path"
        )
    row = connection.execute("SELECT value FROM ragtrace_meta WHERE key = 'schema_version'").fetchone()
    version = int(row[0]) if row else 0
    if version > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{path} has schema version {version}, this ragtrace knows up to {SCHEMA_VERSION}; upgrade: "
            "pip install --upgrade ragtrace-audit"
        )
    return True


def _prepare(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    folder = files("ragtrace.store")
    schema = folder.joinpath("schema.sql").read_text("utf-8")
    views = "\n".join(
        file.read_text("utf-8")
        for file in sorted(folder.joinpath("views").iterdir(), key=lambda f: f.name)
        if file.name.endswith(".sql")
    )
    digest = blake2b((schema + views).encode(), digest_size=16).hexdigest()
    if _check(connection, path):
        row = connection.execute("SELECT value FROM ragtrace_meta WHERE key = 'definitions'").fetchone()
        if row and row[0] == digest:
            return
    connection.execute("BEGIN")
    connection.execute(schema)
    connection.execute(views)
    connection.execute("DELETE FROM ragtrace_meta")
    connection.execute(
        "INSERT INTO ragtrace_meta VALUES ('schema_version', ?), ('definitions', ?)", [str(SCHEMA_VERSION), digest]
    )
    connection.execute("COMMIT")
