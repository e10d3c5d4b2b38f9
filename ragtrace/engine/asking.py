"""Answers a question about a lake: makes what it names, by the usual views, and asks the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ragtrace.engine.counting import COUNTED, Counts, summed
from ragtrace.engine.relations import BY_TRACE, KEY, MAPPED, SEVERAL_PROBES, SUMMED, named, shape
from ragtrace.engine.small import known, plain, small
from ragtrace.errors import UsageError
from ragtrace.store import add_tables
from ragtrace.store.canary_search import search_for_planted
from ragtrace.store.exposure import measure

if TYPE_CHECKING:
    from ragtrace.engine import Engine

# Only spans in which a part of a framework ran: one that says so says `part` somewhere.
_PARTS = f"{BY_TRACE} WHERE contains(attributes, 'ragtrace.effects') AND contains(attributes, 'part')"


def ask(engine: Engine, query: str) -> pa.Table:
    """The answer to one SELECT, in DuckDB's dialect, over ``spans`` and the views of ``relations``.

    :raises UsageError: wrong SQL, a view that a lake has not, or a word of DuckDB that the engine has none for.
    """
    making = _Making(engine)
    for name in sorted(named(query)):
        making.relation(name.lower())
    return engine.sql(query)


@dataclass
class _Making:
    engine: Engine
    made: set[str] = field(default_factory=lambda: {"spans"})
    facts: dict[str, pa.Table] = field(default_factory=dict)

    def relation(self, view: str) -> None:
        if view in self.made:
            return
        self.made.add(view)
        if view in SUMMED:
            self.engine.give(view, self.summed(view))
            return
        if view == "sessions":
            self.relation("session_traces")
        if view == "entities" and (several := self.engine.sql(SEVERAL_PROBES).to_pylist()):
            raise UsageError(
                f"trace {several[0]['trace_id']} belongs to several probes, so `entities` cannot be told probe by "
                "probe; `ragtrace score --lake URL --db DB` makes a database of the audits; ask that"
            )
        query, facts = MAPPED[view]
        work = Rows(view, {name: self.fact(name) for name in facts})
        self.engine.map(view, query, KEY, work, shape(view))

    def fact(self, view: str) -> pa.Table:
        """A small view of the whole lake, here."""
        if view not in self.facts:
            if view in SUMMED:
                self.facts[view] = self.summed(view)
            else:
                self.relation(view)
                self.facts[view] = self.engine.sql(f'SELECT * FROM "{view}"').cast(shape(view))  # noqa: S608 (ours)
        return self.facts[view]

    def summed(self, view: str) -> pa.Table:
        parts = view == "part_hooks"
        work = Counts(None if parts else self.fact("part_hooks"))
        name = f"counted_for_{view}"
        self.engine.map(name, _PARTS if parts else BY_TRACE, KEY, work, COUNTED)
        columns = ", ".join(column for column in COUNTED.names if column != "times")
        counted = self.engine.sql(
            f"SELECT {columns}, CAST(sum(times) AS BIGINT) AS times FROM {name} GROUP BY {columns}"  # noqa: S608 (ours)
        )
        return summed(view, counted.cast(COUNTED))


@dataclass(frozen=True)
class Rows:
    """What is mapped: spans to the rows of a view over them; ``facts`` stand in for views over the whole lake."""

    view: str
    facts: dict[str, pa.Table]

    def __call__(self, spans: pa.Table) -> pa.Table:
        """The rows."""
        with small() as db:
            for name, rows in self.facts.items():
                known(db, name, rows)
            add_tables(db, [spans])
            if self.view == "canary_hits":
                search_for_planted(db)
            if self.view == "exposure":
                measure(db)
            return plain(db, self.view)
