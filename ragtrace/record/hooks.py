"""The join points: where a framework's stage meets the defenses, and where the spans are written.

An adapter asks its :class:`Recorder` for a stage, runs the framework's own code inside it, and hands the
values through ``query → documents`` (retrieval) or ``prompt → response`` (generation). Each step runs the
defenses that are switched on, compares before and after, and writes the effect.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Status, StatusCode, Tracer

from ragtrace import defense as declarations
from ragtrace.defense import Defense
from ragtrace.record import attributes as a
from ragtrace.record import describe, effects
from ragtrace.record.capture import Capture, dumps, well_formed
from ragtrace.record.effects import Effect
from ragtrace.record.scope import (
    SCOPE_KEY,
    STAGE_KEY,
    DefenseFailedError,
    Scope,
    after_ahead,
    close,
    conversation_id,
    inside,
)
from ragtrace.record.steps import Steps, recording, run_hook, withheld
from ragtrace.types import HOOKS, Document, Hook, Message, Path, Stage

T = TypeVar("T")
_MAX_LOSSES = 50  # sentences a span
_BENIGN_STOPS = ("GraphBubbleUp", "GeneratorExit", "CancelledError")  # the consumer's or the graph's way to stop


class Recorder:
    """Makes the scopes and stages of one instrumented framework."""

    def __init__(self, tracer: Tracer, framework: str, capture: Capture, defenses: tuple[Defense, ...] = ()) -> None:
        self.tracer = tracer
        self.framework = framework
        self.capture = capture
        self.defenses = defenses

    def scope(self, path: Path) -> Scope:
        """The state of a request made here and now: with the defenses and the probe of the caller."""
        return Scope(path, self.defenses)

    def request(self, path: Path, name: str) -> Request:
        """The root span of the caller's outermost call."""
        return Request(self, self.scope(path), name)

    def start(
        self, name: str, kind: SpanKind, scope: Scope, parent: Context | None = None, start_time: int | None = None
    ) -> Span:
        """A span with the attributes that every span of ours has. Never raises: without a span, defenses still act."""
        if not otel.get_value(otel._SUPPRESS_INSTRUMENTATION_KEY):
            with recording:
                told: dict[str, Any] = {a.FRAMEWORK: self.framework, a.PATH: scope.path, a.CAPTURE: self.capture.mode}
                if (truth := scope.truth) is not None:
                    told |= {a.RUN_ID: truth.run_id, a.ARM: truth.arm, a.PROBE_ID: truth.probe.probe_id}
                if (conversation := conversation_id()) is not None:
                    told[a.CONVERSATION] = conversation
                return self.tracer.start_span(name, parent, kind=kind, attributes=told, start_time=start_time)
        return NonRecordingSpan(trace.get_current_span(parent).get_span_context())


class _Part:
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
                if self.losses:
                    self.span.set_attribute(a.LOSSES, dumps(self._losses()))
            if error is not None:
                with recording:
                    self._fail(error)
        with recording:
            self.span.end()

    def _finish(self) -> None:
        """What a subclass writes at its end."""

    def _losses(self) -> list[str]:
        more = len(self.losses) - _MAX_LOSSES
        return self.losses if more <= 0 else [*self.losses[:_MAX_LOSSES], f"and {more} more"]

    def _fail(self, error: BaseException) -> None:
        if any(kind.__name__ in _BENIGN_STOPS for kind in type(error).__mro__):
            self.span.set_attribute(a.CANCELLED, True)
            return
        kind = type(error).__qualname__
        self.span.set_attribute(a.ERROR_TYPE, kind)
        self.span.set_status(Status(StatusCode.ERROR, kind))
        if self.recorder.capture.mode == "full":
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
        otel.detach(self._token)
        self.end(error)


class Request(_Part):
    """The caller's outermost call, and the scope that goes with it."""

    def __init__(self, recorder: Recorder, scope: Scope, name: str) -> None:
        super().__init__(recorder, scope, recorder.start(f"pipeline {name}", SpanKind.INTERNAL, scope, after_ahead()))
        scope.span = self.span
        self.effects = scope.effects
        self.context = trace.set_span_in_context(self.span, otel.set_value(SCOPE_KEY, scope))
        if self.recording:
            with recording:
                self._describe()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the request."""
        if error is not None:
            self.stop(error)
        if self.recording and not self.ended:
            close(self.scope, self.recorder.tracer)
        super().end(error)

    def stop(self, error: BaseException) -> None:
        """Ends what still streams inside, with what was delivered: frameworks close it late, or read it to its end."""
        for part in reversed(self.scope.streaming):
            part.end(GeneratorExit())

    def _describe(self) -> None:
        claims = declarations.declared()
        for active in self.scope.defenses:
            hooks = {*claims.get(active.name, ()), *active.hooks}
            claims[active.name] = tuple(h for h in HOOKS if h in hooks)
        if claims:
            self.span.set_attribute(a.DECLARED, dumps(claims))
        if (truth := self.scope.truth) is not None:
            probe = {name: value for name, value in vars(truth.probe).items() if value is not None}
            self.span.set_attribute(a.PROBE, dumps(probe))


class _Stage(_Part):
    """A stage: its span, and the defenses that cross it."""

    stage: Stage

    def __init__(self, recorder: Recorder, scope: Scope, name: str, subject: object = None) -> None:
        super().__init__(recorder, scope, recorder.start(f"{self.stage} {name}", SpanKind.CLIENT, scope))
        self.subject = subject
        self.nested = inside() is not None
        self.defenses = () if self.nested else scope.switched_on()
        self.context = trace.set_span_in_context(self.span, otel.set_value(STAGE_KEY, self))
        if self.recording:
            self.span.set_attribute(a.STAGE, self.stage)
            if self.nested:
                self.span.set_attribute(a.NESTED, True)

    def _text(self, attribute: str, text: str) -> None:
        if self.recording:
            with recording:
                if (kept := self.recorder.capture.text(text)) is not None:
                    self.span.set_attribute(attribute, kept)

    @property
    def _buffers(self) -> bool:
        return self.scope.path in ("stream", "astream")

    def has(self, hook: Hook) -> bool:
        """Whether a defense that is switched on acts at this hook."""
        return any(hook in d.hooks for d in self.defenses)

    def cross(
        self,
        hook: Hook,
        value: T,
        call: Callable[[Defense, T], Any],
        picture: Callable[[T], Any],
        compare: Callable[[str, Hook, Any, Any], Effect],
        restore: Callable[[Any, T], T],
        blocked: Callable[[str], T],
    ) -> Steps[T]:
        """Runs the defenses at one hook, in order, on ``value``."""
        for defense in self.defenses:
            if hook not in defense.hooks:
                continue
            before, given = picture(value), value
            try:
                value, effect = yield from run_hook(
                    defense,
                    hook,
                    partial(call, defense, given),
                    lambda after, name=defense.name, was=before: compare(name, hook, was, picture(after)),  # type: ignore[misc]
                    partial(restore, before, given),
                    blocked,
                )
            except DefenseFailedError as failed:
                self.effects.append(failed.effect)
                raise
            effect.buffered = hook == "response" and self._buffers
            self.effects.append(effect)
        return value


class Retrieval(_Stage):
    """Query in, documents out."""

    stage: Stage = "retrieval"

    def __init__(self, recorder: Recorder, scope: Scope, name: str, subject: object = None) -> None:
        super().__init__(recorder, scope, name, subject)
        self.asked = ""
        self.found: list[Document] | None = None

    def query(self, query: str) -> Steps[str]:
        """Runs the ``query`` hook; returns the query to retrieve with."""
        self.asked = query
        if not self.nested and self.scope.query is None:
            self.scope.query = query
        self._text(a.RETRIEVAL_QUERY, query)
        sent = yield from self.cross(
            "query", query, lambda d, q: d.on_query(q), str, effects.text_effect, lambda before, _: before, lambda _: ""
        )
        if sent != query:
            self._text(a.QUERY_SENT, sent)
        return sent

    def documents(self, documents: list[Document], k: int | None = None) -> Steps[list[Document]]:
        """Runs the ``retrieval`` and ``content`` hooks; returns the documents for the app, at most ``k``."""
        acting = self.has("retrieval") or self.has("content")
        before = effects.seen(documents) if acting else []
        self._write(a.RETRIEVAL_DOCUMENTS, describe.retrieved, documents)
        if acting:
            if k is not None:
                self.span.set_attribute(a.POOL, len(documents))
            documents = yield from self._cross("retrieval", documents, lambda d, v: d.on_retrieval(self.asked, v), k)
            documents = yield from self._cross("content", documents, lambda d, v: d.on_content(self.asked, v), None)
            self._write(a.AFTER_DEFENSE, describe.after_defense, before, documents)
        if not self.nested:
            self.scope.remember(documents)
            self.scope.retrieved_at = time.time_ns()
        return documents

    def _write(self, attribute: str, rows: Callable[..., list[dict[str, Any]]], *documents: Any) -> None:
        if self.recording:
            with recording:
                self.span.set_attribute(attribute, dumps(rows(*documents, self.recorder.capture, self.losses)))

    def _cross(
        self, hook: Hook, documents: list[Document], call: Callable[[Defense, list[Document]], Any], k: int | None
    ) -> Steps[list[Document]]:
        kept = yield from self.cross(
            hook, documents, lambda d, v: call(d, list(v)), _copies, _compared, lambda before, _: before, lambda _: []
        )
        return kept if k is None else kept[:k]

    def _finish(self) -> None:
        self.span.set_attribute(a.OPERATION, "retrieval")


def _copies(documents: list[Document]) -> list[Document]:
    return [replace(d, metadata=dict(d.metadata)) for d in documents]


def _compared(name: str, hook: Hook, before: list[Document], after: list[Document]) -> Effect:
    return effects.documents_effect(name, hook, effects.seen(before), effects.seen(after))


class Generation(_Stage):
    """Messages in, text out. Writes the context stage's span on the way."""

    stage: Stage = "generation"

    def __init__(
        self, recorder: Recorder, scope: Scope, name: str, operation: str = "chat", subject: object = None
    ) -> None:
        super().__init__(recorder, scope, name, subject)
        self.asked = ""
        if self.recording:
            self.span.set_attribute(a.OPERATION, operation)

    def prompt(self, messages: list[Message]) -> Steps[list[Message]]:
        """Runs the ``prompt`` hook; returns the messages for the model."""
        if self.recording and self.scope.documents and not self.nested:
            with recording:
                self._context_stage(messages)
        given = messages
        if (query := self.scope.query) is None:
            query = next((m.content for m in reversed(given) if m.role == "user"), "")
        self.asked = query
        messages = yield from self.cross(
            "prompt",
            messages,
            lambda d, v: d.on_prompt([replace(m) for m in v]),
            effects.pairs,
            effects.messages_effect,
            lambda _, v: v,
            lambda name: [Message(m.role, withheld(name)) for m in given],
        )
        if self.recording:
            with recording:
                self.span.set_attribute(a.INPUT_MESSAGES, dumps(describe.messages(messages, self.recorder.capture)))
            self._text(a.QUERY, query)
        return messages

    def response(self, text: str) -> Steps[str]:
        """Runs the ``response`` hook; returns the text for the app."""
        documents = self.scope.documents
        if self.recording and self._buffers and self.has("response"):
            self.span.set_attribute(a.BUFFERED, True)
        return (
            yield from self.cross(
                "response",
                text,
                lambda d, v: d.on_response(self.asked, _copies(documents), v),
                str,
                effects.text_effect,
                lambda before, _: before,
                withheld,
            )
        )

    def measured(
        self, logprobs: Sequence[float], input_tokens: int | None, output_tokens: int | None, model: str | None
    ) -> None:
        """Writes the mean and count of the response's token log-probabilities (natural log), and the usage."""
        if not self.recording:
            return
        if logprobs:
            self.span.set_attribute(a.MEAN_LOGPROB, sum(logprobs) / len(logprobs))
            self.span.set_attribute(a.LOGPROB_TOKENS, len(logprobs))
        told = {a.INPUT_TOKENS: input_tokens, a.OUTPUT_TOKENS: output_tokens, a.RESPONSE_MODEL: model}
        for name, value in told.items():
            if isinstance(value, int | str):
                self.span.set_attribute(name, value)

    def delivered(self, texts: Sequence[str], finish_reason: str | None = None) -> None:
        """Writes what the app really got, once; of a stream that was abandoned, the part that was delivered."""
        if not self.recording:
            return
        if texts and not self.nested:
            self.scope.answer = texts[0]
        rows = describe.messages([Message("assistant", text) for text in texts], self.recorder.capture)
        if finish_reason is not None:
            rows = [row | {"finish_reason": finish_reason} for row in rows]
        self.span.set_attribute(a.OUTPUT_MESSAGES, dumps(rows))
        if texts and (hash := self.recorder.capture.digest(texts[0])) is not None:
            self.span.set_attribute(a.RESPONSE_HASH, hash)

    def _context_stage(self, messages: list[Message]) -> None:
        documents = self.scope.documents
        rows = describe.in_prompt(documents, "\n".join(m.content for m in messages))
        for row in rows:
            document = documents[row["of"]]
            piece = document.content[row["start"] : row["start"] + row["run"]]
            if (hash := self.recorder.capture.digest(piece)) is not None:
                row["hash"] = hash
            if not row["whole"] and (text := self.recorder.capture.text(piece)) is not None:
                row["content"] = text  # a whole one is found again by its hash
        since = self.scope.retrieved_at or None
        span = self.recorder.start("context", SpanKind.INTERNAL, self.scope, self.outer, since)
        span.set_attributes({a.STAGE: "context", a.IN_PROMPT: dumps(rows)})
        span.end()
