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
from ragtrace.record import effects, outgoing, pictures, scope
from ragtrace.record.capture import dumps
from ragtrace.record.crossings import Crossing
from ragtrace.record.effects import Effect
from ragtrace.record.spans import suppressed
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
                return next((seen for v in values if (seen := pictures.picture(hook, v)) is not None), None)
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

            awrapper.__ragtrace_observed__ = (hook, known, arg)  # type: ignore[attr-defined]
            return cast("F", awrapper)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            run = _Run(known, hook, before(args, kwargs))
            try:
                return run.done(function(*args, **kwargs))
            except Exception as error:
                run.failed(error)
                raise

        wrapper.__ragtrace_observed__ = (hook, known, arg)  # type: ignore[attr-defined]
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
            after = pictures.picture(self.hook, result, self.before)
            if self.before is not None and after is not None:
                self._record(self._compare(self.before, after))
                if isinstance(after, pictures.Documents) and (request := scope.current()) is not None:
                    request.replace(self.before.documents, after.documents)
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
            effect = effects.text_effect(self.name, self.hook, pictures.joined(before), pictures.joined(after))
        elif self.hook == "prompt":
            effect = effects.messages_effect(self.name, self.hook, before, after)
        else:
            seen = (effects.seen(side.documents) for side in (before, after))
            return effects.documents_effect(self.name, self.hook, *seen)
        effect.given, effect.said = pictures.joined(before), pictures.joined(after)
        return effect

    def _record(self, effect: Effect) -> None:
        effect.duration_us = (time.perf_counter_ns() - self.started) // 1_000
        request = scope.current()
        if isinstance(request, scope.Scope):
            request.met(effect, self.before)
            request.keep(effect)
        else:
            beside(effect, self.before)


def beside(effect: Effect, before: Any) -> None:
    """Outside any request: a span of its own, below the request whose answer the app has just been given."""
    if suppressed():
        return
    tracer, context = trace.get_tracer(a.SCOPE), None
    told: dict[str, Any] = {a.FRAMEWORK: "none"}
    here = trace.get_current_span().get_span_context()
    asked = None if effect.hook == "query" else scope.asked_with(before)
    if asked is not None and (not here.is_valid or here.trace_id == asked.span.trace_id):
        tracer, context = asked.recorder.tracer, trace.set_span_in_context(trace.NonRecordingSpan(asked.span))
        stage = "generation" if effect.hook in ("prompt", "response") else "retrieval"
        effect.spans = [span for kind, span in asked.crossings if kind == stage]
        told |= asked.ids
        if (truth := asked.truth) is not None:
            told |= {a.RUN_ID: truth.run_id, a.ARM: truth.arm, a.PROBE_ID: truth.probe.probe_id}
        answering = asked.answering
        if answering is not None and outgoing.changed([effect], [answering]):
            told |= _left(asked, answering)
    told[a.EFFECTS] = dumps([effect.to_json()])
    with tracer.start_as_current_span(f"defense {effect.defense}", context, attributes=told) as span:
        if effect.hook == "query":
            scope.go_ahead(span.get_span_context())


def _left(asked: scope.Asked, answering: Crossing) -> dict[str, Any]:
    """The attributes that tell what was left of an answer; the next defense is given that."""
    losses: list[str] = []
    rows = outgoing.rows([answering], asked.recorder.capture, losses)
    asked.answer = hash(answering.left)
    return {a.RESPONSES_LEFT: dumps(rows)} | ({a.LOSSES: dumps(losses)} if losses else {})
