"""Tables, CSV or Parquet: each row is what another reader knows as an object."""

from __future__ import annotations

import ast
import csv
import io
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from ragtrace.errors import InputError
from ragtrace.ingest.readers import langfuse, langsmith, phoenix, phoenix_text, span_dicts
from ragtrace.ingest.span import Span

NAME = "tables of these (CSV, Parquet)"
_READERS: tuple[Any, ...] = (phoenix_text, langfuse, langsmith, span_dicts)
_LONGEST = 2**27  # characters of one cell
_HEADER = 100_000  # bytes
_DELIMITERS = ",;\t"
_SHOWN = ("attributes.", "events")  # columns whose lists and objects are as Python shows them


def spans(table: pa.Table) -> Iterator[Span] | None:
    """One span a row, or more; None for a table of something else."""
    if phoenix.claims(table.schema):
        return phoenix.spans(table)
    reader = _reader(table.schema.names)
    return None if reader is None else _of_rows(table, reader)


def csv_spans(data: bytes) -> Iterator[Span] | None:
    """The spans of a CSV file; None for what is none, or holds something else."""
    line = data[:_HEADER].partition(b"\n")[0].rstrip(b"\r")
    try:
        header = line.decode()
    except UnicodeDecodeError:
        return None
    delimiter = max(_DELIMITERS, key=header.count)
    names = next(csv.reader([header], delimiter=delimiter), [])
    reader = _reader(names)
    return None if reader is None else _of_csv(data, reader, delimiter)


def _reader(names: list[str]) -> Any:
    head = dict.fromkeys(names)
    return next((reader for reader in _READERS if reader.claims(head)), None)


def _of_rows(table: pa.Table, reader: Any) -> Iterator[Span]:
    try:
        rows = table.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"values that cannot be read ({error}); expected {reader.NAME}") from error
    for row in rows:
        yield from reader.spans({k: phoenix.plain(v) for k, v in row.items() if v is not None})


def _of_csv(data: bytes, reader: Any, delimiter: str) -> Iterator[Span]:
    csv.field_size_limit(_LONGEST)
    try:
        text = io.StringIO(data.decode(), newline="")
        for row in csv.DictReader(text, delimiter=delimiter, strict=True):
            if None in row:
                raise InputError("CSV with more cells in a line than columns; export it again, whole")
            yield from reader.spans({k: _cell(v, k) for k, v in row.items() if v not in (None, "")})
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"CSV that cannot be read ({error}); export it again, whole") from error


def _cell(text: str, name: str) -> Any:
    """Lists and objects are in a cell as Python shows them. Of them only literals are read, and nothing is run."""
    if text[:1] not in "[{" or not name.lower().startswith(_SHOWN) or _is_json(text):
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
