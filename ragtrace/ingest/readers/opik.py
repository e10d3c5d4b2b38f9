"""Opik: a trace with its spans, as ``opik export`` writes it, and single spans, as its API gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragtrace.ingest.span import Span, end_time, made_id, mapping, objects, optional_text, start_time

NAME = "Opik export ({trace, spans})"
_KEPT = ("type", "input", "output", "model", "provider", "usage", "tags")


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is a trace with its spans, or one span."""
    if isinstance(found.get("trace"), Mapping):
        return isinstance(found.get("spans"), list)
    return {"id", "trace_id", "parent_span_id", "start_time", "type"} <= found.keys() and "span_id" not in found


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of one object."""
    trace = found.get("trace")
    if not isinstance(trace, Mapping):
        yield _span(found, {})
        return
    for each in objects(found["spans"], "spans"):
        yield _span(each, trace)


def _span(span: Mapping[str, Any], trace: Mapping[str, Any]) -> Span:
    span_id = made_id(span.get("id"), 16, "span id")
    attributes = {f"opik.{key}": span[key] for key in _KEPT if span.get(key) not in (None, "", {}, [])}
    attributes["opik.type"] = str(span.get("type") or "general")
    attributes["opik.span.id"] = span.get("id")
    attributes |= {f"opik.metadata.{k}": v for k, v in mapping(span.get("metadata"), "metadata").items()}
    if thread := trace.get("thread_id"):
        attributes["session.id"] = str(thread)
    error = mapping(span.get("error_info"), "error_info")
    parent = span.get("parent_span_id")
    return Span(
        trace_id=made_id(str(span.get("trace_id") or trace.get("id") or "").replace("-", ""), 32, "trace id"),
        span_id=span_id,
        parent_span_id=made_id(parent, 16, "parent span id") if parent else None,
        name=str(span.get("name") or ""),
        start_ns=start_time(span.get("start_time"), span_id),
        end_ns=end_time(span.get("end_time"), span_id),
        attributes=mapping(attributes, "attributes"),
        status="ERROR" if error else "UNSET",
        status_message=optional_text(error.get("message")),
        scope="opik",
    )
