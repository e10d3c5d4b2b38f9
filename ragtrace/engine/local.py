"""DuckDB on this machine: what is too large for the memory goes through a temporary file."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from ragtrace.engine import ONCE, Days
from ragtrace.engine.portions import worked
from ragtrace.errors import UsageError
from ragtrace.lake.layout import schema as lake_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from ragtrace.engine import Work
    from ragtrace.lake import Lake

_MEMORY = "2GB"
_BATCH = 8_192
_TWICE = "CREATE TEMP TABLE twice AS SELECT trace_id, span_id FROM spans GROUP BY ALL HAVING count(*) > 1"
_SETTLE = f"""
CREATE TEMP TABLE settled AS WITH lake AS (FROM spans SEMI JOIN twice USING (trace_id, span_id)) {ONCE};
DELETE FROM spans WHERE (trace_id, span_id) IN (FROM twice);
INSERT INTO spans FROM settled;
DROP TABLE settled;
"""  # noqa: S608 - constants


class DuckDBEngine:
    """:class:`ragtrace.engine.Engine` in this process.

    :raises InputError: no lake, or one of another version.
    """

    def __init__(self, lake: Lake, days: Days) -> None:
        self._folder = TemporaryDirectory(prefix="ragtrace-")
        self._db = duckdb.connect(f"{self._folder.name}/spans.duckdb")
        try:
            self._db.execute("SET memory_limit = ?", [_MEMORY])
            self.give("spans", lake_schema().empty_table())
            for path in days.files(lake):
                self._insert("spans", lake.read(path))
            self._db.execute(_TWICE)
            if self._db.execute("FROM twice LIMIT 1").fetchall():  # mostly not: no span is read again to compare it
                self._db.execute(_SETTLE)
            if (asked := days.of("spans")) is not None:
                self.keep("spans", asked)
            self._db.execute("DROP TABLE twice")
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

    def keep(self, name: str, query: str) -> None:
        """See :meth:`ragtrace.engine.Engine.keep`."""
        self._db.execute(f'CREATE OR REPLACE TABLE "{name}" AS {query}')

    def map(self, name: str, query: str, key: str, work: Work, schema: pa.Schema) -> None:
        """See :meth:`ragtrace.engine.Engine.map`."""
        self.give(name, schema.empty_table())
        with self._db.cursor() as cursor:
            rows = cursor.sql(f'SELECT * FROM ({query}) ORDER BY "{key}"').to_arrow_reader(_BATCH)  # noqa: S608 (ours)
            for made in worked(rows, key, work, schema):
                self._insert(name, made)

    def give(self, name: str, table: pa.Table) -> None:
        """See :meth:`ragtrace.engine.Engine.give`."""
        self._db.register("given", table)
        self._db.execute(f'CREATE OR REPLACE TABLE "{name}" AS FROM given')
        self._db.unregister("given")

    def close(self) -> None:
        """See :meth:`ragtrace.engine.Engine.close`."""
        self._db.close()
        self._folder.cleanup()

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._db.register("given", rows)
        self._db.execute(f'INSERT INTO "{name}" FROM given')
        self._db.unregister("given")
