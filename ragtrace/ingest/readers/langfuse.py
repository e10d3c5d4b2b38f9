"""Langfuse: a trace with its observations, as its user interface and its API give them; also observations alone.

What an OpenTelemetry instrumentation sent is in ``metadata``; what Langfuse took out of it (input, output, model,
usage) becomes the attributes under which its own SDK sends the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ragtrace.errors import InputError
from ragtrace.ingest.span import Span, end_time, json, made_id, mapping, optional_text, shown, start_time

NAME = "Langfuse export ({trace, observations})"
_OBSERVATION = "langfuse.observation."
_TRACE = "langfuse.trace."
_KEPT = {
    "type": "type", "level": "level", "statusMessage": "status_message", "model": "model.name",
    "modelParameters": "model.parameters", "usageDetails": "usage_details", "usage": "usage_details",
    "costDetails": "cost_details", "providedModelName": "model.name",
    "promptName": "prompt.name", "promptVersion": "prompt.version",
    "completionStartTime": "completion_start_time", "toolCalls": "tool_calls", "toolCallNames": "tool_call_names",
    "input": "input", "output": "output",
}  # fmt: skip
_USAGE = (("inputUsage", "input"), ("promptTokens", "input"), ("outputUsage", "output"), ("completionTokens", "output"))


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is a trace with observations, or one observation."""
    if isinstance(found.get("observations"), list):
        return True
    found = _camel(found)
    return {"id", "type", "startTime"} <= found.keys() and ("traceId" in found or "parentObservationId" in found)


def spans(found: Mapping[str, Any]) -> Iterator[Span]:
    """One span an observation."""
    observations = found.get("observations")
    if not isinstance(observations, list):
        row = _camel(found)
        yield _span(row, {"name": row.get("traceName"), "userId": row.get("userId"), "sessionId": row.get("sessionId")})
        return
    trace = found.get("trace", found)
    if not isinstance(trace, Mapping):
        raise InputError(f"trace {shown(trace)}; expected an object")
    for each in observations:
        if not isinstance(each, Mapping):
            raise InputError(f"observation {shown(each)}; expected objects: export the trace with its observations")
        yield _span(each, trace)


def _camel(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The names of the API, where its rows come as they are in its tables (exports to blob storage)."""
    if "start_time" not in found or "parent_observation_id" not in found:
        return found
    words = ((key, key.split("_")) for key in found)
    return {first + "".join(word.title() for word in more): found[key] for key, (first, *more) in words}


def _span(observation: Mapping[str, Any], trace: Mapping[str, Any]) -> Span:
    observation = _camel(observation)
    given, given_trace = observation.get("id"), observation.get("traceId") or trace.get("id")
    span_id, trace_id = made_id(given, 16, "observation id"), made_id(given_trace, 32, "trace id")
    metadata = _decoded(observation.get("metadata"))
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {"metadata": metadata} if metadata else {}
    sent = metadata.pop("attributes", None)
    resource = mapping(_decoded(metadata.pop("resourceAttributes", None)), "resourceAttributes")
    scope = metadata.pop("scope", None)
    attributes = mapping(_decoded(sent), "attributes")
    attributes.update((f"{_OBSERVATION}metadata.{k}", v) for k, v in mapping(metadata, "metadata").items())
    for theirs, ours in _KEPT.items():
        if observation.get(theirs) not in (None, "", {}, []):
            attributes.setdefault(_OBSERVATION + ours, observation[theirs])
    attributes.setdefault(_OBSERVATION + "usage_details", {k: v for t, k in _USAGE if (v := observation.get(t))})
    parent = observation.get("parentObservationId")
    attributes.update(_of_trace(trace, whole=not parent))
    if span_id != given:
        attributes["langfuse.observation.id"] = given
    if trace_id != given_trace:
        attributes["langfuse.trace.id"] = given_trace
    failed = observation.get("level") == "ERROR"
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=made_id(parent, 16, "parent observation id") if parent else None,
        name=str(observation.get("name") or ""),
        start_ns=start_time(observation.get("startTime"), span_id),
        end_ns=end_time(observation.get("endTime"), span_id),
        attributes=mapping(attributes, "attributes"),
        status="ERROR" if failed else "UNSET",
        status_message=optional_text(observation.get("statusMessage")),
        scope=optional_text(scope.get("name")) if isinstance(scope, Mapping) else None,
        resource=json(resource),
        service=str(resource.get("service.name", "")),
    )


def _of_trace(trace: Mapping[str, Any], whole: bool) -> Iterator[tuple[str, Any]]:
    for theirs, ours in (("name", _TRACE + "name"), ("userId", "user.id"), ("sessionId", "session.id")):
        if trace.get(theirs):
            yield ours, trace[theirs]
    for theirs in ("input", "output", "metadata", "tags", "release", "version") if whole else ():
        if trace.get(theirs) not in (None, "", {}, []):
            yield _TRACE + theirs, trace[theirs]


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value
