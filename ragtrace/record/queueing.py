"""From the app's threads to the spool: a bounded queue that never makes a request wait, and counts what it drops."""

from __future__ import annotations

import logging
import os
from multiprocessing.util import Finalize, register_after_fork
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakMethod

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ragtrace.record.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context

    from ragtrace.record.spool import SpoolExporter

_log = logging.getLogger("ragtrace")
FLUSH_EVERY_MS = 5_000  # what ended ten seconds ago is on disk
QUEUE = 8_192
"""Spans that wait for the disk, at most; OTEL_BSP_MAX_QUEUE_SIZE says otherwise."""
BATCH = 1_024


class SpoolProcessor(SpanProcessor):
    """The SDK's batch processor, which is not given a span that its queue has no room for: that one is counted."""

    def __init__(self, exporter: SpoolExporter, service: str = "") -> None:
        self.tally = Tally(exporter.folder, service)
        exporter.process = self.tally.process
        self.size = _queue_size()
        self._waiting = 0
        self._full = False
        self._lock = Lock()
        self._inner = BatchSpanProcessor(
            _Counting(exporter, self),
            max_queue_size=self.size,
            schedule_delay_millis=FLUSH_EVERY_MS,
            max_export_batch_size=min(BATCH, self.size),
        )
        self._exporter = exporter
        if hasattr(os, "register_at_fork"):
            anew = WeakMethod(self._begin_anew)
            os.register_at_fork(after_in_child=lambda: (method := anew()) and method())
        self._flush_with_multiprocessing()
        register_after_fork(self, SpoolProcessor._flush_with_multiprocessing)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span, or drops it and counts it: nobody waits here."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        with self._lock:
            self.tally.add("ended")
            room = self._waiting < self.size
            if room:
                self._waiting += 1
            else:
                self.tally.add("dropped")
            first = not room and not self._full
            self._full = not room
        if room:
            self._inner.on_end(span)
        elif first:
            _log.warning("ragtrace drops spans: %d wait to be written; the view losses counts them", self.size)

    def left(self, n: int, became: str) -> None:
        """``n`` spans have left the queue."""
        with self._lock:
            self._waiting -= n
            self.tally.add(became, n)

    def count(self, what: str, n: int) -> None:
        """Something else happened to ``n`` spans."""
        with self._lock:
            self.tally.add(what, n)

    def shutdown(self) -> None:
        """Writes what waits, and takes nothing more."""
        self._at_end.cancel()
        self._inner.shutdown()  # type: ignore[no-untyped-call]
        with self._lock:
            self.tally.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Writes what waits."""
        return self._inner.force_flush(timeout_millis)

    def _flush_with_multiprocessing(self) -> None:
        """Its children, where they are forked, end without what ``atexit`` knows."""
        flush = WeakMethod(self.force_flush)
        self._at_end = Finalize(None, lambda: (method := flush()) and method(), exitpriority=1)

    def _begin_anew(self) -> None:
        """In a child: what waited is the parent's to write."""
        self._lock = Lock()
        self._waiting = 0
        self._full = False
        self.tally.begin_anew()
        self._exporter.process = self.tally.process


class _Counting(SpanExporter):
    """Tells the processor what became of each batch."""

    def __init__(self, exporter: SpoolExporter, processor: SpoolProcessor) -> None:
        self._exporter, self._processor = exporter, processor

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """The exporter's own."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._processor.left(len(spans), "written" if result is SpanExportResult.SUCCESS else "failed")
        if removed := self._exporter.removed():
            self._processor.count("rotated", removed)
        return result

    def shutdown(self) -> None:
        """The exporter's own."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """The exporter's own."""
        return self._exporter.force_flush(timeout_millis)


def _queue_size() -> int:
    """As the SDK reads it; what is no number above 0 is the default."""
    try:
        given = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE))
    except ValueError:
        return QUEUE
    return given if given > 0 else QUEUE
