"""What is computed once, when spans arrive, because SQL cannot: the entities in generated text.

In what the model said, and in what observed defenses left of it: that is on another span, which comes later.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from ragtrace.ner import entities
from ragtrace.record import attributes as a

_COLUMNS = ("trace_id", "span_id", "left_by", "type", "text")
# Most spans are no generations: they are told by a glance at their text, which costs a fifth of reading it as JSON.
_RESPONSES = """
SELECT n, trace_id, span_id, NULL AS left_by, message_text(told[2], chr(10))
FROM (
    SELECT n, trace_id, span_id, scope, stage, try(json_extract_string(attributes, $paths::VARCHAR[])) AS told
    FROM arriving WHERE contains(attributes, $messages)
)
WHERE CASE WHEN scope = $scope THEN told[1] ELSE stage END = 'generation'
UNION ALL
SELECT n, trace_id, r.span, span_id, r.content
FROM (
    SELECT n, trace_id, span_id, unnest(try(from_json(
        json_extract_string(attributes, $path), '[{"span":"VARCHAR","content":"VARCHAR"}]'))) AS r
    FROM arriving WHERE kind = 'INTERNAL' AND scope = $scope AND contains(attributes, $left)
)
"""
_PATHS = [f'$."{name}"' for name in (a.STAGE, a.OUTPUT_MESSAGES)]


def beside(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Another connection to the same database, for another thread."""
    [(path,)] = connection.execute("SELECT current_setting('search_path')").fetchall()
    cursor = connection.cursor()
    if path:  # an attached database, which the cursor does not know of
        cursor.execute("SET search_path = ?", [path])
    return cursor


def annotate(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """The entities in the generations of ``table``: the columns of ``entity_data``, and ``n``, the row of ``table``."""
    connection.register("arriving", table)
    responses = connection.execute(
        _RESPONSES,
        {
            "scope": a.SCOPE, "messages": a.OUTPUT_MESSAGES, "paths": _PATHS,
            "left": a.RESPONSES_LEFT, "path": f'$."{a.RESPONSES_LEFT}"',
        },
    ).fetchall()  # fmt: skip
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
