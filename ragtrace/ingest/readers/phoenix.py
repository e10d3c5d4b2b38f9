"""Phoenix: the data frame of ``get_spans_dataframe()`` written to Parquet, one column an attribute.

Attributes that are none of OpenInference's come as one column for all that begins with the same word, nested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ragtrace.errors import InputError
from ragtrace.ingest.readers import span_dicts
from ragtrace.ingest.span import Span

NAME = "Phoenix span data frame (Parquet with context.trace_id and context.span_id)"
_PREFIX = "attributes."
_WHOLE = "metadata"  # an object that is a value


def claims(schema: pa.Schema) -> bool:
    """Whether the columns hold both ids."""
    names = {name.removeprefix("context.") for name in schema.names}
    return {"trace_id", "span_id"} <= names


def spans(table: pa.Table) -> Iterator[Span]:
    """One span a row."""
    try:
        rows = table.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"values that cannot be read ({error}); expected a Phoenix span data frame") from error
    for row in rows:
        yield from of_row(row)


def of_row(row: Mapping[str, Any]) -> Iterator[Span]:
    """The span of one row; a value that is missing is none."""
    found: dict[str, Any] = {"attributes": {}}
    for name, value in row.items():
        if value is None or (isinstance(value, float) and value != value):
            continue
        if name.startswith(_PREFIX):
            key, bare = name.removeprefix(_PREFIX), plain(value)
            found["attributes"].update(_flat(key, bare) if "." not in key and key != _WHOLE else {key: bare})
        elif name == "attributes" and isinstance(value, Mapping):
            found["attributes"].update(plain(value))
        else:
            found[name.removeprefix("context.")] = plain(value) if name == "events" else value
    yield from span_dicts.spans(found)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    else:
        yield name, value


def plain(value: Any) -> Any:
    """Arrow gives every member of a struct to every row: those that are None are none of this row's."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool) else str(value)
