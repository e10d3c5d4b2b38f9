"""What observed defenses left of an answer, put to the model call that gave it: once, when spans are merged.

Another span tells it, which ends later and may come in any order. So the views read one row a model call, and none has
to be joined with all that was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ragtrace.record import attributes as a
from ragtrace.store.lifting import value

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_BACK = 500_000  # rows: where the call is looked for first
_PIECE = 500_000  # rows of an older store that are told in one transaction
KEY = "outgoing"
"""In ``ragtrace_meta``: it is told of all spans of this store."""

_TOLD = f"""
SELECT trace_id, r.span AS span_id, r.content AS content, r.hash AS hash, r.chars AS chars,
    r.statistics::VARCHAR AS statistics, left_by, start_ns
FROM (
    SELECT trace_id, span_id AS left_by, start_ns, unnest(try(from_json(attributes->>'{a.RESPONSES_LEFT}',
        '[{{"span":"VARCHAR","chars":"BIGINT","hash":"VARCHAR","content":"VARCHAR","statistics":"JSON"}}]'))) AS r
    FROM span_data WHERE rowid > $last AND rowid <= $until AND dialect = 'ragtrace' AND contains(effects, '"kept":true')
) WHERE r.span IS NOT NULL
"""  # noqa: S608 - constants
# of several, the last one counts
_LAST = "ORDER BY start_ns DESC NULLS LAST, left_by DESC"
_PUT = f"""
UPDATE span_data SET outgoing = struct_pack(content := t.content, hash := t.hash, chars := t.chars,
    statistics := t.statistics, left_by := t.left_by, start_ns := t.start_ns)
FROM (
    FROM outgoing_told QUALIFY row_number() OVER (PARTITION BY trace_id, span_id {_LAST}) = 1
) t
WHERE span_data.rowid > $since AND span_data.trace_id = t.trace_id AND span_data.span_id = t.span_id
    AND (span_data.outgoing IS NULL
        OR (coalesce(span_data.outgoing.start_ns, -1), span_data.outgoing.left_by)
            < (coalesce(t.start_ns, -1), t.left_by))
"""  # noqa: S608 - constants
_UNMET = """
SELECT * FROM outgoing_told
ANTI JOIN (SELECT trace_id, span_id FROM span_data WHERE rowid > $since) USING (trace_id, span_id)
"""
_KEEP = "INSERT INTO outgoing_data BY NAME FROM outgoing_told"
_WAITED = """
SELECT * FROM outgoing_data
SEMI JOIN (SELECT trace_id, span_id FROM span_data WHERE rowid > $last) USING (trace_id, span_id)
"""
_MET = "DELETE FROM outgoing_data WHERE (trace_id, span_id) IN (SELECT (trace_id, span_id) FROM outgoing_told)"
_ALL = 1 << 63


def tells(table: pa.Table) -> bool:
    """Whether a span of a table with ``lifted`` says what was left of an answer."""
    return bool(pc.any(pc.is_valid(value(table, a.RESPONSES_LEFT))).as_py())


def settle(connection: duckdb.DuckDBPyConnection, last: int, tells: bool) -> None:
    """Takes into account what came after row ``last``. Call it in the transaction of the merge.

    :param tells: whether something of it says what was left of an answer.
    """
    if tells:
        _tell(connection, last, _ALL - 1)
    if connection.execute("SELECT 1 FROM outgoing_data LIMIT 1").fetchall():
        waited = connection.sql(_WAITED, params={"last": last}).to_arrow_table()
        if waited.num_rows:
            connection.register("outgoing_told", waited)
            connection.execute(_PUT, {"since": last}).fetchall()
            connection.execute(_MET).fetchall()
            connection.unregister("outgoing_told")


def settle_all(connection: duckdb.DuckDBPyConnection) -> None:
    """The same of a store that an older version wrote. Begun anew where it is interrupted: nothing is told twice."""
    [(end,)] = connection.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    for last in range(-1, end, _PIECE):
        connection.execute("BEGIN")
        if last < 0:
            connection.execute("DELETE FROM outgoing_data").fetchall()
        _tell(connection, last, min(last + _PIECE, end))
        connection.execute("COMMIT")


def _tell(connection: duckdb.DuckDBPyConnection, last: int, until: int) -> None:
    told = connection.sql(_TOLD, params={"last": last, "until": until}).to_arrow_table()
    # mostly the call is among what has just come; then lately; few are looked for everywhere
    for since in (last, last - _BACK, -1):
        if not told.num_rows:
            return
        connection.register("outgoing_told", told)
        [(put,)] = connection.execute(_PUT, {"since": since}).fetchall()
        if put < told.num_rows:
            told = connection.sql(_UNMET, params={"since": since}).to_arrow_table()
        else:
            told = told.slice(0, 0)
        connection.unregister("outgoing_told")
    if told.num_rows:
        connection.register("outgoing_told", told)
        connection.execute(_KEEP).fetchall()
        connection.unregister("outgoing_told")
