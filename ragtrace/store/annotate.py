"""What is computed once, when spans arrive, because SQL cannot: the entities in generated text."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

import duckdb
import pyarrow as pa

from ragtrace.ner import entities
from ragtrace.record import attributes as a

_COLUMNS = ("trace_id", "span_id", "type", "text")
_RESPONSES = """
SELECT trace_id, span_id, message_text(told->>'gen_ai.output.messages', chr(10))
FROM (SELECT trace_id, span_id, scope, stage, try_cast(attributes AS JSON) AS told FROM incoming)
WHERE CASE WHEN scope = $scope THEN told->>'ragtrace.stage' ELSE stage END = 'generation'
"""


def annotate(connection: duckdb.DuckDBPyConnection, pool: Executor) -> Callable[[], None]:
    """Begins to look for entities in the generations of the table ``incoming``; what it returns stores them.

    In a thread of ``pool``, meanwhile the spans are inserted: the one needs the interpreter, the other does not.
    """
    responses = connection.execute(_RESPONSES, {"scope": a.SCOPE}).fetchall()
    found = pool.submit(_entities, responses)

    def store() -> None:
        if (table := found.result()) is not None:
            connection.register("found", table)
            connection.execute("INSERT INTO entity_data SELECT * FROM found").fetchall()
            connection.unregister("found")

    return store


def _entities(responses: list[tuple[str, str, str | None]]) -> pa.Table | None:
    of_text = {text: entities(text) for text in {text for *_, text in responses if text}}  # replicates: once
    rows = [
        (trace_id, span_id, entity.type, entity.text)
        for trace_id, span_id, text in responses
        for entity in of_text.get(text or "", ())
    ]
    if not rows:
        return None
    return pa.table([pa.array(values, pa.string()) for values in zip(*rows, strict=True)], names=list(_COLUMNS))
