"""The app's own defenses: marked with :func:`observe`, they are declared, and each run's effect is recorded."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from opentelemetry import trace

from ragtrace import defense
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a
from ragtrace.record import effects, scope
from ragtrace.record.capture import digest, dumps
from ragtrace.record.effects import Effect, Seen
from ragtrace.record.steps import internal_error
from ragtrace.types import Hook

F = TypeVar("F", bound=Callable[..., Any])


def observe(*, hook: Hook, name: str | None = None, arg: str | None = None) -> Callable[[F], F]:
    """Declares a function of the app as a defense at ``hook`` and records what each call of it changes.

    The function's own behaviour stays: same arguments, same result, same exceptions (which are recorded).
    What it changes is read from the argument named ``arg``; by default, the first one that fits the hook: a
    list of documents (``retrieval``, ``content``) or of messages (``prompt``), else the first text. Documents and messages of
    any framework fit, and so do strings.

    :param name: the defense's name; default: the function's.
    :raises UsageError: for an unknown hook, or an ``arg`` that the function does not have.
    """
    defense.check_hook(hook)

    def decorate(function: F) -> F:
        known = name or function.__name__
        signature = inspect.signature(function)
        if arg is not None and arg not in signature.parameters:
            raise UsageError(
                f"observe(arg={arg!r}): {function.__name__} has no such parameter; it has {', '.join(signature.parameters)}"
            )
        defense.declare(known, [hook])

        def before(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            try:
                given = signature.bind(*args, **kwargs).arguments
                values = [given[arg]] if arg is not None else list(given.values())
                return next((seen for v in values if (seen := _picture(hook, v)) is not None), None)
            except Exception:
                internal_error()
                return None

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awrapper(*args: Any, **kwargs: Any) -> Any:
                run = _Run(known, hook, before(args, kwargs))
                try:
                    return run.done(await function(*args, **kwargs))
                except Exception as error:
                    run.failed(error)
                    raise

            return cast("F", awrapper)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            run = _Run(known, hook, before(args, kwargs))
            try:
                return run.done(function(*args, **kwargs))
            except Exception as error:
                run.failed(error)
                raise

        return cast("F", wrapper)

    return decorate


class _Run:
    """One call of an observed function."""

    __slots__ = ("before", "hook", "name", "started")

    def __init__(self, name: str, hook: Hook, before: Any) -> None:
        self.name, self.hook, self.before = name, hook, before
        self.started = time.perf_counter_ns()

    def done(self, result: Any) -> Any:
        try:
            after = _picture(self.hook, result)
            if self.before is not None and after is not None:
                self._record(self._compare(self.before, after))
        except Exception:
            internal_error()
        return result

    def failed(self, error: Exception) -> None:
        try:
            effect = self._compare(self.before, self.before) if self.before is not None else Effect("", "query", "")
            effect.defense, effect.hook = self.name, self.hook
            effect.status, effect.error = "error", type(error).__name__
            self._record(effect)
        except Exception:
            internal_error()

    def _compare(self, before: Any, after: Any) -> Effect:
        if isinstance(before, str) or isinstance(after, str):
            return effects.text_effect(self.name, self.hook, str(before), str(after))
        if self.hook == "prompt":
            return effects.messages_effect(self.name, self.hook, before, after)
        return effects.documents_effect(self.name, self.hook, before, after)

    def _record(self, effect: Effect) -> None:
        effect.duration_us = (time.perf_counter_ns() - self.started) // 1_000
        if (request := scope.current()) is not None:
            request.effects.append(effect)
            return
        with trace.get_tracer(a.SCOPE).start_as_current_span(f"defense {self.name}") as span:
            span.set_attributes({a.FRAMEWORK: "none", a.EFFECTS: dumps([effect.to_json()])})


def _picture(hook: Hook, value: Any) -> Any:
    """A comparable picture of a hook's value, or ``None`` if it is not one."""
    if hook in ("retrieval", "content"):
        if isinstance(value, list | tuple) and all(_text(v) is not None for v in value):
            return [_document(v) for v in value]
        return None
    if hook == "prompt" and not isinstance(value, str):
        items = value.to_messages() if hasattr(value, "to_messages") else value
        if isinstance(items, list | tuple) and all(_text(v) is not None for v in items):
            return [(str(getattr(v, "type", None) or getattr(v, "role", "")), _text(v) or "") for v in items]
        return None
    return _text(value)


def _document(value: Any) -> Seen:
    content = _text(value) or ""
    metadata = getattr(value, "metadata", None)
    score = getattr(value, "score", None)
    if score is None and isinstance(metadata, dict):
        score = metadata.get("score", metadata.get("relevance_score"))
    id = getattr(value, "id", None) or getattr(value, "node_id", None)
    return Seen(str(id or digest(content)), content, score)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    for name in ("page_content", "text", "content"):
        found = getattr(value, name, None)
        if isinstance(found, str):
            return found
    return None
