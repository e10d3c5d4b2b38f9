"""A database that is encrypted at rest, where DuckDB can do that; where it cannot, nothing is written."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from ragtrace.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "RAGTRACE_DB_KEY"
NAME = "ragtrace_store"
_INSTALL = "python -c \"import duckdb; duckdb.connect().execute('INSTALL httpfs')\""


def key_of(key: str | None) -> str | None:
    """The key that was given, or the environment's.

    :raises StoreError: it is empty: nobody means that.
    """
    found = os.environ.get(VARIABLE) if key is None else key
    if found == "":
        raise StoreError(f"the key of the database is empty; give one, or unset {VARIABLE}")
    return found


def connect(path: Path, key: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection whose current database is the encrypted one at ``path``."""
    connection = duckdb.connect()
    try:
        connection.execute("SET autoinstall_known_extensions = false")
        attach(connection, path, NAME, key, read_only=read_only)
        connection.execute(f"USE {NAME}")
    except BaseException:
        connection.close()
        raise
    return connection


def attach(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, key: str | None, *, read_only: bool = False
) -> None:
    """Attaches the file at ``path`` as ``name``, encrypted if there is a key.

    :raises StoreError: DuckDB's own crypto may only read, and httpfs, which has the other one, is not installed; or
        the file is not encrypted with this key.
    """
    if key is None:
        connection.execute(f"ATTACH ? AS {name}", [str(path)])
        return
    if not read_only:
        with suppress(duckdb.Error):  # then DuckDB may have another one; if not, it says so
            connection.execute("LOAD httpfs")
    try:
        options = "ENCRYPTION_KEY ?, READ_ONLY" if read_only else "ENCRYPTION_KEY ?"
        connection.execute(f"ATTACH ? AS {name} ({options})", [str(path), key])
    except duckdb.Error as error:
        text = str(error).splitlines()[0]
        if "crypto" in text:
            raise StoreError(
                f"DuckDB {duckdb.__version__} writes encrypted databases only with its extension httpfs, which is not "
                f"installed; nothing was written to {path}; install it once, where there is a network ({_INSTALL}), "
                f"or unset {VARIABLE} and keep the database on an encrypted disk"
            ) from error
        if "ncrypt" in text:
            raise StoreError(
                f"{path} does not open with this key ({text}); give the key it was made with, or none (unset "
                f"{VARIABLE}) if it is not encrypted"
            ) from error
        raise
