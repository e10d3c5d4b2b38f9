"""The app's own defenses: marked with :func:`observe`, they are declared, and each run's effect is recorded."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast
from uuid import UUID

from opentelemetry import trace

from ragtrace import defense
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a
from ragtrace.record import effects, scope
from ragtrace.record.capture import digest, dumps
from ragtrace.record.effects import Effect, Seen
from ragtrace.record.steps import internal_error, recording
from ragtrace.types import Hook

F = TypeVar("F", bound=Callable[..., Any])


def observe(*, hook: Hook, name: str | None = None, arg: str | None = None) -> Callable[[F], F]:
    """Declares a function of the app as a defense at ``hook`` and records what each call of it changes.

    The function's own behaviour stays: same arguments, same result, same exceptions (which are recorded).
    What it changes is read from the argument named ``arg``; by default, the first one that fits the hook: a
    list of documents (``retrieval``, ``content``) or of messages (``prompt``), else the first text. Documents and
    messages of any framework fit, and so do strings.

    :param name: the defense's name; default: the function's.
    :raises UsageError: for an unknown hook, or an ``arg`` that the function does not have.
    """
    defense.check_hook(hook)

    def decorate(function: F) -> F:
        if not callable(function):
            raise UsageError(f"observe() got {type(function).__name__!r}, expected a function; put @observe below it")
        own = getattr(function, "__name__", type(function).__name__)
        known = name or own
        signature = inspect.signature(function)
        if arg is not None and arg not in signature.parameters:
            has = ", ".join(signature.parameters)
            raise UsageError(f"observe(arg={arg!r}): {own} has no such parameter; it has {has}")
        defense.declare(known, [hook])
        selves = ("self", "cls") if inspect.isfunction(function) else ()

        def before(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            try:
                given = signature.bind(*args, **kwargs).arguments
                values = [given.get(arg)] if arg is not None else [v for k, v in given.items() if k not in selves]
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
        with recording:
            after = _picture(self.hook, result, self.before)
            if self.before is not None and after is not None:
                self._record(self._compare(self.before, after))
        return result

    def failed(self, error: Exception) -> None:
        with recording:
            effect = (
                Effect(self.name, self.hook, "") if self.before is None else self._compare(self.before, self.before)
            )
            effect.status, effect.error = "error", type(error).__name__
            self._record(effect)

    def _compare(self, before: Any, after: Any) -> Effect:
        if isinstance(before, str) or isinstance(after, str):
            return effects.text_effect(self.name, self.hook, _joined(before), _joined(after))
        if self.hook == "prompt":
            return effects.messages_effect(self.name, self.hook, before, after)
        return effects.documents_effect(self.name, self.hook, before.seen, after.seen)

    def _record(self, effect: Effect) -> None:
        effect.duration_us = (time.perf_counter_ns() - self.started) // 1_000
        request = scope.current()
        if isinstance(request, scope.Scope):
            request.effects.append(effect)
            return
        self._beside(effect)

    def _beside(self, effect: Effect) -> None:
        """Outside any request: a span of its own, below the request whose answer the app has just been given."""
        told: dict[str, Any] = {a.FRAMEWORK: "none", a.EFFECTS: dumps([effect.to_json()])}
        tracer, context = trace.get_tracer(a.SCOPE), None
        here = trace.get_current_span().get_span_context()
        ended = None if self.hook == "query" else scope.ended_with(self.before)
        if ended is not None and (not here.is_valid or here.trace_id == ended.span.trace_id):
            tracer, context = ended.tracer, trace.set_span_in_context(trace.NonRecordingSpan(ended.span))
            if (truth := ended.truth) is not None:
                told |= {a.RUN_ID: truth.run_id, a.ARM: truth.arm, a.PROBE_ID: truth.probe.probe_id}
        with tracer.start_as_current_span(f"defense {self.name}", context, attributes=told) as span:
            if self.hook == "query":
                scope.go_ahead(span.get_span_context())


class _Documents:
    """A picture of documents: what they were, and which objects."""

    __slots__ = ("objects", "seen")

    def __init__(self, values: Sequence[Any], before: _Documents | None) -> None:
        self.objects = list(values)  # held, so that no other object gets their identity
        self.seen = [self._seen(place, value, before) for place, value in enumerate(self.objects)]

    def _seen(self, place: int, value: Any, before: _Documents | None) -> Seen:
        content = _text(value) or ""
        metadata = getattr(value, "metadata", None)
        score = getattr(value, "score", None)
        if score is None and isinstance(metadata, dict):
            score = metadata.get("score", metadata.get("relevance_score"))
        own = getattr(value, "id", None) or getattr(value, "node_id", None)
        id = str(own) if isinstance(own, str | int | UUID) else self._same(place, value, digest(content), before)
        return Seen(id, content, score if isinstance(score, int | float) else None)

    def _same(self, place: int, value: Any, digest: str, before: _Documents | None) -> str:
        """Which document this is, where it has no id: the same object, the same text, or else the one in its place."""
        if before is None or digest in (was := [s.id for s in before.seen]):
            return digest
        twin = next(
            (i for i, other in enumerate(before.objects) if other is value and not isinstance(value, str)), None
        )
        if twin is None and len(self.objects) == len(was):
            twin = place
        return digest if twin is None else was[twin]


def _picture(hook: Hook, value: Any, before: Any = None) -> Any:
    """A comparable picture of a hook's value, or ``None`` if it is not one."""
    if hook in ("retrieval", "content"):
        if isinstance(value, list | tuple) and all(_text(v) is not None for v in value):
            return _Documents(value, before if isinstance(before, _Documents) else None)
        return None
    if hook == "prompt" and not isinstance(value, str):
        items = value.to_messages() if hasattr(value, "to_messages") else value
        if isinstance(items, list | tuple) and all(_text(v) is not None for v in items):
            return [(str(getattr(v, "type", None) or getattr(v, "role", "")), _text(v) or "") for v in items]
        return None
    return _text(value)


def _joined(picture: Any) -> str:
    return picture if isinstance(picture, str) else "\n\n".join(text for _, text in picture)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    for name in ("page_content", "text", "content"):
        found = getattr(value, name, None)
        if isinstance(found, str):
            return found
    return None
