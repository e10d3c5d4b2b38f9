"""What is computed once, when spans arrive, because SQL cannot: the entities in generated text."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from ragtrace.ner import entities

_COLUMNS = ("trace_id", "span_id", "type", "text")


def annotate(connection: duckdb.DuckDBPyConnection) -> None:
    """Fills ``entity_data`` for the generations in the table ``fresh``: the cost is that of what is new."""
    responses = connection.execute(
        """
        SELECT trace_id, span_id, message_text(attributes->>'gen_ai.output.messages', chr(10))
        FROM fresh WHERE stage = 'generation'
        """
    ).fetchall()
    rows = [
        (trace_id, span_id, entity.type, entity.text)
        for trace_id, span_id, text in responses
        for entity in entities(text or "")
    ]
    if rows:
        columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
        connection.register("found", pa.table(columns, names=list(_COLUMNS)))
        connection.execute("INSERT INTO entity_data SELECT * FROM found")
        connection.unregister("found")
