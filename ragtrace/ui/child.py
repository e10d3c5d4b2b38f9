"""One question of the SQL box, in a process of its own: ``python -m ragtrace.ui.child``.

What cannot be interrupted, or takes all memory, ends this process and not the page. The question comes on standard
input and the answer goes to standard output, both as JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any

import pyarrow as pa

from ragtrace.errors import RagtraceError
from ragtrace.query import answer
from ragtrace.report.terminal import harmless
from ragtrace.store import open_readonly

CELL = 2_000
"""Characters of a cell that are kept."""
_CHARACTERS = 16 * 2**20  # of all of them
_COLUMNS = 200
_MEMORY = 1.0  # GB
_KNOWN = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"


def main() -> None:
    """Entry point."""
    asked = json.load(sys.stdin)

    def stuck() -> None:
        _say({"error": "the question could not be interrupted, and was ended; ask for less"})
        os._exit(0)

    began = time.monotonic()
    try:
        with open_readonly(asked["database"], memory=_MEMORY) as connection:
            known = [name for (name,) in connection.execute(_KNOWN).fetchall()]
            rows = asked["rows"] + 1
            found = answer(connection, asked["sql"], asked["seconds"], stuck, asked["values"], rows, _MEMORY)
        told = _told(found, asked["rows"])
    except RagtraceError as error:
        _say({"error": re.sub(r"\((--\w+)\)", r"(`ragtrace sql \1`)", str(error))})
        return
    _say(told | {"known": known, "seconds": time.monotonic() - began})


def _told(found: pa.Table, most: int) -> dict[str, Any]:
    names = [harmless(name, 100) for name in found.column_names[:_COLUMNS]]
    kinds = [found.schema.field(i).type for i in range(len(names))]
    rows, size = [], 0
    for batch in found[:most].to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns[:_COLUMNS]), strict=True):
            cells = [None if value is None else harmless(value, CELL) for value in row]
            size += sum(len(cell) for cell in cells if cell is not None)
            if size > _CHARACTERS:
                break
            rows.append(cells)
    return {
        "columns": names,
        "texts": [not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) for kind in kinds],
        "rows": rows,
        "more": len(rows) < found.num_rows,
        "left_out": found.num_columns - len(names),
    }


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
