"""The views, asked from a database of this version: columns, types and comments as every user's database has them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from from_code.writing import code, plain, table

INNER = ("claims", "foreign_parts", "ledger", "own_spans", "part_hooks", "requests", "roots", "staged_spans")
"""What the other views are made of; listed last."""


class Column(NamedTuple):
    """One column as DuckDB tells it."""

    view: str
    name: str
    type: str
    comment: str | None


def read() -> tuple[dict[str, str | None], list[Column]]:
    """Comment by view, and all columns."""
    import ragtrace

    with tempfile.TemporaryDirectory() as folder, ragtrace.open(Path(folder) / "empty.duckdb") as db:
        views = dict(
            db.execute(
                "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal AND schema_name = 'main' ORDER BY 1"
            ).fetchall()
        )
        columns = db.execute(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
            "WHERE schema_name = 'main' ORDER BY table_name, column_index"
        ).fetchall()
    return views, [Column(*row) for row in columns if row[0] in views]


def markdown() -> str:
    """A section a view."""
    views, columns = read()
    made = []
    for view in sorted(views, key=lambda v: (v in INNER, v)):
        rows = [(code(c.name), code(c.type), plain(c.comment or "")) for c in columns if c.view == view]
        inner = " *(what other views are made of)*" if view in INNER else ""
        made.append(f"## {view}\n\n{plain(views[view] or '')}{inner}\n\n{table(('column', 'type', 'is'), rows)}")
    return "\n".join(made)
