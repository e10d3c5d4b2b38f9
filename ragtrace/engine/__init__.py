"""What computes over a lake: one interface, an engine a file.

An :class:`Engine` does two things. It answers SQL over its relations, written in DuckDB's dialect; another engine gets
it translated. There is ``spans`` (each span of the lake once), and what is made of it. And it *maps*: it hands all
spans that belong together (a trace, or all of an audit's target) to one Python function as Arrow. That function fills
a database of the usual tables in memory and asks the usual views and metrics, so each of them has one definition,
whatever engine runs it. ``asking`` makes by that what a question names.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ragtrace.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ragtrace.lake import Lake

Work = Callable[["pa.Table"], "pa.Table"]
ONCE = """
SELECT * FROM lake
QUALIFY row_number() OVER (
    PARTITION BY trace_id, span_id ORDER BY start_time_ns, end_time_ns, name, attributes, events, resource
) = 1
"""
"""Each span once: where it was written twice, the same one of them for every engine."""
_WITHIN = """
SELECT * FROM {spans} WHERE trace_id IN (SELECT trace_id FROM {spans} GROUP BY trace_id HAVING {conditions})
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).date()
_DAY = 86_400 * 10**9
ENGINES = ("duckdb", "spark")


class Days(NamedTuple):
    """The days of which traces are asked for, both inclusive: those that began then."""

    since: date | None = None
    until: date | None = None

    def files(self, lake: Lake) -> list[str]:
        """Those that can hold a span of such a trace, unless it runs for more than a day."""
        day = timedelta(days=1)
        return lake.files(self.since and self.since - day, self.until and self.until + day)

    def of(self, spans: str) -> str | None:
        """The query for them in the relation ``spans``; ``None`` where that is all of it."""
        conditions = [f"min(start_time_ns) >= {_ns(self.since)}"] if self.since else []
        conditions += [f"min(start_time_ns) < {_ns(self.until) + _DAY}"] if self.until else []
        return _WITHIN.format(spans=spans, conditions=" AND ".join(conditions)) if conditions else None


class Engine(Protocol):
    """What every engine can do with one lake."""

    def sql(self, query: str) -> pa.Table:
        """The answer to one SELECT over the relations, in DuckDB's dialect.

        :raises UsageError: wrong SQL, or a word of DuckDB that the engine has none for.
        """
        ...

    def keep(self, name: str, query: str) -> None:
        """Makes the rows of ``query`` a relation, computed once however often they are asked."""
        ...

    def map(self, name: str, query: str, key: str, work: Work, schema: pa.Schema) -> None:
        """Makes a relation of what ``work`` makes of the rows of ``query``.

        It gets all that have the same value in the column ``key`` together (and those of other keys with them), without
        that column, and gives rows of ``schema``. They stay where they are made, and come here by :meth:`sql` alone.
        ``work`` runs in other processes where the engine has some, so it must be able to travel there (pickle).
        """
        ...

    def give(self, name: str, table: pa.Table) -> None:
        """Makes a relation of rows that are here."""
        ...

    def close(self) -> None:
        """Gives back what the engine holds."""
        ...


def engine(name: str, lake: Lake, days: Days = Days()) -> Engine:  # noqa: B008 - cannot be changed
    """The engine of that name over ``lake``.

    :param days: only the traces that began then.
    :raises UsageError: no such engine, or it cannot run here; the message says what is missing.
    """
    if name == "duckdb":
        from ragtrace.engine.local import DuckDBEngine

        return DuckDBEngine(lake, days)
    if name == "spark":
        from ragtrace.engine.spark import SparkEngine

        return SparkEngine(lake, days)
    raise UsageError(f"no engine {name!r}; expected one of {', '.join(ENGINES)}")


def _ns(day: date) -> int:
    return (day - _EPOCH).days * _DAY
