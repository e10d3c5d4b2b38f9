"""The request that each span of ours belongs to: the nearest root at or above it, found once, when it is merged.

What is not found yet (a request's root ends last, and may come with a later segment) stays NULL in
``span_data.request_id``, and the view ``requests`` looks for it whenever it is asked; an empty text says that there is
none.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ragtrace.record import attributes as a
from ragtrace.store.lifting import value

_BACK = 500_000  # rows: how far back a span may have waited for its root

# Spans of others may lie between. UNION, not UNION ALL: a span that is its own ancestor must not keep us here for ever.
_UP = """
up AS (
    SELECT n, trace_id, parent_span_id AS above FROM links WHERE ours AND NOT is_root AND sought
    UNION
    SELECT u.n, u.trace_id, l.parent_span_id
    FROM up u JOIN links l ON l.trace_id = u.trace_id AND l.span_id = u.above WHERE NOT l.is_root
), found AS (
    SELECT u.n, coalesce(u.above, '') AS request_id
    FROM up u LEFT JOIN links l ON l.trace_id = u.trace_id AND l.span_id = u.above
    WHERE u.above IS NULL OR l.is_root
)
"""
_WAITING = """
SELECT 1 FROM span_data WHERE rowid > $back AND request_id IS NULL AND dialect = 'ragtrace' LIMIT 1
"""
_SETTLE = f"""
UPDATE span_data SET request_id = found.request_id FROM (
    WITH RECURSIVE waiting AS MATERIALIZED (
        SELECT rowid AS n, trace_id FROM span_data
        WHERE rowid > $back AND request_id IS NULL AND dialect = 'ragtrace'
    ), links AS MATERIALIZED (
        SELECT rowid AS n, trace_id, span_id, parent_span_id, dialect = 'ragtrace' AS ours,
            dialect = 'ragtrace' AND request_id IS NULL AS sought,
            dialect = 'ragtrace' AND stage IS NULL AND path IS NOT NULL AS is_root
        FROM span_data SEMI JOIN (
            SELECT trace_id FROM waiting SEMI JOIN (SELECT trace_id FROM span_data WHERE rowid > $last) USING (trace_id)
        ) USING (trace_id) WHERE span_data.rowid > $back
    ), {_UP}
    FROM found
) AS found WHERE span_data.rowid > $back AND span_data.rowid = found.n
"""  # noqa: S608 - constants


def with_requests(table: pa.Table) -> pa.Table:
    """``table`` (with ``lifted``) and beside it the ``request_id`` of the spans that have theirs in it."""
    ours, path, stage = table["ours"], value(table, a.PATH), pc.coalesce(value(table, a.STAGE), table["stage"])
    is_root = pc.and_(pc.and_(ours, pc.is_null(stage)), pc.is_valid(path))
    spans = pc.binary_join_element_wise(table["trace_id"], table["span_id"], "/")
    parents = pc.binary_join_element_wise(table["trace_id"], table["parent_span_id"], "/")
    above = pc.index_in(parents, value_set=spans.combine_chunks(), skip_nulls=True)
    rows = pa.array(range(table.num_rows), pa.int32())
    top = pc.if_else(is_root, rows, pc.coalesce(above, rows)).combine_chunks()
    for _ in range(table.num_rows.bit_length()):  # each time twice as far up; who is its own ancestor has no top
        higher = top.take(top)
        if higher.equals(top):
            break
        top = higher
    no_parent = pc.if_else(pc.is_null(table["parent_span_id"]), "", None)
    found = pc.if_else(is_root, table["span_id"], no_parent).take(top)
    return table.append_column("request_id", pc.if_else(ours, found, None))


def settle(connection: duckdb.DuckDBPyConnection, last: int) -> None:
    """Looks once more for the requests of spans that waited, in the traces that got something after row ``last``."""
    back = last - _BACK
    if connection.execute(_WAITING, {"back": back}).fetchall():
        connection.execute(_SETTLE, {"last": last, "back": back}).fetchall()
