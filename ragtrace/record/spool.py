"""Spans to Parquet segments beside the database, each complete or absent.

Runs in the batch processor's thread. pyarrow is imported with this module, which ``ragtrace.setup`` loads at start-up:
imported on first use, it would take the interpreter from the app's first requests for a third of a second.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ragtrace.record import attributes as a
from ragtrace.record.capture import Mode, dumps, plain, well_formed

_log = logging.getLogger("ragtrace")
SUFFIX = ".parquet"
FORMAT_KEY = b"ragtrace.segment"
FORMAT = b"1"
_TEXTS = ("attributes", "events", "resource")  # where the bytes are; what is short costs more to pack than it saves
_REPEATED = ("trace_id", "parent_span_id", "name", "kind", "status", "status_message", "service", "scope", *_TEXTS[1:])
_WRITTEN: dict[str, Any] = {
    "compression": dict.fromkeys(_TEXTS, "zstd"),  # the others: none
    "use_dictionary": list(_REPEATED),
    "write_statistics": False,
    "write_page_checksum": True,
}
LIMIT = 4 * 2**30
"""Bytes that a spool may hold unless it is told otherwise."""


def spool_of(database: str | Path) -> Path:
    """The folder whose segments :func:`ragtrace.open` merges into ``database``."""
    path = Path(database)
    return path.with_name(path.name + ".spool")


class SpoolExporter(SpanExporter):
    """Writes each batch as one segment: temporary name, fsync, rename. Files are 0600, the folder 0700.

    ``capture`` also covers spans that are not ours: where it keeps no raw text, their strings are dropped.

    :param limit: bytes that the spool may hold; beyond it the oldest segments go, so that an app whose traces nobody
        fetches does not fill its disk. ``None``: no limit.
    """

    def __init__(self, database: str | Path, capture: Mode = "digest", limit: int | None = LIMIT) -> None:
        self.folder = spool_of(Path(database).expanduser().absolute())
        self.limit = limit
        self.process = uuid.uuid4().hex[:8]
        self._keeps_foreign_text = capture == "full"
        self._lost = 0
        self._removed = 0
        self._number = 0
        self._until_look = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Writes one segment. A failure is logged (of a row of them, the first), never raised."""
        try:
            self._write([self._row(span) for span in spans])
        except Exception:
            if not self._lost:
                _log.warning("ragtrace cannot write to %s: spans are lost until it can", self.folder, exc_info=True)
            self._lost += len(spans)
            return SpanExportResult.FAILURE
        with suppress(Exception):  # what was written stays written
            self._keep_limit()
        if self._lost:
            _log.warning("ragtrace writes to %s again; %d spans were lost", self.folder, self._lost)
            self._lost = 0
        return SpanExportResult.SUCCESS

    def removed(self) -> int:
        """Spans in segments that were removed since the last call, to keep the limit."""
        removed, self._removed = self._removed, 0
        return removed

    def _keep_limit(self) -> None:
        """Removes the oldest segments, whoever wrote them; looks at the folder after every so many bytes only."""
        if self.limit is None or self._until_look > 0:
            return
        found = []
        for entry in os.scandir(self.folder):
            if entry.name.endswith(SUFFIX):
                with suppress(OSError):  # another worker, or the merge, may remove it at the same time
                    found.append((entry.name, entry.stat().st_size))
        found.sort()
        total = sum(size for _, size in found)
        for name, size in found:
            if total <= self.limit:
                break
            segment = self.folder / name
            with suppress(OSError, pa.ArrowException):
                spans = pq.read_metadata(segment).num_rows
                segment.unlink()
                self._removed += spans
            total -= size
        self._until_look = max((self.limit - total) // 8, self.limit // 64)

    def _row(self, span: ReadableSpan) -> dict[str, Any]:
        context, scope = span.get_span_context(), span.instrumentation_scope
        assert context is not None
        ours = scope is not None and scope.name == a.SCOPE
        keep = ours or self._keeps_foreign_text
        resource = dict(span.resource.attributes)
        return {
            "trace_id": format(context.trace_id, "032x"),
            "span_id": format(context.span_id, "016x"),
            "parent_span_id": format(span.parent.span_id, "016x") if span.parent else None,
            "name": well_formed(str(span.name)),
            "kind": span.kind.name,
            "start_time_ns": span.start_time,
            "end_time_ns": span.end_time,
            "status": span.status.status_code.name,
            "status_message": well_formed(str(span.status.description or "")) or None if keep else None,
            "service": well_formed(str(resource.get("service.name", ""))),
            "scope": well_formed(scope.name) if scope else None,
            "attributes": _json(span.attributes or {}, keep),
            "events": _json([_event(e) for e in span.events] if keep else [], True),
            "resource": _json(resource, True),
        }

    def _write(self, rows: list[dict[str, Any]]) -> None:
        self.write(pa.Table.from_pylist(rows, schema=segment_schema()))

    def write(self, table: Any) -> None:
        """Writes a table of :func:`segment_schema` as one segment.

        :raises OSError: it could not be written, and nothing of it is there.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number += 1
        name = f"{time.time_ns():020d}-{os.getpid()}-{self.process}-{self._number}"
        temporary = self.folder / f".{name}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                pq.write_table(table, file, **_WRITTEN)
                file.flush()
                os.fsync(file.fileno())
                self._until_look -= file.tell()
            temporary.rename(self.folder / (name + SUFFIX))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        with suppress(OSError):  # the segment is there; only a power cut could still take it away
            _fsync_folder(self.folder)

    def shutdown(self) -> None:
        """Nothing is held between batches."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is held between batches."""
        return True


def segment_schema() -> Any:
    """The Arrow schema of a segment, with its format in the metadata."""
    text, nanoseconds = pa.string(), pa.int64()
    columns = {
        "trace_id": text, "span_id": text, "parent_span_id": text, "name": text, "kind": text,
        "start_time_ns": nanoseconds, "end_time_ns": nanoseconds, "status": text, "status_message": text,
        "service": text, "scope": text, "attributes": text, "events": text, "resource": text,
    }  # fmt: skip
    return pa.schema(list(columns.items()), metadata={FORMAT_KEY: FORMAT})


def _event(event: Any) -> dict[str, Any]:
    return {"name": event.name, "time_ns": event.timestamp, "attributes": dict(event.attributes or {})}


def _json(value: Any, keep_text: bool) -> str:
    if not keep_text:
        value = {k: v for k, v in value.items() if isinstance(v, bool | int | float)}
    try:
        return orjson.dumps(dict(value) if isinstance(value, Mapping) else value, default=_mapping).decode()
    except TypeError:  # something that JSON has no word for
        return dumps(plain(value, [], "attributes"))


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
