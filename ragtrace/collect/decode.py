"""The spans of one request as a table for a segment, and which of them had to be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.collect.answers import JSON, Left, Refused
from ragtrace.errors import InputError
from ragtrace.ingest.json_text import json_values
from ragtrace.ingest.readers import otlp_json, otlp_protobuf
from ragtrace.ingest.span import Span, json, table_of_rows
from ragtrace.record.spool import segment_schema

_CHUNK = 4_096  # spans that are Python objects at the same time
_KINDS = frozenset(("stringvalue", "boolvalue", "intvalue", "doublevalue", "bytesvalue", "arrayvalue", "kvlistvalue"))


class Decoded(NamedTuple):
    """What a request holds."""

    table: pa.Table
    left: Left


class _Leaving:
    """Remembers what is left out. Of a reader's message only the end is kept, which is ours: see :func:`_expected`."""

    def __init__(self) -> None:
        self.spans, self.reason = 0, ""

    def __call__(self, error: InputError) -> None:
        self.spans += 1
        self.reason = self.reason or _expected(error)


def decode(body: bytes, media: str) -> Decoded:
    """Reads a body. Spans are not translated here: the merge does that.

    :raises Refused: it is no request, and nothing of it can be taken.
    """
    try:
        return _of_json(body) if media == JSON else _of_protobuf(body)
    except InputError as error:
        raise Refused(400, f"the request cannot be read; {_expected(error)}") from error
    except (RecursionError, MemoryError, OverflowError) as error:
        raise Refused(400, "the request is nested too deeply, or too large; expected OTLP") from error


def _of_protobuf(body: bytes) -> Decoded:
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise Refused(400, "the body is no ExportTraceServiceRequest in protobuf, or cut off") from error
    leaving = _Leaving()
    return _decoded(otlp_protobuf.request_spans(request, leaving), leaving)


def _of_json(body: bytes) -> Decoded:
    values = json_values(body)
    if len(values) != 1 or not isinstance(values[0], dict):
        raise Refused(400, "the body is not one JSON object; expected an ExportTraceServiceRequest")
    [found] = values
    leaving = _Leaving()
    read = _decoded(otlp_json.spans(found, leaving), leaving)
    if not leaving.spans:
        return read
    leaving = _Leaving()
    return _decoded(otlp_json.spans(_known(found), leaving), leaving)


def _decoded(spans: Iterable[Span], leaving: _Leaving) -> Decoded:
    tables = [table_of_rows(())]
    rows = _rows(spans, leaving)
    while chunk := list(islice(rows, _CHUNK)):
        tables.append(table_of_rows(chunk))
    return Decoded(pa.concat_tables(tables).cast(segment_schema()), Left(leaving.spans, leaving.reason))


def _rows(spans: Iterable[Span], refuse: Callable[[InputError], None]) -> Iterator[tuple[Any, ...]]:
    for s in spans:
        try:
            attributes, events = json(s.attributes), json(s.events) if s.events else "[]"
        except InputError as error:
            refuse(error)
            continue
        yield (
            s.trace_id, s.span_id, s.parent_span_id, s.name, s.kind, s.start_ns, s.end_ns, s.status, s.status_message,
            s.service, s.scope, attributes, events, s.resource,
        )  # fmt: skip


def _known(value: Any) -> Any:
    """JSON without the kinds of attribute values that OTLP may have one day, and without those that are null.

    Unknown members are to be ignored; a null is what is not set.
    """
    if isinstance(value, list):
        return [_known(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {k: _known(v) for k, v in value.items()}
    if "key" in found and isinstance(told := found.get("value"), dict):
        found["value"] = {k: v for k, v in told.items() if v is not None and k.replace("_", "").lower() in _KINDS}
    return found


def _expected(error: InputError) -> str:
    """What was expected: the part of a message that quotes nothing of what was sent.

    The sender may log it, and what it quotes may be what the sender's own capture mode keeps out of logs.
    """
    _, semicolon, expected = str(error).rpartition("; ")
    return expected if semicolon else "expected a span as OTLP has it"
