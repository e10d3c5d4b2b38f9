"""Our span as the app's own code finds it: what that writes on it obeys the capture mode, too.

``trace.get_current_span()`` is ours inside a retriever, a chain or a tool, and people put questions, answers and
exceptions on whatever span is current.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, Status

from ragtrace.record import attributes as a

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ragtrace.record.capture import Capture

_IDS = frozenset((a.USER, a.SESSION, a.CONVERSATION, "enduser.id", "enduser.pseudo.id"))
_LOSS = "what other code wrote on this span is left out, but for numbers and ids: the capture mode keeps no text"


def current(span: Span, capture: Capture, losses: list[str], context: Context | None) -> Context:
    """``context`` with ``span`` in it, as others may have it; ``losses`` will say what they were not let."""
    guarded = not capture.keeps_all and span.is_recording()
    return trace.set_span_in_context(Guarded(span, losses) if guarded else span, context)


class Guarded(Span):
    """A span that takes numbers and ids, and of all else that it happened."""

    def __init__(self, span: Span, losses: list[str]) -> None:
        self._span, self._losses = span, losses

    def __getattr__(self, name: str) -> Any:  # what the SDK's spans have beyond the interface
        if name == "_span":  # being copied: not set yet
            raise AttributeError(name)
        return getattr(self._span, name)

    def _kept(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        given = given or {}
        kept = {k: v for k, v in given.items() if isinstance(v, bool | int | float) or k in _IDS}
        if len(kept) < len(given):
            self._lose()
        return kept

    def _lose(self) -> None:
        if _LOSS not in self._losses:
            self._losses.append(_LOSS)

    def get_span_context(self) -> SpanContext:
        """The span's own."""
        return self._span.get_span_context()

    def is_recording(self) -> bool:
        """The span's own."""
        return self._span.is_recording()

    def end(self, end_time: int | None = None) -> None:
        """Ends the span."""
        self._span.end(end_time)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Sets those that are no text."""
        self._span.set_attributes(self._kept(attributes))

    def set_attribute(self, key: str, value: Any) -> None:
        """Sets one that is no text."""
        self.set_attributes({key: value})

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Nothing: also a name may be text."""
        self._lose()

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Links, without text."""
        self._span.add_link(context, self._kept(attributes))

    def update_name(self, name: str) -> None:
        """Nothing: our spans are called by what they are."""
        self._lose()

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Sets the code."""
        if description or (isinstance(status, Status) and status.description):
            self._lose()
        self._span.set_status(status.status_code if isinstance(status, Status) else status)

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """Its kind."""
        self._lose()
        self._span.add_event("exception", {"exception.type": type(exception).__qualname__}, timestamp)
