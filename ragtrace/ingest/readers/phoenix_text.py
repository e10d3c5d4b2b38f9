"""Phoenix's span data frame as text: JSON by rows (also one a line), by columns or by index, and rows of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragtrace.errors import InputError
from ragtrace.ingest.readers.phoenix import of_row
from ragtrace.ingest.span import Span, shown

NAME = "Phoenix span data frame (JSON or CSV)"
_IDS = ("context.trace_id", "context.span_id")
_TIMES = ("start_time", "end_time")


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is one row, all columns, or all rows by their label."""
    return _has_ids(found) or _split(found) or _by_label(found)


def _has_ids(found: Any) -> bool:
    return isinstance(found, Mapping) and all(key in found for key in _IDS)


def _split(found: Mapping[str, Any]) -> bool:
    columns, rows = found.get("columns"), found.get("data")
    return isinstance(columns, list) and isinstance(rows, list) and _has_ids(dict.fromkeys(map(str, columns)))


def _named(columns: list[Any], rows: list[Any]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            raise InputError(f"row {shown(row)}; expected a list of {len(columns)} values, one a column")
        yield dict(zip(map(str, columns), row, strict=True))


def _by_label(found: Mapping[str, Any]) -> bool:
    return bool(found) and all(_has_ids(row) for row in found.values())


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of one object."""
    if not _has_ids(found):
        for row in _named(found["columns"], found["data"]) if _split(found) else found.values():
            yield from of_row(_timed(row))
        return
    if not isinstance(found[_IDS[1]], Mapping):
        yield from of_row(_timed(found))
        return
    for label in found[_IDS[1]]:
        yield from of_row(_timed({k: v.get(label) for k, v in found.items() if isinstance(v, Mapping)}))


def _timed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Times are milliseconds, if pandas was not told otherwise."""
    made = dict(row)
    for key in _TIMES:
        value = made.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value < 10**17:
            made[key] = value * (10**6 if value < 10**14 else 10**3)
    return made
