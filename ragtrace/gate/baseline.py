"""The database to compare with: read as it is, or refused with words that help."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from ragtrace.errors import SchemaVersionError, UsageError
from ragtrace.record.spool import SUFFIX, spool_of
from ragtrace.store import existing, open_readonly
from ragtrace.store import open as open_store
from ragtrace.store.database import SCHEMA_VERSION

_META = "SELECT key, value FROM ragtrace_meta"


@contextmanager
def opened(path: Path, database: Path, current: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The baseline at ``path``, never written to. Where its views are of another ragtrace, a copy with ours is read.

    :raises UsageError: it is the database under check, or spans wait in its spool.
    :raises SchemaVersionError: its tables are of another schema version.
    :raises StoreError: no database, or none of ours.
    """
    file = existing(path)
    if file.exists() and file.resolve() == database.expanduser().resolve():
        raise UsageError(f"the baseline {path} is the database under check; give a copy that was kept earlier")
    if not file.exists() or any(spool_of(file).glob(f"*{SUFFIX}")):
        raise UsageError(
            f"the baseline {path} is not whole: spans wait in {spool_of(file)}; merge them first: "
            f"ragtrace compact --db {path}"
        )
    try:
        connection = open_readonly(file)
    except SchemaVersionError as error:
        raise SchemaVersionError(f"the baseline cannot be compared: {error}; or make it again with this one") from error
    try:
        theirs, ours = dict(connection.execute(_META).fetchall()), dict(current.execute(_META).fetchall())
        if int(theirs["schema_version"]) != SCHEMA_VERSION:
            raise SchemaVersionError(
                f"the baseline {path} has schema version {theirs['schema_version']}, this one {SCHEMA_VERSION}, "
                "so its verdicts cannot be compared; make it again: run the same audit or traffic on the "
                "earlier state of your app with this ragtrace, and keep that database"
            )
        if theirs.get("definitions") == ours.get("definitions"):
            yield connection
            return
    finally:
        connection.close()
    with tempfile.TemporaryDirectory(prefix="ragtrace-baseline-") as folder:
        copy = shutil.copyfile(file, Path(folder, "baseline.duckdb"))
        with open_store(copy) as renewed:
            yield renewed
