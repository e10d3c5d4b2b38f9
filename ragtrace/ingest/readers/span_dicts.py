"""One JSON object a span: the OTel SDKs' console and file exporters, OpenInference, Phoenix, monocle; rows of tables.

They differ in the case of their keys and in where they put ids and times, so keys are compared without case and
underscores and each fact is looked for in all the places that are in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragtrace.errors import InputError
from ragtrace.ingest.readers.otlp_json import any_value
from ragtrace.ingest.span import (
    KINDS,
    Span,
    end_time,
    json,
    kind_name,
    known_scope,
    mapping,
    nanoseconds,
    optional_text,
    otlp_id,
    shown,
    start_time,
    status_name,
)  # fmt: skip

NAME = "span objects (OTel SDK console JSON, OpenInference, Phoenix, monocle)"
_STARTS, _ENDS = (tuple(f"{edge}{name}" for name in ("timeunixnano", "time", "timestamp")) for edge in ("start", "end"))
_TIMES = frozenset((*_STARTS, "timestamp"))
_CODES = ("statuscode", "otelstatuscode")  # Logfire's tables have the second of such pairs, ClickHouse's SpanName …
_MESSAGES = ("statusmessage", "otelstatusmessage")
_CONTEXTS = ("context", "spancontext")
_PARENTS = ("parentid", "parentspanid", "parentspancontext", "parent", "parentcontext")


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is a span with both ids, or holds a list of such."""
    keys = _keys(found)
    if isinstance(keys.get("spans"), list):
        return True
    context = _context(keys)
    ids = "traceid" in context and ("spanid" in context or "id" in keys)
    return ids and not _TIMES.isdisjoint(keys)


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """The span, or the spans below it."""
    keys = _keys(found)
    inner = keys.get("spans")
    if not isinstance(inner, list):
        yield _span(keys)
        return
    for each in inner:
        if not isinstance(each, Mapping):
            raise InputError(f"{shown(each)} among spans; expected objects")
        mine = _keys(each)
        if "traceid" not in _context(mine) and "traceid" in keys:
            mine["traceid"] = keys["traceid"]
        yield _span(mine)


def _span(keys: dict[str, Any]) -> Span:
    context = _context(keys)
    span_id = otlp_id(context.get("spanid") or keys.get("id"), 16, "span id")
    status = keys.get("status")
    described = _keys(status) if isinstance(status, Mapping) else {"code": status}
    resource = _first(keys, "resource", "resourceattributes", "otelresourceattributes")
    held = _keys(resource) if isinstance(resource, Mapping) else {}
    of_resource = _attributes(held.get("attributes", resource), "resource")
    code = next((described[k] for k in ("statuscode", "code") if described.get(k) is not None), _first(keys, *_CODES))
    attributes = _own(keys)
    scope = _first(keys, "instrumentationscope", "instrumentationlibrary", "scope", "scopename", "otelscopename")
    return Span(
        trace_id=otlp_id(context.get("traceid"), 32, "trace id"),
        span_id=span_id,
        parent_span_id=_parent(keys),
        name=str(keys.get("name") or keys.get("spanname") or ""),
        kind=kind_name(keys.get("kind", keys.get("spankind"))),
        start_ns=start_time(_first(keys, *_STARTS) or _micros(keys.get("timestamp")), span_id),
        end_ns=end_time(_first(keys, *_ENDS) or _after(keys), span_id),
        status=status_name(code),
        status_message=optional_text(
            _first(described, "description", "message") or _first(keys, "statusmessage", "otelstatusmessage")
        ),
        scope=optional_text(_keys(scope).get("name") if isinstance(scope, Mapping) else scope)
        or known_scope(attributes),
        attributes=attributes,
        events=[_event(e) for e in keys.get("events") or () if isinstance(e, Mapping)],
        resource=json(of_resource),
        service=str(of_resource.get("service.name") or keys.get("servicename") or ""),
    )


def _own(keys: dict[str, Any]) -> dict[str, Any]:
    attributes = _attributes(_first(keys, "attributes", "spanattributes"), "attributes")
    kind = keys.get("spankind")  # Phoenix keeps OpenInference's there, Go's console exporter OpenTelemetry's
    if isinstance(kind, str) and kind.isupper() and "." not in kind and kind.removeprefix("SPAN_KIND_") not in KINDS:
        attributes.setdefault("openinference.span.kind", kind)
    return attributes


def _context(keys: dict[str, Any]) -> dict[str, Any]:
    for name in _CONTEXTS:
        if isinstance(keys.get(name), Mapping):
            return _keys(keys[name])
    return keys


def _parent(keys: dict[str, Any]) -> str | None:
    for name in _PARENTS:
        value = keys.get(name)
        if isinstance(value, Mapping):
            value = _keys(value).get("spanid")
        text = value.lower().removeprefix("0x") if isinstance(value, str) else value
        if text and not (isinstance(text, str) and not text.strip("0")):  # zeros: no parent, in Go
            return otlp_id(value, 16, "parent span id")
    return None


def _attributes(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, list):
        return mapping(value, what)
    found: dict[str, Any] = {}
    for pair in value:  # Go's: {Key, Value: {Type, Value}}, or OTLP's own
        keys = _keys(pair) if isinstance(pair, Mapping) else {}
        if not isinstance(keys.get("key"), str):
            raise InputError(f"attribute {shown(pair)}; expected a key and a value")
        if keys["key"] in found:
            raise InputError(f"attribute {keys['key']!r} twice on one span; expected each key once")
        inner = keys.get("value")
        if isinstance(inner, Mapping):
            held = _keys(inner)
            inner = held["value"] if "value" in held else any_value(inner, keys["key"])
        found[keys["key"]] = inner
    return mapping(found, what)


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    keys = _keys(event)
    return {
        "name": str(keys.get("name", "")),
        "time_ns": nanoseconds(_first(keys, "timeunixnano", "timestamp", "time")),
        "attributes": _attributes(keys.get("attributes"), "event attributes"),
    }


def _micros(value: Any) -> Any:
    """The JavaScript console exporter's timestamp and duration are microseconds."""
    return value * 1_000 if isinstance(value, int) and not isinstance(value, bool) else value


def _after(keys: dict[str, Any]) -> Any:
    start, duration = keys.get("timestamp"), keys.get("duration")
    if isinstance(start, str) and isinstance(duration, int | str) and str(duration).isdecimal():  # ClickHouse
        return (nanoseconds(start) or 0) + int(duration)
    return _micros(start + duration) if isinstance(start, int) and isinstance(duration, int) else None


def _first(keys: Mapping[str, Any], *names: str) -> Any:
    return next((keys[name] for name in names if keys.get(name) not in (None, "")), None)


def _keys(found: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k).replace("_", "").lower(): v for k, v in found.items()}
