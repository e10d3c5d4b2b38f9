"""What ``with ragtrace.retrieval(…) as stage`` gives the app: stages that are open, and who records them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.trace import NoOpTracer, SpanKind

from ragtrace.record import attributes as a
from ragtrace.record import duck
from ragtrace.record.capture import Capture
from ragtrace.record.first_token import ranked
from ragtrace.record.hooks import Generation, Recorder, Request, Retrieval
from ragtrace.record.scope import Scope, current, put_back
from ragtrace.record.spans import Part
from ragtrace.record.steps import Steps, adrive, drive, internal_error, recording
from ragtrace.types import Message, Path

V = TypeVar("V")
Given = TypeVar("Given")
P = TypeVar("P", bound=Part)
H = TypeVar("H", bound="Handle[Any]")

# who records

_set_up: tuple[Recorder, ...] = ()  # by each setup() that is on, the oldest first
_default: tuple[Any, Recorder] | None = None  # of an app without setup(): its provider, and the recorder for that
_silent = Recorder(NoOpTracer(), "none", Capture("none"))
_over = False


def begin(recorder: Recorder) -> None:
    """What ``setup()`` has made records from now on."""
    global _set_up
    _set_up = (*_set_up, recorder)


def finish(recorder: Recorder) -> None:
    """It records no more; after the last one nothing does, until ``setup()`` is called again."""
    global _set_up, _over
    _set_up, _over = tuple(r for r in _set_up if r is not recorder), True


def recorder() -> Recorder:
    """Who records here: the one of ``setup()``, or else one for the global tracer provider."""
    global _default
    if _set_up:
        return _set_up[0]
    if _over:
        return _silent
    provider, known = trace.get_tracer_provider(), _default
    if known is None or known[0] is not provider:
        _default = known = (provider, Recorder(provider.get_tracer(a.SCOPE), "none", Capture()))
    return known[1]


def _of(framework: Recorder) -> Recorder:
    """For a stage without a framework inside a framework's request: it goes where that goes."""
    return framework if framework.framework == "none" else Recorder(framework.tracer, "none", framework.capture)


# what a `with` opens


class Handle(Generic[P]):
    """One ``with``: the request, where there was none, and the stage in it. ``scope`` is that of a request to open."""

    def __init__(
        self, path: Path, name: str, make: Callable[[Recorder, Scope], P] | None = None, scope: Scope | None = None
    ) -> None:
        self._part: P | None = None
        self._entered: list[tuple[Part, Any]] = []
        try:
            here = current()
            if scope is not None and scope.over:  # a stream that is read after the request that it was called in
                here = scope
            if isinstance(here, Scope):
                by = _of(here.recorder)
            else:
                by = recorder()
                here = scope or by.scope(path)
                self._into(Request(by, here, name))
            if make is not None:
                self._part = make(by, here)
                self._into(self._part)
        except Exception:
            internal_error()

    def _into(self, part: Part) -> None:
        self._entered.append((part, otel.attach(part.context)))

    def _first(self) -> Steps[None]:
        """What a stage does when it is entered."""
        yield from ()

    def _write(self, error: BaseException | None) -> None:
        """What a stage writes at its end."""

    def _lose(self, sentence: str) -> None:
        if self._part is not None:
            self._part.losses.append(sentence)


def enter(handle: H) -> H:
    """The stage, ready for use."""
    try:
        drive(handle._first(), None)
    except BaseException as error:  # of a defense that is told to raise
        leave(handle, error)
        raise
    return handle


async def aenter(handle: H) -> H:
    """:func:`enter` with async hooks."""
    try:
        await adrive(handle._first(), None)
    except BaseException as error:
        leave(handle, error)
        raise
    return handle


def suspend(handle: Handle[Any]) -> None:
    """Gives the caller its own context back. The stage stays open; its part's ``context`` is to be used instead."""
    for _, token in reversed(handle._entered):
        _detach(token)
    handle._entered = [(part, None) for part, _ in handle._entered]


def leave(handle: Handle[Any], error: BaseException | None) -> None:
    """Ends what the handle has opened. Never raises."""
    with recording:
        handle._write(error)
    while handle._entered:
        part, token = handle._entered.pop()
        _detach(token)
        part.end(error)
        part.recording = False  # the app may go on using it: defenses act, nothing is written


def _detach(token: Any) -> None:
    if token is not None:
        put_back(token)


class _Retrieved(Handle[Retrieval]):
    """A retrieval stage that is open."""

    def __init__(self, path: Path, name: str, query: Any) -> None:
        super().__init__(path, name, lambda by, scope: Retrieval(by, scope, name))
        self.query = query
        """The query to search with: after the ``query`` hook."""
        self._calls = 0

    def _first(self) -> Steps[None]:
        if not isinstance(self.query, str):
            self._lose(f"the query is {type(self.query).__name__}, expected a str: the query hook was not crossed")
        elif self._part is not None:
            self.query = yield from self._part.query(self.query)

    def _found(self, found: Any) -> Steps[Any]:
        self._calls += 1
        if (part := self._part) is None:
            return found
        if self._calls == 2:
            self._lose("documents() was called more than once: only the last documents are in this span")
        key = part.recorder.capture.key
        try:
            ours = duck.documents(found, key)
        except duck.UnreadableError as odd:
            self._lose(str(odd))
            return found
        kept = yield from part.documents(ours)
        return found if kept is ours else duck.documents_back(found, duck.documents(found, key), kept)

    def _write(self, error: BaseException | None) -> None:
        if not self._calls and error is None:
            self._lose("documents() was not called: the retrieval and content hooks were not crossed")


class RetrievalStage(_Retrieved):
    """``with ragtrace.retrieval(query) as stage``."""

    def documents(self, found: V) -> V:
        """Runs the ``retrieval`` and ``content`` hooks on what the search found; returns what to go on with.

        Each call runs them; the span keeps the documents of the last one, so give each search a stage of its own.
        """
        kept: V = drive(self._found(found), found)
        return kept


class AsyncRetrievalStage(_Retrieved):
    """``async with ragtrace.retrieval(query) as stage``."""

    async def documents(self, found: V) -> V:
        """:meth:`RetrievalStage.documents`, with async hooks."""
        return await adrive(self._found(found), found)


class _Streaming(Generation):
    """The stage of a stream, whoever reads it."""

    @property
    def _buffers(self) -> bool:
        return True


class _Generated(Handle[Generation], Generic[Given]):
    """A generation stage that is open."""

    def __init__(self, path: Path, name: str, model: str | None, given: Given, scope: Scope | None = None) -> None:
        kind = _Streaming if path in ("stream", "astream") else Generation

        def make(by: Recorder, scope: Scope) -> Generation:
            made = kind(by, scope, model or name)
            if model and made.recording:
                made.span.set_attribute(a.REQUEST_MODEL, model)
            return made

        super().__init__(path, name, make, scope)
        self.prompt: Given = given
        """The prompt or messages for the model, in the form they came: after the ``prompt`` hook."""
        self._texts: list[str] = []
        self._calls = 0

    @property
    def messages(self) -> Given:
        """The same as ``prompt``, by the name that fits a list."""
        return self.prompt

    def measured(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        logprobs: Sequence[float] = (),
        model: str | None = None,
        first_token: Sequence[tuple[str, float]] = (),
    ) -> None:
        """Notes the model's own figures: ``logprobs`` are the natural logarithms of the response's tokens, and
        ``first_token`` the candidates for the first of them with theirs, which only audits keep."""
        with recording:
            if self._part is not None:
                self._part.measured(logprobs, input_tokens, output_tokens, model, ranked(first_token))

    def _first(self) -> Steps[None]:
        if (part := self._part) is None:
            return
        given: Any = self.prompt
        try:
            ours = [Message("user", given)] if isinstance(given, str) else duck.messages(given)
        except duck.UnreadableError as odd:
            self._lose(f"{odd}: the prompt hook was not crossed")
            return
        kept = yield from part.prompt(ours)
        if kept is ours:
            return
        if not isinstance(given, str):
            self.prompt = duck.messages_back(given, kept)
        elif (text := "\n\n".join(m.content for m in kept)) != given:
            self.prompt = cast("Given", text)

    def _answered(self, answer: Any) -> Steps[Any]:
        self._calls += 1
        if (part := self._part) is None:
            return answer
        if (text := duck.text(answer)) is None:
            self._lose(f"response() got {type(answer).__name__}, expected a str; it is not recorded")
            return answer
        kept = yield from part.response(text)
        self._texts.append(kept)
        return answer if kept == text else duck.with_text(answer, text, kept)

    def _write(self, error: BaseException | None) -> None:
        if self._part is not None and self._texts:
            self._part.delivered(self._texts)
        elif not self._calls and error is None:
            self._lose("response() was not called: the response hook was not crossed")


class GenerationStage(_Generated[Given]):
    """``with ragtrace.generation(prompt) as stage``."""

    def response(self, answer: V) -> V:
        """Runs the ``response`` hook on the model's text; returns what to go on with.

        Called again, it takes another answer of the same model call.
        """
        kept: V = drive(self._answered(answer), answer)
        return kept


class AsyncGenerationStage(_Generated[Given]):
    """``async with ragtrace.generation(prompt) as stage``."""

    async def response(self, answer: V) -> V:
        """:meth:`GenerationStage.response`, with async hooks."""
        return await adrive(self._answered(answer), answer)


class ContextStage(Handle[Part]):
    """``with ragtrace.context()``: where the prompt is made.

    The generation stage writes what of the documents stands in its prompt, as the context stage's span, with the times
    of this block. Where none can (there are no documents, or making the prompt failed) the span is written here.
    """

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._since = time.time_ns()
        self._scope = current()

    def _write(self, error: BaseException | None) -> None:
        if not isinstance(self._scope, Scope):
            return
        self._scope.assembled = (self._since, time.time_ns())
        if error is not None or not self._scope.documents:
            by = _of(self._scope.recorder)
            span = by.start("context", SpanKind.INTERNAL, self._scope, None, self._since)
            span.set_attribute(a.STAGE, "context")
            Part(by, self._scope, span).end(error)
