"""DuckDB on this machine: what is too large for the memory goes through a temporary file."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from ragtrace.engine import SPANS
from ragtrace.errors import UsageError
from ragtrace.lake.layout import schema as lake_schema

if TYPE_CHECKING:
    from ragtrace.engine import Work
    from ragtrace.lake import Lake

_MEMORY = "2GB"
_ROWS = 50_000  # spans handed to one call of the mapped function, about


class DuckDBEngine:
    """:class:`ragtrace.engine.Engine` in this process.

    :raises InputError: no lake, or one of another version.
    """

    def __init__(self, lake: Lake) -> None:
        self._folder = TemporaryDirectory(prefix="ragtrace-")
        self._db = duckdb.connect(f"{self._folder.name}/spans.duckdb")
        try:
            self._db.execute("SET memory_limit = ?", [_MEMORY])
            self._db.register("none", lake_schema().empty_table())
            self._db.execute("CREATE TABLE lake AS FROM none")
            for path in lake.files():
                self._db.register("given", lake.read(path))
                self._db.execute("INSERT INTO lake FROM given")
                self._db.unregister("given")
            self._db.execute(f"CREATE VIEW spans AS {SPANS}")
            self._db.execute("SET python_enable_replacements = false")
            self._db.execute("SET autoload_known_extensions = false")
            self._db.execute("SET enable_external_access = false")
            self._db.execute("SET lock_configuration = true")
        except BaseException:
            self.close()
            raise

    def sql(self, query: str) -> pa.Table:
        """See :meth:`ragtrace.engine.Engine.sql`."""
        try:
            statements = self._db.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError("expected one SELECT over `spans`")
            return self._db.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise UsageError(str(error)) from error

    def map(self, query: str, key: str, work: Work, schema: pa.Schema) -> pa.Table:
        """See :meth:`ragtrace.engine.Engine.map`."""
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE picked AS {query}")
        [(rows,)] = self._db.execute("SELECT count(*) FROM picked").fetchall()
        parts = 1 + rows // _ROWS
        made = [schema.empty_table()]
        for part in range(parts):
            some = self._db.sql(
                f'SELECT * EXCLUDE ("{key}") FROM picked WHERE hash("{key}") % {parts} = {part}'  # noqa: S608 (ours)
            ).to_arrow_table()
            if some.num_rows:
                made.append(work(some).cast(schema))
        return pa.concat_tables(made)

    def close(self) -> None:
        """See :meth:`ragtrace.engine.Engine.close`."""
        self._db.close()
        self._folder.cleanup()
