"""The request that each span of ours belongs to: the nearest root at or above it, found once, when it is merged.

What is not found yet (a request's root ends last, and may come with a later segment) stays NULL in
``span_data.request_id``, and the view ``requests`` looks for it whenever it is asked; an empty text says that there is
none.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from ragtrace.record import attributes as a

_LIFTED = (a.FRAMEWORK, a.PATH, a.RUN_ID, a.PROBE_ID, a.ARM, a.STAGE, a.NESTED, a.DECLARED, a.EFFECTS)
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
_LIFT = f"""
WITH RECURSIVE told AS MATERIALIZED (
    SELECT n, trace_id, span_id, parent_span_id, ours, stage,
        CASE WHEN ours THEN try(json_extract_string(attributes, $paths::VARCHAR[])) END AS lifted
    FROM (SELECT *, scope IS NOT DISTINCT FROM $scope AS ours FROM arriving)
), links AS MATERIALIZED (
    SELECT n, trace_id, span_id, parent_span_id, ours, true AS sought,
        ours AND coalesce(lifted[6], stage) IS NULL AND lifted[2] IS NOT NULL AS is_root FROM told
), {_UP}
SELECT t.lifted, if(l.is_root, l.span_id, f.request_id) AS request_id
FROM told t JOIN links l USING (n) LEFT JOIN found f USING (n) ORDER BY n
"""  # noqa: S608 - constants
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


def lifted(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """``table`` (numbered in n) with what its attributes say (``lifted``, in the order of the columns from framework
    to effects) and the ``request_id`` of those that have it beside them.
    """
    connection.register("arriving", table)
    told = connection.sql(
        _LIFT, params={"scope": a.SCOPE, "paths": [f'$."{name}"' for name in _LIFTED]}
    ).to_arrow_table()
    connection.unregister("arriving")
    for name in ("lifted", "request_id"):
        table = table.append_column(name, told[name])
    return table


def settle(connection: duckdb.DuckDBPyConnection, last: int) -> None:
    """Looks once more for the requests of spans that waited, in the traces that got something after row ``last``."""
    connection.execute(_SETTLE, {"last": last, "back": last - _BACK}).fetchall()
