"""Jaeger: what its query API and the download button of its user interface give, one object a trace."""

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
    objects,
    optional_text,
    shown,
    start_time,
    status_name,
)

NAME = "Jaeger JSON (traceID, spans, processes)"
_OTEL = ("otel.scope.name", "otel.library.name")


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is one trace, or one span as Jaeger keeps it in Elasticsearch."""
    return _is_span(found) or (isinstance(found.get("spans"), list) and isinstance(found.get("processes"), Mapping))


def _is_span(found: Mapping[str, Any]) -> bool:
    return {"traceID", "spanID", "operationName"} <= found.keys()


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of one trace."""
    if _is_span(found):
        found = {"spans": [found], "processes": {}}
    processes = {str(k): v for k, v in found["processes"].items() if isinstance(v, Mapping)}
    for span in objects(found["spans"], "spans"):
        process = span.get("process")
        known = process if isinstance(process, Mapping) else processes.get(str(span.get("processID")), {})
        yield _span(span, found.get("traceID"), known)


def _span(span: Mapping[str, Any], trace_id: Any, process: Mapping[str, Any]) -> Span:
    span_id = hex_id(_padded(span.get("spanID"), 16), 16, "span id")
    attributes = _tags(span.get("tags"))
    resource = _tags(process.get("tags"))
    service = str(process.get("serviceName") or "")
    kind, failed = attributes.pop("span.kind", None), attributes.get("error") in (True, "true")
    code = attributes.pop("otel.status_code", None)
    scope = next((name for key in _OTEL if (name := optional_text(attributes.pop(key, None)))), None)
    start = span.get("startTime")
    return Span(
        trace_id=hex_id(_padded(span.get("traceID") or trace_id, 32), 32, "trace id"),
        span_id=span_id,
        parent_span_id=_parent(span),
        name=str(span.get("operationName") or ""),
        kind=kind_name(kind),
        start_ns=start_time(_micros(start), span_id),
        end_ns=end_time(_micros(start, span.get("duration")), span_id),
        status="ERROR" if failed else status_name(code),
        status_message=optional_text(attributes.pop("otel.status_description", None)),
        scope=scope or known_scope(attributes),
        attributes=attributes,
        events=[_event(each) for each in objects(span.get("logs"), "logs")],
        resource=json({"service.name": service} | resource if service else resource),
        service=service,
    )


def _padded(value: Any, digits: int) -> Any:
    """Ids whose leading zeros Jaeger leaves out, and trace ids of 64 bits."""
    return value.zfill(digits) if isinstance(value, str) and 0 < len(value) < digits and len(value) > 8 else value


def _parent(span: Mapping[str, Any]) -> str | None:
    given = span.get("parentSpanID")
    for reference in objects(span.get("references"), "references"):
        if reference.get("refType") == "CHILD_OF":
            given = reference.get("spanID")
    return hex_id(_padded(given, 16), 16, "parent span id") if given else None


def _micros(start: Any, duration: Any = 0) -> Any:
    for value in (start, duration):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"time {shown(value)}; expected microseconds since 1970, as Jaeger has it")
    return (start + duration) * 1_000


def _tags(tags: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tag in objects(tags, "tags"):
        key = tag.get("key")
        if not isinstance(key, str):
            raise InputError(f"tag {shown(tag)}; expected a key and a value")
        found[key] = tag.get("value")
    return found


def _event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = _tags(log.get("fields"))
    return {
        "name": str(fields.pop("event", "")), "time_ns": _micros(log.get("timestamp")), "attributes": fields,
    }  # fmt: skip
