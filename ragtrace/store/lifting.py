"""What the columns and the annotations need of a span's attributes: all of it in one pass over their JSON."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ragtrace.record import attributes as a

LIFTED = (a.FRAMEWORK, a.PATH, a.RUN_ID, a.PROBE_ID, a.ARM, a.STAGE, a.NESTED, a.DECLARED, a.EFFECTS,
          a.OUTPUT_MESSAGES, a.RESPONSES_LEFT)  # fmt: skip
"""The attributes in the column ``lifted``, in their order there; SQL counts from 1."""
_LIFT = """
SELECT n, try(json_extract_string(attributes, $paths::VARCHAR[])) AS lifted FROM arriving
"""
_PATHS = [f'$."{name}"' for name in LIFTED]
_JSON = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}


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
