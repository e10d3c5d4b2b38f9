"""Verdicts and results as JSON, complete."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def to_json(db: duckdb.DuckDBPyConnection, run_id: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """The rows of the views ``verdicts`` and ``results``; NaN and infinity, for which JSON has no word, are null.

    :param run_id: only this run's results.
    """
    return {
        "verdicts": _rows(db, "FROM verdicts ORDER BY defense, hook", []),
        "results": _rows(
            db, "FROM results WHERE coalesce(run_id = ?, true) ORDER BY run_id, metric, attack, corpus, arm", [run_id]
        ),
    }


def _rows(db: duckdb.DuckDBPyConnection, query: str, parameters: list[Any]) -> list[dict[str, Any]]:
    answer = db.execute(query, parameters)
    names = [column[0] for column in answer.description or ()]
    return [
        {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in zip(names, row, strict=True)}
        for row in answer.fetchall()
    ]
