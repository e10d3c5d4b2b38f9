"""Other signals in one file with spans, as OTLP/JSON or printed by an SDK: what log records say of a model call becomes
events of its span.

Where an instrumentation writes messages as log records, its spans alone do not hold them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from ragtrace.ingest.readers.otlp_json import any_value
from ragtrace.ingest.span import mapping, nanoseconds, objects, otlp_id

_SIGNALS = ("resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics")
_OURS = "gen_ai."
_PRINTED = frozenset(("body", "severity_number", "trace_id"))  # a log record by the Python SDK's console exporter


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` holds logs or metrics, and no spans."""
    if found.keys() >= _PRINTED:
        return True
    return any(name in found for name in _SIGNALS) and not {"resourceSpans", "resource_spans"} & found.keys()


def told(values: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The events about model calls, by trace id and span id; what names no span is left out."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for value in values:
        if value.keys() >= _PRINTED:
            _take(value, mapping(value.get("attributes"), "attributes"), value.get("body"), found)
            continue
        for holder in objects(value.get("resourceLogs", value.get("resource_logs")), "resourceLogs"):
            for scoped in objects(holder.get("scopeLogs", holder.get("scope_logs")), "scopeLogs"):
                for record in objects(scoped.get("logRecords", scoped.get("log_records")), "logRecords"):
                    _take(record, _attributes(record), any_value(record.get("body"), "body"), found)
    return found


def _take(
    record: Mapping[str, Any], attributes: dict[str, Any], body: Any, found: dict[tuple[str, str], list[dict[str, Any]]]
) -> None:
    keys = {str(key).replace("_", "").lower(): value for key, value in record.items()}
    name = str(keys.get("eventname") or attributes.get("event.name") or "")
    if not name.startswith(_OURS) or not (_is_id(keys.get("traceid")) and _is_id(keys.get("spanid"))):
        return
    ids = otlp_id(keys["traceid"], 32, "trace id"), otlp_id(keys["spanid"], 16, "span id")
    when = nanoseconds(keys.get("timeunixnano", keys.get("timestamp")))
    event: dict[str, Any] = {"name": name, "time_ns": when, "attributes": attributes}
    if isinstance(body, str) and body[:1] == "{":  # what Python's own logging leaves of an object (Semantic Kernel)
        with suppress(orjson.JSONDecodeError):
            body = orjson.loads(body)
    if isinstance(body, Mapping):  # older conventions have there what newer ones have among the attributes
        event |= {"body": body, "attributes": {**body, **attributes}}
    found[ids].append(event)


def _is_id(value: Any) -> bool:
    """Zeros are what an SDK prints where there was no span."""
    return bool(value) and not (isinstance(value, str) and not value.strip("0x"))


def _attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    pairs = objects(record.get("attributes"), "attributes")
    return {str(pair.get("key")): any_value(pair.get("value"), str(pair.get("key"))) for pair in pairs}
