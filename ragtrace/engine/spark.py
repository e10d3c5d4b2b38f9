"""Apache Spark: reads the lake's files in its workers, answers SQL translated by sqlglot, and maps in them.

The workers open the lake through pyarrow, as this process does: no Hadoop connector is needed for S3. They need
ragtrace and what its metrics use.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ragtrace.engine import ONCE, Days, java
from ragtrace.engine.portions import worked
from ragtrace.errors import RagtraceError, UsageError
from ragtrace.lake.layout import schema as lake_schema

if TYPE_CHECKING:
    from ragtrace.engine import Work
    from ragtrace.lake import Lake

_BATCH = 10_000  # rows of an Arrow batch on its way between Java and Python
_TYPES = {
    pa.string(): "string", pa.int64(): "bigint", pa.int32(): "int", pa.float64(): "double", pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp_ntz", pa.date32(): "date",
}  # fmt: skip
MASTER = "RAGTRACE_SPARK_MASTER"


class SparkEngine:
    """:class:`ragtrace.engine.Engine` on a Spark cluster.

    The cluster is the session that is there already, else ``RAGTRACE_SPARK_MASTER`` (as ``spark://host:7077``), else
    what Spark's own configuration says, else this machine's cores.

    :raises UsageError: pyspark or Java is missing.
    :raises InputError: no lake, or one of another version.
    """

    def __init__(self, lake: Lake, days: Days) -> None:
        java.check()
        self._kept: list[Any] = []
        self._began, self._spark = _session()
        try:
            paths = days.files(lake)
            for path in paths[:1]:
                lake.read(path, ["trace_id"])  # a wrong version is said here, not from a worker
            with _quiet():
                listed = self._spark.createDataFrame([(p,) for p in paths], "path string").repartition(
                    max(1, len(paths))
                )
                listed.mapInArrow(partial(_read, lake), _ddl(lake_schema())).createOrReplaceTempView("lake")
                self._view("once", ONCE)
                self._view("spans", days.of("once") or "SELECT * FROM once")
        except BaseException:
            self.close()
            raise

    def sql(self, query: str) -> pa.Table:
        """See :meth:`ragtrace.engine.Engine.sql`."""
        with _quiet(), _told():
            return _plain(self._spark.sql(translated(query)).toArrow())

    def keep(self, name: str, query: str) -> None:
        """See :meth:`ragtrace.engine.Engine.keep`."""
        from pyspark import StorageLevel

        with _quiet(), _told():
            self._kept.append(self._spark.sql(translated(query)).persist(StorageLevel.DISK_ONLY))
            self._kept[-1].createOrReplaceTempView(name)

    def map(self, name: str, query: str, key: str, work: Work, schema: pa.Schema) -> None:
        """See :meth:`ragtrace.engine.Engine.map`."""
        with _quiet(), _told():
            picked = self._spark.sql(translated(query)).repartition(key).sortWithinPartitions(key)
            picked.mapInArrow(partial(_apply, key, work, schema), _ddl(schema)).createOrReplaceTempView(name)

    def give(self, name: str, table: pa.Table) -> None:
        """See :meth:`ragtrace.engine.Engine.give`."""
        with _quiet(), _told():
            self._spark.createDataFrame(table, _ddl(table.schema)).createOrReplaceTempView(name)

    def close(self) -> None:
        """Ends the session, unless it was there before."""
        if self._began:
            self._spark.stop()
            return
        for kept in self._kept:
            kept.unpersist()

    def _view(self, name: str, query: str) -> None:
        self._spark.sql(translated(query)).createOrReplaceTempView(name)


def translated(query: str) -> str:
    """``query``, in Spark's dialect.

    :raises UsageError: not one SELECT, or one that cannot be translated.
    """
    import sqlglot

    try:
        asked = sqlglot.parse(query, read="duckdb")
        if len(asked) != 1 or not isinstance(asked[0], sqlglot.exp.Query):
            raise UsageError("expected one SELECT over `spans`")
        return asked[0].sql("spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.errors.SqlglotError as error:
        raise UsageError(f"this SQL has no translation for Spark: {error}") from error


def _read(lake: Lake, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield from lake.read(path).select(lake_schema().names).to_batches(_BATCH)


def _apply(key: str, work: Work, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for made in worked(batches, key, work, schema):
        yield from made.to_batches(_BATCH)


def _plain(table: pa.Table) -> pa.Table:
    """Without what Spark writes into the schema."""
    return table.replace_schema_metadata(None)


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_type(field.type)}" for field in schema)


def _type(kind: pa.DataType) -> str:
    return f"array<{_type(kind.value_type)}>" if pa.types.is_list(kind) else _TYPES[kind]


def _session() -> tuple[bool, Any]:
    try:
        with _quiet():
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(
            'the engine spark needs the package pyspark; install it with: pip install "ragtrace-audit[spark]"'
        ) from error
    if (there := SparkSession.getActiveSession()) is not None:
        return False, there
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.appName("ragtrace").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.runSQLOnFiles", "false")  # whoever asks sees the lake, and no files
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.ansi.enabled", "true")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(_BATCH))
    if master := os.environ.get(MASTER):
        builder = builder.master(master)
    with _quiet():
        return True, builder.getOrCreate()


@contextmanager
def _quiet() -> Iterator[None]:
    """Spark warns of pandas 3, of which nothing is used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def _told() -> Iterator[None]:
    """What Spark raises becomes one line of ours."""
    try:
        yield
    except RagtraceError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if "ragtrace.errors." in line), lines[0] if lines else type(error).__name__)
        raise UsageError(f"Spark could not do it: {said}") from error
