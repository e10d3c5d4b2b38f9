"""What is computed once, when spans arrive, because SQL cannot: the entities in generated text.

In what the model said, and in what observed defenses left of it: that is on another span, which comes later.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from ragtrace.ner import entities

_COLUMNS = ("trace_id", "span_id", "left_by", "type", "text")
# By what is lifted out of the attributes (ragtrace/store/lifting.py).
_RESPONSES = """
SELECT n, trace_id, span_id, NULL AS left_by, message_text(lifted[10], chr(10))
FROM arriving WHERE lifted[10] IS NOT NULL AND if(ours, lifted[6], stage) = 'generation'
UNION ALL
SELECT n, trace_id, r.span, span_id, r.content
FROM (
    SELECT n, trace_id, span_id, unnest(try(from_json(lifted[11], '[{"span":"VARCHAR","content":"VARCHAR"}]'))) AS r
    FROM arriving WHERE ours AND kind = 'INTERNAL' AND lifted[11] IS NOT NULL
)
"""


def beside(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Another connection to the same database, for another thread."""
    [(path,)] = connection.execute("SELECT current_setting('search_path')").fetchall()
    cursor = connection.cursor()
    if path:  # an attached database, which the cursor does not know of
        cursor.execute("SET search_path = ?", [path])
    return cursor


def annotate(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """The entities in the generations of ``table`` (with ``lifted``): the columns of ``entity_data``, and ``n``."""
    connection.register("arriving", table)
    responses = connection.execute(_RESPONSES).fetchall()
    connection.unregister("arriving")
    return _entities(responses)


def _entities(responses: list[tuple[int, str, str, str | None, str | None]]) -> pa.Table:
    of_text = {text: entities(text) for text in {text for *_, text in responses if text}}  # replicates: once
    rows = [
        (trace_id, span_id, left_by, entity.type, entity.text, n)
        for n, trace_id, span_id, left_by, text in responses
        for entity in of_text.get(text or "", ())
    ]
    *told, places = zip(*rows, strict=True) if rows else [()] * (len(_COLUMNS) + 1)
    columns = [*(pa.array(values, pa.string()) for values in told), pa.array(places, pa.int64())]
    return pa.table(columns, names=[*_COLUMNS, "n"])
