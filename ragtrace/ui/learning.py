"""The verdicts, and in which traces a defense was gone round: worked out in pieces, behind the pages.

Asked of the whole store, the views take their time and hold the database for as long. Both follow from each trace for
itself, so the views are asked of some traces at a time, and `verdicts` of what they said together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.ui.reading import Row, Store, rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ragtrace.ui.scratch import Scratch

_PIECE = 100_000  # spans
# What these views read: of the attributes, only those of calls that did not simply end, and of others' parts.
_SPANS = """
SELECT trace_id, span_id, parent_span_id, dialect, stage, path, status, run_id, arm, nested, declared, effects,
    duplicate_of, CASE WHEN (stage = 'generation' AND (
        status = 'ERROR' OR contains(attributes::VARCHAR, 'ragtrace.stopped_early')
    )) OR (stage = 'defense' AND dialect <> 'ragtrace') THEN attributes END AS attributes
FROM span_data WHERE start_ns BETWEEN $low AND $high AND trace_id IN (SELECT unnest($traces::VARCHAR[]))
"""
_PIECES = f"""
SELECT min(n), max(n), min(first_ns), max(last_ns) FROM (
    SELECT *, sum(spans) OVER (ORDER BY n) // {_PIECE} AS piece FROM traces
) GROUP BY piece ORDER BY piece
"""  # noqa: S608 (constant)
_IDS = "SELECT trace_id FROM traces WHERE n BETWEEN ? AND ?"
_COUNTED = """
CREATE TABLE IF NOT EXISTS counted_coverage (defense VARCHAR, hook VARCHAR, path VARCHAR, ran BOOLEAN, n BIGINT);
CREATE TABLE IF NOT EXISTS counted_effects (
    defense VARCHAR, hook VARCHAR, path VARCHAR, status VARCHAR, error VARCHAR, late BOOLEAN, n BIGINT
);
CREATE TABLE IF NOT EXISTS counted_parts (defense VARCHAR, path VARCHAR, status VARCHAR, dialect VARCHAR, n BIGINT);
CREATE TABLE IF NOT EXISTS counted_claims (defense VARCHAR, hook VARCHAR);
CREATE OR REPLACE TEMP TABLE crossed AS SELECT trace_id, defense, hook, path, ran FROM coverage;
INSERT INTO counted_coverage SELECT defense, hook, path, ran, count(*) FROM crossed GROUP BY ALL;
INSERT INTO counted_effects SELECT defense, hook, path, status, error, late, count(*) FROM effects GROUP BY ALL;
INSERT INTO counted_parts SELECT attributes->>'ragtrace.part', path, status, dialect, count(*) FROM staged_spans
    WHERE stage = 'defense' AND dialect <> 'ragtrace' GROUP BY ALL;
INSERT INTO counted_claims SELECT DISTINCT defense, hook FROM claims;
"""
_BYPASSED = "SELECT DISTINCT trace_id, defense, hook, 'bypassed' AS status FROM crossed WHERE NOT ran"
_TOGETHER = """
CREATE OR REPLACE VIEW coverage AS
    SELECT * EXCLUDE (n, one) FROM (SELECT *, unnest(range(n)) AS one FROM counted_coverage);
CREATE OR REPLACE VIEW effects AS
    SELECT * EXCLUDE (n, one) FROM (SELECT *, unnest(range(n)) AS one FROM counted_effects);
CREATE OR REPLACE VIEW foreign_parts AS
    SELECT * EXCLUDE (n, one) FROM (SELECT *, unnest(range(n)) AS one FROM counted_parts)
    WHERE defense IS NOT NULL AND defense NOT IN (SELECT defense FROM counted_effects WHERE defense IS NOT NULL);
CREATE OR REPLACE VIEW claims AS SELECT DISTINCT * FROM counted_claims;
"""
_VERDICTS = """
SELECT defense, hook, verdict, evidence, runs, changed, errors, crossings, bypassed, bypassed_paths
FROM verdicts ORDER BY defense, list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook)
"""
_SOURCES = ("inventory_data", "battery_data")


class Abandoned(Exception):  # noqa: N818
    """Nobody wants to know any more: the store was read anew, or the viewer ends."""


@dataclass(frozen=True)
class Verdicts:
    """The matrix, and in how many traces a defense did what: (defense, hook, status) → traces."""

    rows: list[Row]
    traces: dict[tuple[str, str | None, str], int]


class Piece(NamedTuple):
    """Some traces: their numbers in the index, and between which times their spans start."""

    first: int
    last: int
    low: int
    high: int


def pieces(own: DuckDBPyConnection) -> list[Piece]:
    """The index's traces, about so many spans at a time, in the order of time."""
    return [Piece(*row) for row in own.execute(_PIECES).fetchall()]


def bypasses(store: Store, scratch: Scratch, own: DuckDBPyConnection) -> Iterator[Any]:
    """Of each piece, in which traces a defense was gone round where, as Arrow; what is counted stays in ``scratch``."""
    for first, last, low, high in pieces(own):
        ids = [id for (id,) in own.execute(_IDS, [first, last]).fetchall()]  # of one piece: a store has millions
        with store.reading() as db:
            spans = db.sql(_SPANS, params={"traces": ids, "low": low, "high": high}).to_arrow_table()
        with scratch.holding(spans) as few:
            few.execute(_COUNTED)
            yield few.sql(_BYPASSED).to_arrow_table()


def matrix(store: Store, scratch: Scratch) -> list[Row]:
    """What the view `verdicts` makes of all that was counted, of inventory and battery."""
    with store.reading() as db:
        found = {table: db.sql(f"FROM {table}").to_arrow_table() for table in _SOURCES}
    with scratch.holding() as own:
        own.execute(_COUNTED)
        own.execute(_TOGETHER)
        for table, told in found.items():
            own.register("incoming", told)
            own.execute(f"INSERT INTO {table} BY NAME FROM incoming")
            own.unregister("incoming")
        return rows(own, _VERDICTS)
