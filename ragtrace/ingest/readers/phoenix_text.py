"""Phoenix's span data frame as text: JSON by rows (also one a line) or by columns, and CSV."""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ragtrace.errors import InputError
from ragtrace.ingest.readers.phoenix import of_row
from ragtrace.ingest.span import Span

NAME = "Phoenix span data frame (JSON or CSV)"
_IDS = ("context.trace_id", "context.span_id")
_LONGEST = 2**27  # characters of one cell
_TIMES = ("start_time", "end_time")


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is one row, or all columns."""
    return all(key in found for key in _IDS)


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of one object."""
    if not isinstance(found[_IDS[1]], Mapping):
        yield from of_row(_timed(found))
        return
    for label in found[_IDS[1]]:
        yield from of_row(_timed({k: v.get(label) for k, v in found.items() if isinstance(v, Mapping)}))


def claims_csv(data: bytes) -> bool:
    """Whether the first line names both ids among its columns."""
    header = data[:100_000].partition(b"\n")[0]
    return all(key.encode() in header for key in _IDS) and header[:1] not in (b"{", b"[")


def csv_spans(data: bytes) -> Iterator[Span]:
    """The spans of a CSV file."""
    csv.field_size_limit(_LONGEST)
    try:
        for row in csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True):
            if None in row:
                raise InputError("CSV with more cells in a line than columns; export it again, whole")
            yield from of_row({k: _cell(v, k) for k, v in row.items() if v not in (None, "")})
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"CSV that cannot be read ({error}); export it again, whole") from error


def _cell(text: str, name: str) -> Any:
    """Lists and objects are in a cell as Python shows them. Of them only literals are read, and nothing is run."""
    if text[:1] not in "[{" or not name.startswith(("attributes.", "events")) or _is_json(text):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _is_json(text: str) -> bool:
    """A text that was one before: what a chain was called with, say."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return text != "[]"


def _timed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Times are milliseconds, if pandas was not told otherwise."""
    made = dict(row)
    for key in _TIMES:
        value = made.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value < 10**17:
            made[key] = value * (10**6 if value < 10**14 else 10**3)
    return made
