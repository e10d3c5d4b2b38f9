"""A small database of the usual tables and views, in memory, that engines fill with spans and ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ragtrace.store import in_memory

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_KNOWN = "known_"
_waiting: list[_Small] = []  # of this process


@contextmanager
def small() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty one: made once in each process, for that takes as long as to fill it with thousands of spans."""
    try:
        made = _waiting.pop()
    except IndexError:
        made = _Small()
    try:
        yield made.db
        made.empty()
    except BaseException:
        made.db.close()
        raise
    _waiting.append(made)


class _Small:
    def __init__(self) -> None:
        self.db = in_memory()
        self._rows = {table: self.db.sql(f'FROM "{table}"').to_arrow_table() for table in self._tables()}
        self._views = dict(self.db.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal").fetchall())

    def empty(self) -> None:
        """As it was made: its tables hold what they held, and its views read them."""
        for (held,) in self.db.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall():
            self.db.execute(f'DROP TABLE temp."{held}"')
        for table in self._tables():
            if (rows := self._rows.get(table)) is None:
                view = table.removeprefix(_KNOWN)
                self.db.execute(self._views[view].replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
                self.db.execute(f'DROP TABLE "{table}"')
                continue
            self.db.execute(f'TRUNCATE "{table}"')
            if rows.num_rows:
                self.db.register("given", rows)
                self.db.execute(f'INSERT INTO "{table}" FROM given')
                self.db.unregister("given")

    def _tables(self) -> list[str]:
        return [name for (name,) in self.db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]


def plain(db: duckdb.DuckDBPyConnection, view: str) -> pa.Table:
    """The rows of a view, in columns that every engine has: JSON is text."""
    kinds = db.execute(f'DESCRIBE "{view}"').fetchall()
    columns = (f'"{name}"::VARCHAR AS "{name}"' if kind == "JSON" else f'"{name}"' for name, kind, *_ in kinds)
    return db.sql(f'SELECT {", ".join(columns)} FROM "{view}"').to_arrow_table()  # noqa: S608 (names of views)


def known(db: duckdb.DuckDBPyConnection, view: str, rows: pa.Table) -> None:
    """Puts rows in the place of a view, for all views that read it."""
    db.execute(f"CREATE TABLE {_KNOWN}{view} AS FROM {view} LIMIT 0")
    db.register("given", rows)
    db.execute(f"INSERT INTO {_KNOWN}{view} BY NAME FROM given")
    db.unregister("given")
    db.execute(f"CREATE OR REPLACE VIEW {view} AS FROM {_KNOWN}{view}")


def hold(db: duckdb.DuckDBPyConnection, *views: str) -> None:
    """Computes views once, for all who ask for them by name from here on."""
    for view in views:
        db.execute(f"CREATE TEMP TABLE {view} AS FROM {view}")
