"""The views over single traces: their spans alone in a database in memory.

What the views make of a trace depends on its own spans, and on little else (what its run planted, its twin in the
undefended arm); asked of the whole store some of them would read all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_TABLES = ("span_data", "entity_data")


class Scratch:
    """Made on first use, then used again and again, by one request at a time."""

    def __init__(self, canaries: pa.Table, parts: pa.Table) -> None:
        self._known = {"canaries": canaries, "part_hooks": parts}  # views that look beyond the trace
        self._connection: DuckDBPyConnection | None = None
        self._lock = Lock()

    @contextmanager
    def holding(self, *found: pa.Table) -> Iterator[DuckDBPyConnection]:
        """A connection whose views know these rows of ``span_data`` and ``entity_data``, and nothing else."""
        with self._lock:
            if self._connection is None:
                self._connection = self._made()
            own = self._connection
            for table, given in zip(_TABLES, found, strict=False):
                own.register("incoming", given)
                own.execute(f"INSERT INTO {table} BY NAME FROM incoming")
                own.unregister("incoming")
            try:
                yield own
            finally:
                for table in _TABLES:
                    own.execute(f"TRUNCATE {table}")

    def _made(self) -> DuckDBPyConnection:
        folder = files("ragtrace.store")
        views = sorted((f for f in folder.joinpath("views").iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
        own = in_memory()
        own.execute("\n".join(file.read_text("utf-8") for file in (folder.joinpath("schema.sql"), *views)))
        for view, found in self._known.items():
            own.register("incoming", found)
            own.execute(f"CREATE TABLE known_{view} AS FROM incoming")
            own.unregister("incoming")
            own.execute(f"CREATE OR REPLACE VIEW {view} AS FROM known_{view}")
        return own


def in_memory() -> DuckDBPyConnection:
    """A database that stays in memory: what the store may have encrypted is in no temporary file."""
    return duckdb.connect(":memory:", config={"temp_directory": ""})
