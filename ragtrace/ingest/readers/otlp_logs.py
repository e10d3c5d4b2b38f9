"""OTLP/JSON of other signals in one file with spans: what log records say of a model call becomes events of its span.

Where an instrumentation writes messages as log records, its spans alone do not hold them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ragtrace.ingest.readers.otlp_json import any_value
from ragtrace.ingest.span import nanoseconds, objects, otlp_id

_SIGNALS = ("resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics")
_OURS = "gen_ai."


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` holds logs or metrics, and no spans."""
    return any(name in found for name in _SIGNALS) and not {"resourceSpans", "resource_spans"} & found.keys()


def told(values: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The events about model calls, by trace id and span id; what names no span is left out."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for value in values:
        for holder in objects(value.get("resourceLogs", value.get("resource_logs")), "resourceLogs"):
            for scoped in objects(holder.get("scopeLogs", holder.get("scope_logs")), "scopeLogs"):
                for record in objects(scoped.get("logRecords", scoped.get("log_records")), "logRecords"):
                    _take(record, found)
    return found


def _take(record: Mapping[str, Any], found: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    keys = {str(key).replace("_", "").lower(): value for key, value in record.items()}
    attributes = {
        str(pair.get("key")): any_value(pair.get("value"), str(pair.get("key")))
        for pair in objects(keys.get("attributes"), "attributes")
    }
    name = str(keys.get("eventname") or attributes.get("event.name") or "")
    if not name.startswith(_OURS) or not keys.get("traceid") or not keys.get("spanid"):
        return
    ids = otlp_id(keys["traceid"], 32, "trace id"), otlp_id(keys["spanid"], 16, "span id")
    event: dict[str, Any] = {"name": name, "time_ns": nanoseconds(keys.get("timeunixnano")), "attributes": attributes}
    body = any_value(keys["body"], "body") if keys.get("body") else None
    if isinstance(body, Mapping):  # older conventions have there what newer ones have among the attributes
        event |= {"body": body, "attributes": {**body, **attributes}}
    found[ids].append(event)
