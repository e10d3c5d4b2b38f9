"""What the columns and the annotations need of a span's attributes: all of it in one pass over their JSON."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ragtrace.record import attributes as a

if TYPE_CHECKING:
    import duckdb

COLUMNS: dict[str, tuple[str, ...]] = {
    "conversation": (a.CONVERSATION, "conversation_id", "traceloop.association.properties.conversation_id"),
    "session_id": (
        a.SESSION, "session_id", "langfuse.session.id", "traceloop.association.properties.session_id",
        "traceloop.association.properties.session.id",
    ),
    "user_id": (
        a.USER, "enduser.id", "enduser.pseudo.id", "user_id", "langfuse.user.id",
        "traceloop.association.properties.user_id", "traceloop.association.properties.user.id",
    ),
    "query": (a.RETRIEVAL_QUERY, a.QUERY),
}  # fmt: skip
"""Columns of ``span_data`` that are the first of these attributes that a span has, whoever wrote it."""
LIFTED = (a.FRAMEWORK, a.PATH, a.RUN_ID, a.PROBE_ID, a.ARM, a.STAGE, a.NESTED, a.DECLARED, a.EFFECTS,
          a.OUTPUT_MESSAGES, a.RESPONSES_LEFT, *chain.from_iterable(COLUMNS.values()))  # fmt: skip
"""The attributes in the column ``lifted``, in their order there; SQL counts from 1."""
FIRST = ", ".join(
    f"coalesce({', '.join(f'lifted[{LIFTED.index(name) + 1}]' for name in names)}) AS {column}"
    for column, names in COLUMNS.items()
)
"""SQL: :data:`COLUMNS`, of ``lifted``."""
KEY = "lifted"
"""In ``ragtrace_meta``: all spans of this store have :data:`COLUMNS`."""

_LIFT = """
SELECT n, try(json_extract_string(attributes, $paths::VARCHAR[])) AS lifted FROM arriving
"""
_PATHS = [f'$."{name}"' for name in LIFTED]
_JSON = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}
_NONE = pa.scalar([None] * len(LIFTED), pa.list_(pa.string()))
_PIECE = 500_000  # rows of an older store that are lifted in one transaction
_LATER = f"""
UPDATE span_data SET {", ".join(f"{column} = t.{column}" for column in COLUMNS)} FROM (
    SELECT n, {FIRST} FROM (
        SELECT rowid AS n, try(json_extract_string(attributes, $paths::VARCHAR[])) AS lifted FROM span_data
        WHERE rowid > $last AND rowid <= $until
    )
) t
WHERE span_data.rowid = t.n AND span_data.rowid > $last AND span_data.rowid <= $until
    AND coalesce({", ".join(f"t.{column}" for column in COLUMNS)}) IS NOT NULL
"""  # noqa: S608 - constants


def lifted(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
    """``table`` (numbered in ``n``) with ``ours`` and ``lifted`` beside it, NULL where the attributes are no JSON.

    Those are NULL then, and the rest is marked as JSON, so that the insertion need not parse it once more.
    """
    connection.register("arriving", table)
    told = connection.sql(_LIFT, params={"paths": _PATHS}).to_arrow_table()
    connection.unregister("arriving")
    if not told["n"].equals(table["n"]):  # where somebody has set preserve_insertion_order to false
        told = told.sort_by("n")
    found, place = told["lifted"], table.schema.get_field_index("attributes")
    attributes = table["attributes"]
    if found.null_count > attributes.null_count:
        attributes = pc.if_else(pc.is_valid(found), attributes, None)
    if attributes.type == pa.string():
        table = table.set_column(place, pa.field("attributes", pa.string(), metadata=_JSON), attributes)
    ours = pc.fill_null(pc.equal(table["scope"], a.SCOPE), False)
    return table.append_column("ours", ours).append_column("lifted", found)


def value(table: pa.Table, name: str) -> pa.ChunkedArray:
    """One attribute of each span of a table with ``lifted``."""
    found = table["lifted"]
    if found.null_count:
        found = pc.coalesce(found, _NONE)
    return pc.list_element(found, LIFTED.index(name))


def settle_all(connection: duckdb.DuckDBPyConnection) -> None:
    """Fills :data:`COLUMNS` of a store that an older version wrote. Begun anew where it is interrupted."""
    [(end,)] = connection.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    for last in range(-1, end, _PIECE):
        given = {"paths": _PATHS, "last": last, "until": min(last + _PIECE, end)}
        connection.execute(_LATER, given).fetchall()
