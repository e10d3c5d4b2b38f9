"""What LlamaIndex tells its listeners about a model call whose text a response defense has yet to see.

Events, the end of spans and callbacks wait for the defense, and then say what the app gets. The listeners of other
instrumentations and of the app's own thus hear no text that the app does not.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse
from opentelemetry import context as otel
from opentelemetry.context import Context

from ragtrace.record.steps import recording
from ragtrace_llama_index import translate

_KEY = otel.create_key("ragtrace-llama-index-notices")


class Notices:
    """The notices of one model call, in order."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, Any, Any]] = []
        self.defended = False
        self.answer: str | None = None  # what the defense made of the text, where it changed it

    def heard_in(self, context: Context) -> Context:
        """``context``, with the notices given in it held here."""
        return otel.set_value(_KEY, self, context)

    def release(self) -> None:
        """Gives the notices. Where no defense has seen the text, it is left out."""
        held, self.held = self.held, []
        for notice, args, kwargs in held:
            with recording:
                if self.defended and self.answer is None:
                    notice(*args, **kwargs)
                elif not any("InProgress" in type(v).__name__ for v in args):  # a part of a text that is gone
                    text = self.answer or ""
                    notice(*(_saying(v, text) for v in args), **{k: _saying(v, text) for k, v in kwargs.items()})


def event(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """``Dispatcher.event(event, **kwargs)``."""
    notices = otel.get_value(_KEY)
    if not isinstance(notices, Notices) or notices.defended:
        return wrapped(*args, **kwargs)
    told = args[0] if args else kwargs.get("event")
    if not _is_response(getattr(told, "response", None)):
        return wrapped(*args, **kwargs)
    notices.held.append((wrapped, args, kwargs))
    return None


def span_exit(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """``Dispatcher.span_exit(id_, bound_args, instance=None, result=None, **kwargs)``."""
    notices = otel.get_value(_KEY)
    if not isinstance(notices, Notices) or notices.defended or not _is_response(kwargs.get("result")):
        return wrapped(*args, **kwargs)
    notices.held.append((wrapped, args, kwargs))
    return None


def on_event_end(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """``CallbackManager.on_event_end(event_type, payload=None, event_id=None, **kwargs)``."""
    notices = otel.get_value(_KEY)
    if not isinstance(notices, Notices) or notices.defended:
        return wrapped(*args, **kwargs)
    payload = args[1] if len(args) > 1 else kwargs.get("payload")
    if not isinstance(payload, dict) or not any(_is_response(v) for v in payload.values()):
        return wrapped(*args, **kwargs)
    notices.held.append((wrapped, args, kwargs))
    return None


def _is_response(value: Any) -> bool:
    return isinstance(value, ChatResponse | CompletionResponse)


def _saying(value: Any, text: str) -> Any:
    if isinstance(value, ChatResponse | CompletionResponse):
        return translate.response_with_text(value, text)
    if isinstance(value, dict):
        return {k: _saying(v, text) for k, v in value.items()}
    if _is_response(getattr(value, "response", None)):
        return value.model_copy(update={"response": _saying(value.response, text)})
    return value
