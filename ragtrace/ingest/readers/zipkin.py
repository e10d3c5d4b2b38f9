"""Zipkin v2 JSON: spans with tags, all of them texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragtrace.errors import InputError
from ragtrace.ingest.span import (
    Span,
    end_time,
    hex_id,
    json,
    kind_name,
    known_scope,
    mapping,
    objects,
    optional_text,
    shown,
    start_time,
    status_name,
)

NAME = "Zipkin v2 JSON (traceId, id, tags, localEndpoint)"
_OTEL = ("otel.scope.name", "otel.library.name")
_MARKS = frozenset(("tags", "localEndpoint", "annotations", "remoteEndpoint"))


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is one span of Zipkin's."""
    return {"traceId", "id"} <= found.keys() and "spanId" not in found and not _MARKS.isdisjoint(found)


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """The one span."""
    span_id = hex_id(found["id"], 16, "span id")
    trace_id = found["traceId"]
    attributes = mapping(found.get("tags"), "tags")
    scope = next((name for key in _OTEL if (name := optional_text(attributes.pop(key, None)))), None)
    endpoint = mapping(found.get("localEndpoint"), "localEndpoint")
    service = str(endpoint.get("serviceName") or "")
    code, error = attributes.pop("otel.status_code", None), attributes.get("error")
    start, duration = found.get("timestamp"), found.get("duration")
    yield Span(
        trace_id=hex_id(trace_id.zfill(32) if isinstance(trace_id, str) and len(trace_id) == 16 else trace_id, 32,
                        "trace id"),
        span_id=span_id,
        parent_span_id=hex_id(found["parentId"], 16, "parent span id") if found.get("parentId") else None,
        name=str(found.get("name") or ""),
        kind=kind_name(found.get("kind")),
        start_ns=start_time(_micros(start), span_id),
        end_ns=None if duration is None else end_time(_micros(start) + _micros(duration), span_id),
        status="ERROR" if error is not None else status_name(code),
        status_message=optional_text(error),
        scope=scope or known_scope(attributes),
        attributes=attributes,
        events=[
            {"name": str(each.get("value") or ""), "time_ns": _micros(each.get("timestamp")), "attributes": {}}
            for each in objects(found.get("annotations"), "annotations")
        ],
        resource=json({"service.name": service} if service else {}),
        service=service,
    )  # fmt: skip


def _micros(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"time {shown(value)}; expected microseconds since 1970, as Zipkin has it")
    return value * 1_000
