"""Spans of others as the store wants them: what their dialects say of them among their attributes and in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ragtrace.errors import InputError
from ragtrace.ingest.dialects.base import Seen, tell
from ragtrace.ingest.span import Span, json, table_of_rows
from ragtrace.record import attributes as a

SAID = ("dialect", "framework", "stage")  # NULL for our own spans, whose attributes say it
_CHUNK = 4_096
_FIRST = 512  # spans of the first table: until it is there, nobody else has anything to do
_NOTHING = (None, None, None)


def tables(spans: Iterable[Span]) -> Iterator[pa.Table]:
    """The spans, translated, some thousands at a time: the columns of a segment and those of :data:`SAID`."""
    each, size = iter(spans), min(_FIRST, _CHUNK)
    while chunk := list(islice(map(_row, each), size)):
        yield table_of_rows(chunk, SAID)
        size = min(2 * size, _CHUNK)


def _row(s: Span) -> tuple[Any, ...]:
    said: tuple[Any, ...] = _NOTHING
    attributes = s.attributes
    if s.scope != a.SCOPE:
        told = tell(Seen(s.name, s.scope, attributes, s.events))
        said, attributes = (told.dialect, told.framework, told.stage), told.attributes
    return (
        s.trace_id, s.span_id, s.parent_span_id, s.name, s.kind, s.start_ns, s.end_ns, s.status, s.status_message,
        s.service, s.scope, json(attributes), json(s.events) if s.events else "[]", s.resource, *said,
    )  # fmt: skip


def translated(table: pa.Table) -> pa.Table:
    """The same for a table of segments: the app's own spans, and those of other instrumentations beside ours."""
    ours = pc.fill_null(pc.equal(table["scope"], a.SCOPE), False)
    if pc.all(ours, min_count=0).as_py():
        empty = pa.nulls(table.num_rows, pa.string())
        for name in SAID:
            table = table.append_column(name, empty)
        return table
    columns = (table[name].to_pylist() for name in ("name", "scope", "attributes", "events"))
    told = [
        (*_NOTHING, attributes) if mine else _told(name, scope, attributes, events)
        for mine, name, scope, attributes, events in zip(ours.to_pylist(), *columns, strict=True)
    ]
    *said, attributes = zip(*told, strict=True)
    place = table.schema.get_field_index("attributes")
    table = table.set_column(place, table.schema.field(place), pa.array(attributes, pa.string()))
    for name, values in zip(SAID, said, strict=True):
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


def _told(name: str | None, scope: str | None, attributes: str | None, events: str | None) -> tuple[Any, ...]:
    try:
        found = orjson.loads(attributes or "{}")
        listed = orjson.loads(events) if events and events != "[]" else None
    except orjson.JSONDecodeError:  # a segment may hold anything
        return (*_NOTHING, attributes)
    if not isinstance(found, dict) or not found:
        return (*_NOTHING, attributes)
    told = tell(Seen(name or "", scope, found, listed if isinstance(listed, list) else None))
    if told.attributes is not found:
        try:
            attributes = json(told.attributes)
        except InputError:
            return (*_NOTHING, attributes)
    return told.dialect, told.framework, told.stage, attributes
