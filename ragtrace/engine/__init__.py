"""What computes over a lake: one interface, an engine a file.

An :class:`Engine` does two things. It answers SQL over the relation ``spans`` (each span of the lake once), written in
DuckDB's dialect; another engine gets it translated. And it *maps*: it hands all spans that belong together (a trace,
or all of an audit's target) to one Python function as Arrow. That function fills a database of the usual tables in
memory and asks the usual views and metrics, so each of them has one definition, whatever engine runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ragtrace.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ragtrace.lake import Lake

Work = Callable[["pa.Table"], "pa.Table"]
SPANS = """
SELECT * FROM lake
QUALIFY row_number() OVER (
    PARTITION BY trace_id, span_id ORDER BY start_time_ns, end_time_ns, name, attributes, events, resource
) = 1
"""
"""The relation ``spans``: where a span was written twice, the same one of them for every engine."""
ENGINES = ("duckdb", "spark")


class Engine(Protocol):
    """What every engine can do with one lake."""

    def sql(self, query: str) -> pa.Table:
        """The answer to one SELECT over ``spans``, in DuckDB's dialect.

        :raises UsageError: wrong SQL, or a word of DuckDB that the engine has none for.
        """
        ...

    def map(self, query: str, key: str, work: Work, schema: pa.Schema) -> pa.Table:
        """What ``work`` makes of the rows of ``query``: it gets all that have the same value in the column ``key``
        together (and those of other keys with them), without that column; and gives rows of ``schema``.

        ``work`` runs in other processes where the engine has some, so it must be able to travel there (pickle).
        """
        ...

    def close(self) -> None:
        """Gives back what the engine holds."""
        ...


def engine(name: str, lake: Lake) -> Engine:
    """The engine of that name over ``lake``.

    :raises UsageError: no such engine, or it cannot run here; the message says what is missing.
    """
    if name == "duckdb":
        from ragtrace.engine.local import DuckDBEngine

        return DuckDBEngine(lake)
    if name == "spark":
        from ragtrace.engine.spark import SparkEngine

        return SparkEngine(lake)
    raise UsageError(f"no engine {name!r}; expected one of {', '.join(ENGINES)}")
