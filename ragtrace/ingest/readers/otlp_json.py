"""OTLP/JSON: one ExportTraceServiceRequest, as exporters post it and the collector's file exporter writes a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ragtrace.errors import InputError
from ragtrace.ingest.span import (
    Span,
    end_time,
    json,
    kind_name,
    known_scope,
    objects,
    optional_text,
    otlp_id,
    shown,
    start_time,
    status_name,
)

NAME = "OTLP/JSON (resourceSpans)"


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` has the one member that every request has."""
    return _holders(found) is not None


def spans(found: Mapping[str, Any], refuse: Callable[[InputError], None] | None = None) -> Iterator[Span]:
    """The spans of one request; ``refuse`` is told why a span is left out, without it that is raised."""
    for holder in objects(_holders(found), "resourceSpans"):
        attributes = _attributes(_object(holder.get("resource"), "resource"))
        resource, service = json(attributes), str(attributes.get("service.name", ""))
        older = _either(holder, "instrumentationLibrarySpans", "instrumentation_library_spans")
        scopes = _either(holder, "scopeSpans", "scope_spans")
        for scoped in objects(scopes if scopes is not None else older, "scopeSpans"):
            scope = _object(_either(scoped, "scope", "instrumentationLibrary"), "scope")
            name = optional_text(scope.get("name"))
            for span in objects(scoped.get("spans"), "spans"):
                try:
                    made = _span(span, name, resource, service)
                except InputError as error:
                    if refuse is None:
                        raise
                    refuse(error)
                    continue
                yield made


def _holders(found: Mapping[str, Any]) -> Any:
    inner = found.get("trace")  # Tempo's API; an older one says batches
    found = inner if isinstance(inner, Mapping) else found
    holders = _either(found, "resourceSpans", "resource_spans")
    return found.get("batches") if holders is None else holders


def _span(span: Mapping[str, Any], scope: str | None, resource: str, service: str) -> Span:
    span_id = otlp_id(_either(span, "spanId", "span_id"), 16, "span id")
    parent = _either(span, "parentSpanId", "parent_span_id")
    status = _object(span.get("status"), "status")
    attributes = _attributes(span)
    return Span(
        trace_id=otlp_id(_either(span, "traceId", "trace_id"), 32, "trace id"),
        span_id=span_id,
        parent_span_id=otlp_id(parent, 16, "parent span id") if parent else None,
        name=str(span.get("name", "")),
        kind=kind_name(span.get("kind")),
        start_ns=start_time(_either(span, "startTimeUnixNano", "start_time_unix_nano"), span_id),
        end_ns=end_time(_either(span, "endTimeUnixNano", "end_time_unix_nano"), span_id),
        status=status_name(status.get("code")),
        status_message=optional_text(status.get("message")),
        scope=scope or known_scope(attributes),
        attributes=attributes,
        events=[_event(e) for e in objects(span.get("events"), "events")],
        resource=resource,
        service=service,
    )


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    time = _either(event, "timeUnixNano", "time_unix_nano")
    return {
        "name": str(event.get("name", "")),
        "time_ns": _integer(time) if time is not None else None,
        "attributes": _attributes(event),
    }


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return _pairs(objects(holder.get("attributes"), "attributes"), 0)


def _pairs(pairs: list[Mapping[str, Any]], depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key = pair.get("key")
        if not isinstance(key, str):
            raise InputError(f"attribute key {shown(key)}; expected a key that is a text")
        if key in found:
            raise InputError(f"attribute {key!r} twice on one span; OTLP allows each key once")
        found[key] = _value(pair.get("value"), key, depth)
    return found


def any_value(value: Any, key: str) -> Any:
    """What an attribute's value holds; members that are null are none (some libraries write them all)."""
    if isinstance(value, Mapping):
        value = {kind: inner for kind, inner in value.items() if inner is not None}
    return _value(value, key, 0)


def _value(value: Any, key: str, depth: int) -> Any:
    if value is None or value == {}:
        return None
    if depth > 100:
        raise InputError("attribute values nested more than 100 deep")
    if not isinstance(value, Mapping) or len(value) != 1:
        raise InputError(f"attribute {key!r} has {shown(value)}; expected one of stringValue, intValue, …")
    [(kind, inner)] = value.items()
    match kind.replace("_", "").lower():
        case "stringvalue" if isinstance(inner, str):
            return inner
        case "boolvalue" if isinstance(inner, bool):
            return inner
        case "intvalue":
            return _integer(inner)
        case "doublevalue" if isinstance(inner, int | float) and not isinstance(inner, bool):
            return float(inner)
        case "doublevalue" if inner in ("NaN", "Infinity", "-Infinity"):
            return inner
        case "bytesvalue" if isinstance(inner, str):
            return inner
        case "arrayvalue":
            values = _object(inner, key).get("values")
            return [_value(v, key, depth + 1) for v in (values if isinstance(values, list) else [])]
        case "kvlistvalue":
            return _pairs(objects(_object(inner, key).get("values"), key), depth + 1)
    raise InputError(
        f"attribute {key!r} has {shown(value)}; expected a value of OTLP's types (stringValue, intValue, …)"
    )


def _integer(value: Any) -> int:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        text = str(int(value))
    if len(text) > 20 or not text.removeprefix("-").isdecimal() or not -(2**63) <= int(text) < 2**63:
        raise InputError(f"integer {shown(value)}; expected an integer of 64 bits")
    return int(text)


def _either(found: Mapping[str, Any], camel: str, snake: str) -> Any:
    value = found.get(camel)
    return found.get(snake) if value is None else value


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{what} {shown(value)}; expected an object")
    return value or {}
