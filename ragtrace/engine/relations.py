"""Which views may be asked of a lake, and what the rows of each depend on.

A view of which every row comes from the spans of one trace can be made trace by trace, by any number of processes. Some
need a few facts of all the lake beside it, some need more than a trace together. What is in no span, or takes all of
a run, is not made here, and the error says where it is asked instead.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa

from ragtrace.engine.small import plain
from ragtrace.errors import UsageError
from ragtrace.lake.layout import schema as lake_schema
from ragtrace.store import in_memory

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = "together"
BY_TRACE = f"SELECT *, trace_id AS {KEY} FROM spans"  # noqa: S608 - constants, as all below
# A run's manifests. The column is that of the lake, the text is looked for as it stands in the attributes.
BY_RUN = f"""SELECT *, run_id AS {KEY} FROM spans WHERE run_id IS NOT NULL AND contains(attributes, '"ragtrace.run"')"""  # noqa: S608
# A probe's answers with every arm. A trace of no probe is alone.
BY_PROBE = f"""
SELECT s.*, t.probe AS {KEY} FROM spans s JOIN (
    SELECT trace_id, CASE WHEN max(run_id) IS NOT NULL AND max(probe_id) IS NOT NULL
        THEN concat(max(run_id), ' ', max(probe_id)) ELSE trace_id END AS probe
    FROM spans GROUP BY trace_id
) t ON s.trace_id = t.trace_id
"""  # noqa: S608
BY_SESSION = f"SELECT s.*, t.session AS {KEY} FROM spans s JOIN session_traces t ON s.trace_id = t.trace_id"  # noqa: S608
SEVERAL_PROBES = """
SELECT trace_id FROM spans GROUP BY trace_id HAVING count(DISTINCT run_id) > 1 OR count(DISTINCT probe_id) > 1 LIMIT 1
"""


class Relation(NamedTuple):
    """How a view is made: from the spans of ``query`` that have one value in :data:`KEY`."""

    query: str = BY_TRACE
    facts: tuple[str, ...] = ()  # views of the whole lake, small, that stand in for those of the portion


MAPPED = {
    **dict.fromkeys(
        ("stages", "documents", "generations", "probes", "claims", "requests", "roots", "trace_questions",
         "session_traces", "exposure"), Relation(),
    ),
    # a framework's part that says no hook has the one at which it acts elsewhere
    "effects": Relation(facts=("part_hooks",)),
    "coverage": Relation(facts=("part_hooks",)),
    "canary_hits": Relation(facts=("canaries",)),  # traffic is searched for what all runs planted
    "canaries": Relation(BY_RUN),
    "entities": Relation(BY_PROBE),  # in_control is read in the trace of the same probe without documents
    "sessions": Relation(BY_SESSION),
}  # fmt: skip
"""Those that are mapped; ``exposure`` is measured on the way, so nothing in it waits to be."""
SUMMED = ("verdicts", "verdict_paths", "part_hooks")
"""Those that are asked here, over what each trace counts."""
_SCORED = (
    "`ragtrace score --lake URL --db DB` (with `--engine spark`, by Spark) makes a database of the audits; ask that"
)
_STORED = "is in no span; ask the database that has it: `ragtrace sql --db DB`"
_ELSEWHERE = {
    **dict.fromkeys(
        ("results", "scores", "tradeoffs", "replications", "likelihoods", "outputs", "switched_on", "paired"),
        f"needs all of a run: {_SCORED}",
    ),
    "suspicions": f"is what `ragtrace detect` has stored, and {_STORED}",
    "alarms": f"is what `ragtrace watch` has raised, and {_STORED}",
    "losses": f"is what processes have counted, and {_STORED}",
    "capabilities": f"is what `ragtrace battery` has found, and {_STORED}",
}  # fmt: skip


def offered() -> list[str]:
    """What a question may name."""
    return sorted(("spans", *MAPPED, *SUMMED))


def named(query: str) -> set[str]:
    """The relations in one SELECT in DuckDB's dialect; its columns are there too, or this is the time to say so.

    :raises UsageError: no SELECT, wrong SQL, or a relation that a lake has not.
    """
    with _shapes().cursor() as shapes:
        try:
            statements = shapes.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError(f"expected one SELECT over {', '.join(offered())}")
            found = shapes.get_table_names(query)
            for name in sorted(found):
                _check(name)
            shapes.sql(query)
        except duckdb.Error as error:
            raise UsageError(f"{error}\na lake has: {', '.join(offered())}") from error
    return found


def shape(view: str) -> pa.Schema:
    """The columns of a view as every engine has them: JSON is text."""
    with _shapes().cursor() as shapes:
        return plain(shapes, view).schema


def _check(name: str) -> None:
    view = name.lower()
    if (instead := _ELSEWHERE.get(view)) is not None:
        raise UsageError(f"`{view}` {instead}")
    if view not in offered():
        raise UsageError(f"a lake has no `{name}`; it has: {', '.join(offered())}")


@cache
def _shapes() -> duckdb.DuckDBPyConnection:
    """Every relation without a row, where nothing else can be reached."""
    made = duckdb.connect()
    with in_memory() as db:
        views: Iterable[tuple[str]] = db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        tables = {view: plain(db, view) for (view,) in views}
    for name, table in (tables | {"spans": lake_schema().empty_table()}).items():
        made.register("given", table)
        made.execute(f'CREATE TABLE "{name}" AS FROM given')
        made.unregister("given")
    made.execute("SET python_enable_replacements = false")
    made.execute("SET autoload_known_extensions = false")
    made.execute("SET enable_external_access = false")
    made.execute("SET lock_configuration = true")
    return made
