"""Spans: who makes them, what all of them carry, and the request at their root."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Status, StatusCode, Tracer

from ragtrace import defense as declarations
from ragtrace.defense import Defense
from ragtrace.record import attributes as a
from ragtrace.record import guard, openinference, outgoing
from ragtrace.record.capture import Capture, dumps, well_formed
from ragtrace.record.effects import Effect
from ragtrace.record.scope import (
    SCOPE_KEY,
    Scope,
    after_ahead,
    ask,
    conversation_id,
    put_back,
)
from ragtrace.record.steps import recording
from ragtrace.types import HOOKS, Channel, Path

_MAX_LOSSES = 50  # sentences a span
_BENIGN_STOPS = ("GraphBubbleUp", "GeneratorExit", "CancelledError")


class Recorder:
    """Makes the scopes and stages of one instrumented framework."""

    def __init__(self, tracer: Tracer, framework: str, capture: Capture, defenses: tuple[Defense, ...] = ()) -> None:
        self.tracer = tracer
        self.framework = framework
        self.capture = capture
        self.defenses = defenses
        self.on = True  # what is still under way when it goes off ends; nothing begins

    def scope(self, path: Path, ids: Iterable[tuple[str, Any]] = ()) -> Scope:
        """The state of a request made here and now: with the defenses and the probe of the caller.

        ``ids`` are what the framework knows of the session, the user and the conversation, by attribute.
        """
        scope = Scope(path, self.defenses, ids)
        scope.recorder, scope.told = self, self._told(scope)
        return scope

    def request(self, path: Path, name: str, ids: Iterable[tuple[str, Any]] = ()) -> Request:
        """The root span of the caller's outermost call."""
        return Request(self, self.scope(path, ids), name)

    def start(
        self,
        name: str,
        kind: SpanKind,
        scope: Scope,
        parent: Context | None = None,
        start_time: int | None = None,
        more: dict[str, Any] | None = None,
    ) -> Span:
        """A span with the attributes that every span of ours has. Never raises: without a span, defenses still act."""
        if self.on and not suppressed():
            with recording:
                told = scope.told if scope.recorder is self else self._told(scope)
                parent = _within(scope, parent)
                given = told | more if more else told
                return self.tracer.start_span(name, parent, kind=kind, attributes=given, start_time=start_time)
        return NonRecordingSpan(trace.get_current_span(parent).get_span_context())

    def _told(self, scope: Scope) -> dict[str, Any]:
        told: dict[str, Any] = (
            {openinference.KIND: openinference.CHAIN} if self.capture.also else {}
        )  # first to be dropped
        told |= {a.FRAMEWORK: self.framework, a.PATH: scope.path, a.CAPTURE: self.capture.mode}
        told |= scope.ids
        if (truth := scope.truth) is not None:
            told |= {a.RUN_ID: truth.run_id, a.ARM: truth.arm, a.PROBE_ID: truth.probe.probe_id}
        if (conversation := conversation_id()) is not None:
            told[a.CONVERSATION] = conversation
        return told


def suppressed() -> bool:
    """Whether the app wants nothing recorded here."""
    return bool(otel.get_value(otel._SUPPRESS_INSTRUMENTATION_KEY))


def failed(error: BaseException | None) -> bool:
    """Whether this is a failure, rather than the consumer's or the graph's way to stop."""
    return error is not None and not any(kind.__name__ in _BENIGN_STOPS for kind in type(error).__mro__)


def _within(scope: Scope, parent: Context | None) -> Context | None:
    """``parent``; or the request, where another instrumentation has made a span of some other trace current."""
    request = getattr(scope, "span", None)  # the request's own span begins before there is one
    if request is None:
        return parent
    trace_id = request.get_span_context().trace_id
    if trace_id in (0, trace.get_current_span(parent).get_span_context().trace_id):
        return parent
    return trace.set_span_in_context(request, parent)


class Part:
    """A span that is entered and left once. ``context`` is what the framework's code runs in."""

    def __init__(self, recorder: Recorder, scope: Scope, span: Span) -> None:
        self.recorder = recorder
        self.scope = scope
        self.span = span
        self.recording = span.is_recording()
        self.effects: list[Effect] = []
        self.losses: list[str] = []
        self.ended = False
        self.outer = otel.get_current()
        self.context = self.outer
        scope.running.append(self)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span, once. Never raises."""
        if self.ended:
            return
        self.ended = True
        self.context = self.outer  # a stage's own context holds the stage
        if self.recording:
            with recording:
                self._finish()
            with recording:
                if self.effects:
                    self.span.set_attribute(a.EFFECTS, dumps([e.to_json() for e in self.effects]))
            if error is not None:
                with recording:
                    self._fail(error)
            if self.recorder.capture.also:
                with recording:
                    openinference.write(self.span, self.losses, *self._ends())
            with recording:
                if self.losses:
                    self.span.set_attribute(a.LOSSES, dumps(self._losses()))
            self.recording = False  # its task or thread may go on: defenses act there, nothing is written
        with recording:
            self.span.end()
        self.scope.running.remove(self)

    def _finish(self) -> None:
        """What a subclass writes at its end."""

    def _ends(self) -> tuple[str | None, str | None]:
        """What went in and came out as text, where no attribute of ours says it."""
        return None, None

    def _tell(self, texts: dict[Channel, list[str]], computed: dict[str, Any]) -> None:
        """Writes what was computed of texts, and which canaries stand in them."""
        if told := self.recorder.capture.statistics.told(texts, computed):
            self.span.set_attribute(a.STATISTICS, dumps(told))

    def _losses(self) -> list[str]:
        more = len(self.losses) - _MAX_LOSSES
        return self.losses if more <= 0 else [*self.losses[:_MAX_LOSSES], f"and {more} more"]

    def _fail(self, error: BaseException) -> None:
        if not failed(error):
            self.span.set_attribute(a.CANCELLED, True)
            return
        kind = type(error).__qualname__
        self.span.set_attribute(a.ERROR_TYPE, kind)
        self.span.set_status(Status(StatusCode.ERROR, kind))
        if self.recorder.capture.keeps_all:
            told = {
                "exception.type": f"{type(error).__module__}.{kind}",
                "exception.message": well_formed(str(error)),
                "exception.stacktrace": well_formed("".join(traceback.format_exception(error))),
            }
            self.span.add_event("exception", told)
            self.span.set_status(Status(StatusCode.ERROR, f"{kind}: {told['exception.message']}"))

    def __enter__(self) -> Any:
        self._token = otel.attach(self.context)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        put_back(self._token)
        self.end(error)


class Request(Part):
    """The caller's outermost call, and the scope that goes with it."""

    def __init__(self, recorder: Recorder, scope: Scope, name: str) -> None:
        super().__init__(recorder, scope, recorder.start(f"pipeline {name}", SpanKind.INTERNAL, scope, after_ahead()))
        scope.span = self.span
        self.effects = scope.effects
        self.context = guard.current(self.span, recorder.capture, self.losses, otel.set_value(SCOPE_KEY, scope))
        self.asked = ask(scope, recorder)
        if self.recording:
            with recording:
                self._describe()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the request."""
        if error is not None:
            self.stop(error)
        if not self.ended:
            if self.recording:
                with recording:
                    self._settle()
                with recording:
                    self._leave()
            self.asked.ended(self.scope)
            self.scope.over = True
        super().end(error)

    def _settle(self) -> None:
        """What can only be said now: which changes came too late, and what parts have acted without being declared."""
        parts: dict[str, set[str]] = {}
        for effect in self.scope.effects:
            if effect.hook == "response" and effect.status == "changed" and self.scope.has_left(effect.given):
                effect.too_late()
            if effect.part and effect.hook is not None:
                parts.setdefault(effect.defense, set()).add(effect.hook)
        if parts:
            self._declare(parts)

    def _leave(self) -> None:
        """What the observed defenses left of the answers: no stage has seen it."""
        scope = self.scope
        if changed := outgoing.changed(scope.effects, scope.crossings):
            rows = outgoing.rows(changed, self.recorder.capture, self.losses)
            self.span.set_attribute(a.RESPONSES_LEFT, dumps(rows))
            if (last := scope.answering()) in changed:
                scope.answer = last.left

    def stop(self, error: BaseException) -> None:
        """Ends what still streams inside, with what was delivered: frameworks close it late, or read it to its end.

        Then what still runs, in tasks that the framework has left to themselves.
        """
        for part in (*reversed(self.scope.streaming), *reversed(self.scope.running)):
            if part is not self:
                part.end(GeneratorExit())

    def _ends(self) -> tuple[str | None, str | None]:
        asked, said = (self.recorder.capture.side(side) for side in ("inputs", "outputs"))
        query, answer = self.scope.query, self.scope.answer
        return None if query is None else asked.text(query), None if answer is None else said.text(answer)

    def _describe(self) -> None:
        self._declare({})
        if (truth := self.scope.truth) is not None:
            probe = {name: value for name, value in vars(truth.probe).items() if value is not None}
            self.span.set_attribute(a.PROBE, dumps(probe))

    def _declare(self, more: dict[str, set[Any]]) -> None:
        claims = declarations.declared()
        for defense in self.scope.defenses:
            more.setdefault(defense.name, set()).update(defense.hooks)
        for name, hooks in more.items():
            hooks |= set(claims.get(name, ()))
            claims[name] = tuple(h for h in HOOKS if h in hooks)
        if claims:
            self.span.set_attribute(a.DECLARED, dumps(claims))
