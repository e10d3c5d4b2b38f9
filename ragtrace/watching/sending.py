"""Where alarms go beside the log: a webhook, and OpenTelemetry as an event and a metric."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
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
    """POSTs each alarm as one JSON object; ``True`` where the answer is 2xx.

    One try takes five seconds at most. What does not arrive is tried again with the next look, ``tries`` times in all,
    then given up with a line in the log: a webhook that is gone does not hold the other alarms for ever.

    :raises UsageError: no http or https URL.
    """

    def __init__(self, url: str, tries: int = 5) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UsageError(f"{url!r} is no webhook; expected an http:// or https:// URL")
        self.url, self.tries = url, tries
        self._failed: dict[tuple[str, str], int] = {}

    def __call__(self, alarm: Alarm) -> bool:
        """Whether the alarm need not be sent again."""
        body = json.dumps(as_json(alarm)).encode()
        request = urllib.request.Request(  # noqa: S310 (the scheme is checked)
            self.url, body, {"Content-Type": "application/json", "User-Agent": "ragtrace"}
        )
        key = alarm.kind, alarm.key
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310
                self._failed.pop(key, None)
                return True
        except (OSError, ValueError) as error:  # URLError is an OSError
            count = self._failed[key] = self._failed.get(key, 0) + 1
            _log.warning("webhook: %s (try %d of %d)", type(error).__name__, count, self.tries)
            if count < self.tries:
                return False
            self._failed.pop(key)
            _log.error("webhook: given up for alarm %s; it stays in the view alarms", as_json(alarm)["id"])
            return True


def telemetry() -> Callable[[Alarm], None]:
    """Each alarm as an OpenTelemetry event (``ragtrace.alarm``) and a count (``ragtrace.alarms``).

    To the providers of this process; without any, both go nowhere and cost nothing.
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
