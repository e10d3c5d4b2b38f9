"""Where alarms go beside the log: a webhook, and OpenTelemetry as an event and a metric."""

from __future__ import annotations

import json
import logging
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from http.client import HTTPException
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from ragtrace.errors import UsageError
from ragtrace.record import attributes as a

if TYPE_CHECKING:
    from ragtrace.watching import Alarm

_log = logging.getLogger("ragtrace.watch")
_TIMEOUT = 5.0
EVENT = "ragtrace.alarm"
COUNTER = "ragtrace.alarms"


def as_json(alarm: Alarm) -> dict[str, Any]:
    """What a webhook gets; ``id`` is the same whenever the same alarm is sent."""
    told = alarm._asdict() | {key: value and value.isoformat() for key, value in
                              (("seen_at", alarm.seen_at), ("raised_at", alarm.raised_at))}  # fmt: skip
    del told["sent"], told["key"]
    return {"id": blake2b(f"{alarm.kind}\0{alarm.key}".encode(), digest_size=8).hexdigest()} | told


class Webhook:
    """POSTs each alarm as one JSON object; ``True`` where the answer is 2xx. A redirect is no answer: it would not be
    followed with the alarm.

    One try takes five seconds at most, however slowly the answer drips in. What does not arrive is tried again with the
    next look, ``tries`` times in all, then given up with a line in the log: a webhook that is gone does not hold the
    other alarms for ever.

    :raises UsageError: no http or https URL.
    """

    def __init__(self, url: str, tries: int = 5) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UsageError(f"{url!r} is no webhook; expected an http:// or https:// URL")
        self.url, self.tries = url, tries
        self._failed: dict[tuple[str, str], int] = {}
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._trying: Thread | None = None

    def __call__(self, alarm: Alarm) -> bool:
        """Whether the alarm need not be sent again."""
        body = json.dumps(as_json(alarm)).encode()
        request = urllib.request.Request(  # noqa: S310 (the scheme is checked)
            self.url, body, {"Content-Type": "application/json", "User-Agent": "ragtrace"}
        )
        key = alarm.kind, alarm.key
        why = self._post(request)
        if not why:
            self._failed.pop(key, None)
            return True
        count = self._failed[key] = self._failed.get(key, 0) + 1
        _log.warning("webhook: %s (try %d of %d)", why, count, self.tries)
        if count < self.tries:
            return False
        self._failed.pop(key)
        _log.error("webhook: given up for alarm %s; it stays in the view alarms", as_json(alarm)["id"])
        return True

    def _post(self, request: urllib.request.Request) -> str:
        """Why it did not arrive; nothing where it did. In a thread, of which there is one at most: sockets know only
        how long one read may take."""
        if self._trying and self._trying.is_alive():
            return "the try before still waits for an answer"
        why = ["no answer in time"]
        self._trying = Thread(target=lambda: why.append(_tried(self._opener, request)), daemon=True)
        self._trying.start()
        self._trying.join(_TIMEOUT)
        return why[-1]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """No other request: the answer stays an error."""


def _tried(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> str:
    try:
        with opener.open(request, timeout=_TIMEOUT):
            return ""
    except HTTPError as error:
        error.close()
        return f"HTTP {error.code}" + (", a redirect: give the address it leads to" if error.code // 100 == 3 else "")
    except (OSError, ValueError, HTTPException) as error:  # URLError is an OSError
        return type(error).__name__


def telemetry() -> Callable[[Alarm], None]:
    """Each alarm as an OpenTelemetry event (``ragtrace.alarm``) and a count (``ragtrace.alarms``).

    To the providers of this process (:func:`exporting` makes some); without any, both go nowhere and cost nothing.
    """
    from opentelemetry import metrics
    from opentelemetry._logs import LogRecord, SeverityNumber, get_logger

    counter = metrics.get_meter(a.SCOPE).create_counter(COUNTER, "{alarm}", "Alarms raised by ragtrace watch.")
    logger = get_logger(a.SCOPE)

    def send(alarm: Alarm) -> None:
        facts = {"ragtrace.alarm.kind": alarm.kind, "ragtrace.alarm.subject": alarm.subject or ""}
        counter.add(1, facts)
        logger.emit(LogRecord(
            timestamp=int(alarm.raised_at.timestamp() * 1e9), severity_number=SeverityNumber.ERROR, event_name=EVENT,
            body=alarm.message, attributes=facts | {"ragtrace.alarm.trace_id": alarm.trace_id or ""},
        ))  # fmt: skip

    return send


@contextmanager
def exporting() -> Iterator[None]:
    """Sends events and counts by OTLP/HTTP where OpenTelemetry's environment variables name an address for them, and
    the exporter is installed; leaves alone what is set up already."""
    wanted = [signal for signal in ("LOGS", "METRICS") if any(map(os.environ.get, _addresses(signal)))]
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError:
        _log.warning(
            "alarms do not go to %s: pip install opentelemetry-exporter-otlp-proto-http", _addresses("LOGS")[0]
        )
        yield
        return
    from opentelemetry import _logs, metrics
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    made: list[LoggerProvider | MeterProvider] = []
    if "LOGS" in wanted and not isinstance(_logs.get_logger_provider(), LoggerProvider):
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(), schedule_delay_millis=1_000))
        _logs.set_logger_provider(logs)
        made.append(logs)
    if "METRICS" in wanted and not isinstance(metrics.get_meter_provider(), MeterProvider):
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
        made.append(meters)
    try:
        yield
    finally:
        for provider in made:
            provider.shutdown()


def _addresses(signal: str) -> tuple[str, str]:
    return "OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
