"""What is computed once when spans arrive: the entities in generated text."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from ragtrace.ner import entities

_SCHEMA = pa.schema(
    {name: pa.string() for name in ("trace_id", "span_id", "type", "text")}
    | {name: pa.bool_() for name in ("in_query", "in_documents")}
)


def annotate(connection: duckdb.DuckDBPyConnection) -> None:
    """Fills ``entity_data`` for the generations that have not been looked through yet.

    ``in_query`` and ``in_documents`` compare text ignoring case: an entity that the asker wrote is an echo, no leak.
    """
    fresh = connection.execute(
        """
        SELECT g.trace_id, g.span_id, g.response, g.query, d.texts
        FROM generations g
        ANTI JOIN entity_seen s USING (trace_id, span_id)
        LEFT JOIN (
            SELECT trace_id, string_agg(content, chr(10)) AS texts FROM documents WHERE phase = 'retrieved' GROUP BY trace_id
        ) d USING (trace_id)
        """
    ).fetchall()
    rows = []
    for trace_id, span_id, response, query, texts in fresh:
        asked, read = (query or "").casefold(), (texts or "").casefold()
        for entity in entities(response or ""):
            word = entity.text.casefold()
            rows.append((trace_id, span_id, entity.type, entity.text, word in asked, word in read))
    _append(connection, "entity_data", [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], _SCHEMA)
    seen = [{"trace_id": trace_id, "span_id": span_id} for trace_id, span_id, *_ in fresh]
    _append(connection, "entity_seen", seen, pa.schema([_SCHEMA.field(0), _SCHEMA.field(1)]))


def _append(connection: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, object]], schema: pa.Schema) -> None:
    if rows:
        connection.register("appended", pa.Table.from_pylist(rows, schema=schema))
        connection.execute(f"INSERT INTO {table} SELECT * FROM appended")  # noqa: S608 - one of our two table names
        connection.unregister("appended")
