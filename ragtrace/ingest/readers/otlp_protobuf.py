"""OTLP/protobuf: ExportTraceServiceRequest, alone in a file or one after the other with a length before each.

Needs ``opentelemetry-proto``, which is an extra: it pins protobuf, and so do many packages of an app.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ragtrace.errors import InputError
from ragtrace.ingest.span import EARLIEST, KINDS, LATEST, STATUSES, Span, end_time, json, known_scope, start_time

NAME = "OTLP/protobuf (ExportTraceServiceRequest)"
_ZEROS = (bytes(8), bytes(16))
_STRING, _LIST, _MAP, _BYTES = "string_value", "array_value", "kvlist_value", "bytes_value"


def spans(data: bytes) -> Iterator[Span]:
    """The spans of all requests in ``data``.

    :raises InputError: no request, a cut one, or the library is missing.
    """
    for request in _requests(data):
        yield from request_spans(request)


def request_spans(request: Any, refuse: Callable[[InputError], None] | None = None) -> Iterator[Span]:
    """The spans of one request; ``refuse`` is told why a span is left out, without it that is raised."""
    for holder in request.resource_spans:
        attributes = _attributes(holder.resource.attributes)
        resource, service = json(attributes), str(attributes.get("service.name", ""))
        for scoped in holder.scope_spans:
            scope = scoped.scope.name or None
            for span in scoped.spans:
                try:
                    made = _span(span, scope, resource, service)
                except InputError as error:
                    if refuse is None:
                        raise
                    refuse(error)
                    continue
                yield made


def _span(span: Any, scope: str | None, resource: str, service: str) -> Span:
    span_id = _id(span.span_id, 8, "span id")
    parent, kind, start, end = span.parent_span_id, span.kind, span.start_time_unix_nano, span.end_time_unix_nano
    code, message = 0, ""
    if span.HasField("status"):
        status = span.status
        code, message = status.code, status.message
    attributes, events = _attributes(span.attributes), span.events
    return Span(
        trace_id=_id(span.trace_id, 16, "trace id"),
        span_id=span_id,
        parent_span_id=_id(parent, 8, "parent span id") if parent else None,
        name=span.name,
        start_ns=start if EARLIEST <= start <= LATEST else start_time(start, span_id),
        end_ns=end if EARLIEST <= end <= LATEST else end_time(end, span_id),
        attributes=attributes,
        kind=KINDS[kind] if 0 <= kind < len(KINDS) else "INTERNAL",
        status=STATUSES[code] if 0 <= code < len(STATUSES) else "UNSET",
        status_message=message or None,
        scope=scope or known_scope(attributes),
        events=[_event(event) for event in events] if events else [],
        resource=resource,
        service=service,
    )


def _event(event: Any) -> dict[str, Any]:
    return {"name": event.name, "time_ns": event.time_unix_nano, "attributes": _attributes(event.attributes)}


def _attributes(pairs: Any) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        value = pair.value
        if text := value.string_value:  # nearly always
            found[pair.key] = text
            continue
        kind = value.WhichOneof("value")
        if kind == _STRING:
            found[pair.key] = ""
        elif kind is None:
            found[pair.key] = None
        elif kind == _LIST:
            found[pair.key] = [_value(v) for v in value.array_value.values]
        else:
            found[pair.key] = _value(value) if kind in (_MAP, _BYTES) else getattr(value, kind)
    if len(found) != len(pairs):
        twice = next(key for key, n in Counter(pair.key for pair in pairs).items() if n > 1)
        raise InputError(f"attribute {twice!r} twice on one span; OTLP allows each key once")
    return found


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == _LIST:
        return [_value(v) for v in value.array_value.values]
    if kind == _MAP:
        return _attributes(value.kvlist_value.values)
    if kind == _BYTES:
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind else None


def _id(value: bytes, size: int, what: str) -> str:
    if len(value) != size or value in _ZEROS:
        found = value[:20].hex() or "empty"
        raise InputError(f"{what} of {len(value)} bytes ({found}); expected an id of {size} bytes, not all zero")
    return value.hex()


def _requests(data: bytes) -> list[Any]:
    parse, error = _parser()
    for cut in (lambda d: [d], _by_four_bytes, _by_varint):
        pieces = cut(data)
        if pieces is None:
            continue
        try:
            found = [parse(piece) for piece in pieces]
        except error:
            continue
        if any(f.resource_spans for f in found):
            return found
    raise InputError(f"neither JSON, Parquet nor {NAME}: it does not parse, or is cut off; export it again, whole")


def _parser() -> tuple[Any, type[Exception]]:
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        raise InputError(
            f"binary, as {NAME} is, and what reads that is not installed; expected JSON or Parquet, or: "
            "pip install 'ragtrace-audit[ingest]'"
        ) from error
    return ExportTraceServiceRequest.FromString, DecodeError


def _by_four_bytes(data: bytes) -> list[bytes] | None:
    """As the collector's file exporter writes it: a big-endian length of four bytes before each."""
    pieces, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        if not size or place + 4 + size > len(data):
            return None
        pieces.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return pieces


def _by_varint(data: bytes) -> list[bytes] | None:
    """As protobuf's own delimited streams have it."""
    pieces, place = [], 0
    while place < len(data):
        size = shift = 0
        while True:
            if place >= len(data) or shift > 28:
                return None
            byte = data[place]
            place, size, shift = place + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        if not size or place + size > len(data):
            return None
        pieces.append(data[place : place + size])
        place += size
    return pieces
