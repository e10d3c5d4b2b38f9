"""Views over the whole lake's ledger, from what each trace counts.

Traces are mapped to the few columns that decide, each different row with the number of times it is there. Here these
are what the usual views read, as often as they were counted: the lake's verdict is made by the view ``verdicts``, and
comes from no second definition of it. A billion runs of a defense are a billion rows in passing, and some hundreds in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ragtrace.engine.small import known, plain, small
from ragtrace.store import add_tables, in_memory

COUNTED = pa.schema([
    *((name, pa.string()) for name in ("kind", "defense", "hook", "path", "status", "error", "dialect")),
    *((name, pa.bool_()) for name in ("late", "part", "ran")), ("times", pa.int64()),
])  # fmt: skip
_COUNT = """
SELECT 'ledger' AS kind, e.defense AS defense, e.hook AS hook, path, e.status AS status, e.error AS error,
    e.late AS late, e.part AND contains(effects, '"part":true') AS part, count(*) AS times FROM ledger GROUP BY ALL
UNION ALL BY NAME
SELECT 'coverage' AS kind, defense, hook, path, ran, count(*) AS times FROM coverage GROUP BY ALL
UNION ALL BY NAME
SELECT DISTINCT 'claims' AS kind, defense, hook, 1 AS times FROM claims
UNION ALL BY NAME
SELECT 'staged_spans' AS kind, attributes->>'ragtrace.part' AS defense, path, status, dialect, count(*) AS times
FROM staged_spans WHERE stage = 'defense' AND dialect <> 'ragtrace' GROUP BY ALL
"""
# A span for each different row: the views over spans read it as any other.
_AS_SPANS = """
CREATE TABLE counted AS SELECT row_number() OVER ()::VARCHAR AS span_id, * FROM given;
INSERT INTO span_data BY NAME
SELECT span_id, path, 'ragtrace' AS dialect,
    to_json([{defense: defense, hook: hook, status: status, error: error, late: late, part: part}]) AS effects
FROM counted WHERE kind = 'ledger';
INSERT INTO span_data BY NAME
SELECT span_id, path, status, dialect, 'defense' AS stage, json_object('ragtrace.part', defense) AS attributes
FROM counted WHERE kind = 'staged_spans';
"""
_ROWS = {
    "ledger": "SELECT l.*, c.times FROM ledger l JOIN counted c USING (span_id)",
    "staged_spans": "SELECT s.*, c.times FROM staged_spans s JOIN counted c USING (span_id)",
    "coverage": "SELECT defense, hook, path, ran, times FROM counted WHERE kind = 'coverage'",
    "claims": "SELECT defense, hook, times FROM counted WHERE kind = 'claims'",
}
_BASE, _POWERS = 1_000, 5  # numbers below 10^15


@dataclass(frozen=True)
class Counts:
    """What is mapped: the spans of some traces to what they count; ``hooks`` is ``part_hooks`` of the whole lake."""

    hooks: pa.Table | None

    def __call__(self, spans: pa.Table) -> pa.Table:
        """Rows of :data:`COUNTED`."""
        with small() as db:
            if self.hooks is not None:
                known(db, "part_hooks", self.hooks)
            add_tables(db, [spans])
            return db.sql(_COUNT).select(*COUNTED.names).to_arrow_table()


def summed(view: str, counted: pa.Table) -> pa.Table:
    """The rows of a view over what the lake's traces count, added up."""
    with in_memory() as db:
        db.register("given", counted)
        db.execute(_AS_SPANS)
        db.unregister("given")
        for name, rows in _ROWS.items():
            db.execute(f"CREATE TABLE each_{name} AS SELECT *, 0::BIGINT AS times FROM {name} LIMIT 0")  # noqa: S608
            db.execute(f"INSERT INTO each_{name} BY NAME {rows}")
        db.execute(f"CREATE TABLE digits AS SELECT unnest(range({_BASE})) AS digit")
        for name in _ROWS:
            db.execute(f"CREATE OR REPLACE VIEW {name} AS {_repeated(f'each_{name}')}")
        return plain(db, view)


def _repeated(table: str) -> str:
    """Its rows, each as often as its column ``times`` says: digit by digit, so that nothing has to be held."""
    return " UNION ALL ".join(
        f"SELECT t.* EXCLUDE (times) FROM {table} t "  # noqa: S608 (constants)
        f"JOIN digits ON digit < t.times // {_BASE**power} % {_BASE}"
        + "".join(f" CROSS JOIN digits d{place}" for place in range(power))
        for power in range(_POWERS)
    )
