"""Importing for the tests of ingest: a database, files made by hand, and what came of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

import ragtrace
from ragtrace.ingest.files import files_at
from ragtrace.store import ImportReport, import_files

START = 1_790_000_000_000_000_000
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
ROW = dict[str, Any]


def samples() -> Path:
    """The public span exports beside the repository.

    Skips the test where they are absent.
    """
    data = Path(os.environ.get("RAGTRACE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / "traces").is_dir():
        pytest.skip(f"no span exports in {data / 'traces'}; set RAGTRACE_DATA")
    return data / "traces"


class Store:
    """A new database, and shorthand to fill and ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db: duckdb.DuckDBPyConnection = ragtrace.open(folder / "t.duckdb")

    def take(self, *paths: Path) -> ImportReport:
        return import_files(self.db, files_at(paths))

    def write(self, content: Any, name: str = "file") -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def took(self, content: Any, name: str = "file") -> ImportReport:
        """Imports one file that must be taken."""
        report = self.take(self.write(content, name))
        assert report.failed == [] and report.skipped == []
        return report

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.execute(query).fetchall()

    def row(self, query: str) -> tuple[Any, ...]:
        [row] = self.rows(query)
        return row


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Store(tmp_path)
    yield made
    made.db.close()


def value(given: Any) -> ROW:
    """OTLP's AnyValue."""
    match given:
        case bool():
            return {"boolValue": given}
        case int():
            return {"intValue": str(given)}
        case float():
            return {"doubleValue": given}
        case list():
            return {"arrayValue": {"values": [value(v) for v in given]}}
        case dict():
            return {"kvlistValue": {"values": pairs(given)}}
    return {"stringValue": given}


def pairs(attributes: ROW) -> list[ROW]:
    return [{"key": k, "value": value(v)} for k, v in attributes.items()]


def span(attributes: ROW | None = None, **more: Any) -> ROW:
    """One span of OTLP/JSON; ``events``: (name, attributes)."""
    events = [{"name": n, "timeUnixNano": str(START), "attributes": pairs(a)} for n, a in more.pop("events", ())]
    return {
        "traceId": TRACE, "spanId": SPAN, "name": "x", "kind": 1, "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 5_000_000), "attributes": pairs(attributes or {}), "events": events,
    } | more  # fmt: skip


def otlp(*spans: ROW, scope: str = "somebody") -> ROW:
    """An ExportTraceServiceRequest as JSON."""
    resource = {"attributes": pairs({"service.name": "shop"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}]}]}
