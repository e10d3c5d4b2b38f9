"""Parts that a framework or the app brings and that may protect data: observed as they run, never changed.

Compressors, re-rankers, postprocessors, middleware: an adapter's wrap shows what such a part was given and what it
gave back. The effect carries the class of the part as the defense's name.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry import context as otel
from opentelemetry.trace import SpanKind

from ragtrace.record import attributes as a
from ragtrace.record import describe, effects, guard, pictures
from ragtrace.record.capture import dumps
from ragtrace.record.effects import Effect
from ragtrace.record.hooks import Retrieval
from ragtrace.record.observe import beside
from ragtrace.record.scope import IN_DEFENSE, STAGE_KEY, Scope, current, inside, inside_of, put_back
from ragtrace.record.spans import Part, Recorder
from ragtrace.record.steps import internal_error, recording
from ragtrace.types import Document, Hook


class Parts:
    """Observes the parts of one framework."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def documents(self, instance: Any, given: Any, call: Callable[[], Any]) -> Any:
        """Runs ``call``, which turns the documents ``given`` into others: at ``retrieval`` or ``content``."""
        run = self._begun(instance, given)
        if run is None:
            return call()
        with run:
            return run.done(call())

    async def adocuments(self, instance: Any, given: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        """:meth:`documents` for async parts."""
        run = self._begun(instance, given)
        if run is None:
            return await call()
        with run:
            return run.done(await call())

    def text(self, instance: Any, hook: Hook, before: Any, after: Any, error: BaseException | None = None) -> None:
        """Records what a part made of a text, or of messages as pairs of role and text. Never raises."""
        with recording:
            scope = current()
            if not isinstance(scope, Scope) or before is None:
                return
            name = type(instance).__name__
            if isinstance(before, str):
                effect = effects.text_effect(name, hook, before, after)
            else:
                effect = effects.messages_effect(name, hook, before, after)
            effect.part = True
            effect.given, effect.said = pictures.joined(before), pictures.joined(after)
            if error is not None:
                effect.status, effect.error = "error", type(error).__name__
            scope.met(effect, effect.given)
            scope.keep(effect)

    def _begun(self, instance: Any, given: Any) -> _Run | _Beside | None:
        try:
            if inside() is IN_DEFENSE or inside_of(instance) or not isinstance(given, list | tuple):
                return None
            key, scope = self.recorder.capture.key, current()
            measured = _Measured(type(instance).__name__, pictures.Documents(given, key=key), key)
            return (
                _Run(self.recorder, scope, measured, instance)
                if isinstance(scope, Scope)
                else _Beside(measured, instance)
            )
        except Exception:
            internal_error()
            return None


class _Measured:
    """What one part was given, and when."""

    def __init__(self, name: str, before: pictures.Documents, key: bytes) -> None:
        self.name, self.before, self.key = name, before, key
        self.started = time.perf_counter_ns()

    def after(self, result: Any) -> pictures.Documents:
        """A picture of what it gave back."""
        return pictures.Documents(result, self.before, self.key)

    def effect(self, after: pictures.Documents, error: BaseException | None = None) -> Effect:
        """Before and after, compared."""
        sides = (effects.seen(side.documents) for side in (self.before, after))
        effect = effects.documents_effect(self.name, None, *sides)
        effect.part = True
        effect.duration_us = (time.perf_counter_ns() - self.started) // 1_000
        if effect.status == "changed":
            effect.hook = "content" if effect.text_changed or effect.metadata_changed else "retrieval"
        if error is not None:
            effect.status, effect.error = "error", type(error).__name__
        return effect


class _Beside:
    """A part that the app calls outside any request, on what an earlier one returned."""

    def __init__(self, measured: _Measured, subject: Any) -> None:
        self.measured = measured
        self.subject = subject

    def done(self, result: Any) -> Any:
        """Records what the part made of the documents; returns ``result``."""
        with recording:
            beside(self.measured.effect(self.measured.after(result)), self.measured.before)
        return result

    def __enter__(self) -> None:
        self._token = otel.attach(otel.set_value(STAGE_KEY, self))

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        put_back(self._token)
        if isinstance(error, Exception):
            with recording:
                beside(self.measured.effect(self.measured.before, error), self.measured.before)


class _Run(Part):
    """One run of a part inside a request: a span of its own."""

    def __init__(self, recorder: Recorder, scope: Scope, measured: _Measured, subject: Any) -> None:
        super().__init__(recorder, scope, recorder.start(f"defense {measured.name}", SpanKind.INTERNAL, scope))
        self.measured = measured
        self.subject = subject
        self.within = inside()
        self.crossing = getattr(self.within, "crossing", None)
        self.context = guard.current(self.span, recorder.capture, self.losses, otel.set_value(STAGE_KEY, self))
        self.stage = self._stage()
        if self.stage is not None and self.stage.before is None:
            self.stage.before = measured.before.documents
        if self.recording:
            self.span.set_attribute(a.STAGE, "defense")

    def _stage(self) -> Retrieval | None:
        """The retrieval stage that this part runs in: it writes the documents, before and after all its parts."""
        stage = self.within
        while isinstance(stage, _Run):
            stage = stage.within
        return stage if isinstance(stage, Retrieval) else None

    def done(self, result: Any) -> Any:
        """Records what the part made of the documents; returns ``result``."""
        with recording:
            after = self.measured.after(result)
            self._keep(self.measured.effect(after))
            if self.stage is not None:
                self.stage.parts = after.documents
            else:
                if self.recording:
                    self._write(after.documents)
                self.scope.replace(self.measured.before.documents, after.documents)
        return result

    def _keep(self, effect: Effect) -> None:
        if self.crossing is not None:
            effect.spans = [self.crossing.span_id]
        else:
            self.scope.met(effect, self.measured.before)
        self.effects.append(effect)

    def _write(self, documents: list[Document]) -> None:
        """The documents as this part left them; a text that the trace holds already is found again by its hash."""
        rows = describe.retrieved(documents, self.recorder.capture.side("documents"), self.losses)
        held = {d.content for d in self.scope.documents}
        for row, document in zip(rows, documents, strict=True):
            row.pop("metadata", None)
            if document.content in held:
                row.pop("content", None)
        self.span.set_attribute(a.AFTER_DEFENSE, dumps(rows))
        self._tell({"content": [d.content for d in documents]}, {})

    def end(self, error: BaseException | None = None) -> None:
        """Ends the run."""
        if isinstance(error, Exception) and not self.ended:
            with recording:
                self._keep(self.measured.effect(self.measured.before, error))
        super().end(error)
