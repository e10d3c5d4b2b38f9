"""Models: the prompt and response hooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.structured_llm import StructuredLLM

from ragtrace.record import attributes as a
from ragtrace.record.first_token import Candidates
from ragtrace.record.hooks import Generation, Recorder
from ragtrace.record.providers import provider_of
from ragtrace.record.scope import Scope, current, inside_of
from ragtrace.record.spans import failed
from ragtrace.record.steps import Steps, adrive, drive, internal_error, recording
from ragtrace.types import Message
from ragtrace_llama_index import translate
from ragtrace_llama_index.contexts import cause, within
from ragtrace_llama_index.following import abegun, begun
from ragtrace_llama_index.measure import first_token, measures
from ragtrace_llama_index.notices import Notices


class Generating:
    """Runs one model call as the generation stage. A model's methods call each other: together they are one call."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def whole(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``chat(messages, **kwargs)``, ``complete(prompt, formatted=False, **kwargs)``."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call.working():
            args, kwargs = drive(call.sent(), (args, kwargs))
            response = wrapped(*args, **kwargs)
            return drive(call.answered(response), response)

    async def awhole(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``achat``, ``acomplete``."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call.working():
            args, kwargs = await adrive(call.sent(), (args, kwargs))
            response = await wrapped(*args, **kwargs)
            return await adrive(call.answered(response), response)

    def stream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``stream_chat``, ``stream_complete``.

        A response defense reads the whole answer first, so that no token leaves early; it comes as one chunk.
        """
        call = self._call(instance, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call.opening():
            args, kwargs = drive(call.sent(), (args, kwargs))
            chunks = wrapped(*args, **kwargs)
            if not isinstance(chunks, Iterator):
                return call.odd(chunks)
            if call.stage.has("response"):
                return begun(call, call.one_chunk(chunks))
            return begun(call, chunks, call.heard)

    async def astream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``astream_chat``, ``astream_complete``."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call.opening():
            args, kwargs = await adrive(call.sent(), (args, kwargs))
            chunks = await wrapped(*args, **kwargs)
            if not isinstance(chunks, AsyncIterator):
                return call.odd(chunks)
            if call.stage.has("response"):
                return abegun(call, call.aone_chunk(chunks))
            return abegun(call, chunks, call.heard)

    def _call(self, instance: Any, args: Any, kwargs: Any) -> _Call | None:
        """``None`` where the call passes: inside another method of the same model, or in one that only hands on."""
        try:
            scope = current()
            if not isinstance(scope, Scope) or isinstance(instance, StructuredLLM) or inside_of(instance):
                return None
            given = args[0] if args else kwargs.get("messages", kwargs.get("prompt"))
            model = _model(instance)
            operation = "text_completion" if isinstance(given, str) else "chat"
            stage = Generation(self.recorder, scope, model, operation, instance, provider_of(instance))
            if stage.recording:
                stage.span.set_attribute(a.REQUEST_MODEL, model)
            return _Call(stage, args, kwargs, given)
        except Exception:
            internal_error()
            return None


def _model(instance: Any) -> str:
    for name in ("model", "model_name"):
        if isinstance(found := getattr(instance, name, None), str) and found:
            return found
    try:
        found = instance.metadata.model_name
    except Exception:  # some look the name up in a table of the provider's own models
        found = None
    return found if isinstance(found, str) and found not in ("", "unknown") else type(instance).__name__


class _Call:
    """One call of one model. As a part of :func:`begun` it ends with the stream, with what was delivered."""

    def __init__(self, stage: Generation, args: Any, kwargs: Any, given: Any) -> None:
        self.stage = stage
        self.args, self.kwargs, self.given = args, kwargs, given
        self.notices = Notices() if stage.has("response") else None
        if self.notices is not None:
            stage.context = self.notices.heard_in(stage.context)
        self.context = stage.context
        self.last: translate.Response | None = None
        self.deltas: list[str] = []
        self.answer: str | None = None
        self.logprobs: list[float] = []
        self.first_token: Candidates = []
        self.told: dict[str, Any] = {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Runs a call that gives its answer whole."""
        error: BaseException | None = None
        try:
            with within(self.context), self._releasing():
                yield
        except BaseException as raised:
            error = cause(raised)
            raise
        finally:
            self.end(error)
            del error  # its traceback holds this frame

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Runs the start of a stream, which ends the stage only where it fails."""
        self.stage.span.set_attribute(a.REQUEST_STREAM, True)
        self.stage.scope.streaming.append(self)
        try:
            with within(self.context):
                yield
        except BaseException as error:
            self.end(cause(error))
            raise

    @contextmanager
    def _releasing(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self.notices is not None:
                self.notices.release()

    def sent(self) -> Steps[Any]:
        """The arguments for the model, after the ``prompt`` hook."""
        given = self.given
        if isinstance(given, str):
            kept: Any = yield from self.stage.prompt([Message("user", given)])
            text = "\n\n".join(m.content for m in kept)
            return self._with(text) if text != given else (self.args, self.kwargs)
        if not isinstance(given, list | tuple) or not all(isinstance(m, ChatMessage) for m in given):
            self.stage.losses.append(f"the model was given {_kind(given)}, expected messages; they are not recorded")
            return self.args, self.kwargs
        ours = translate.messages(given)
        kept = yield from self.stage.prompt(ours)
        return (self.args, self.kwargs) if kept is ours else self._with(translate.messages_back(given, kept))

    def _with(self, value: Any) -> Any:
        if self.args:
            return (value, *self.args[1:]), self.kwargs
        return (), self.kwargs | {"messages" if "messages" in self.kwargs else "prompt": value}

    def answered(self, response: Any) -> Steps[Any]:
        """The response for the app."""
        if not isinstance(response, translate.Response):
            self.stage.losses.append(f"the model returned {_kind(response)}, expected a response; it is not recorded")
            return response
        if self.last is None:
            self.heard(response)
        text = translate.text_of(response)
        self.answer = yield from self.stage.response(text)
        if self.notices is not None:
            self.notices.answer = self.answer if self.answer != text else None
            self.notices.defended = True
        return response if self.answer == text else translate.response_with_text(response, self.answer)

    def one_chunk(self, chunks: Iterator[Any]) -> Iterator[Any]:
        """The whole stream as one chunk. What is no response cannot be defended, and passes."""
        with self._releasing():
            for chunk in chunks:
                if not self.heard(chunk):
                    yield chunk
            if (whole := self._whole()) is not None:
                whole = drive(self.answered(whole), whole)
        if whole is not None:
            yield translate.as_chunk(whole)

    async def aone_chunk(self, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """:meth:`one_chunk` for async streams."""
        with self._releasing():
            async for chunk in chunks:
                if not self.heard(chunk):
                    yield chunk
            if (whole := self._whole()) is not None:
                whole = await adrive(self.answered(whole), whole)
        if whole is not None:
            yield translate.as_chunk(whole)

    def _whole(self) -> translate.Response | None:
        """The last chunk, which holds all that came before it; its text is made of what was streamed."""
        last, text = self.last, "".join(self.deltas)
        if last is None or not text or translate.text_of(last) == text:
            return last
        return translate.response_with_text(last, text)

    def odd(self, chunks: Any) -> Any:
        """What a model gave that is no stream."""
        self.stage.losses.append(f"the model returned {_kind(chunks)}, expected a stream; it is not recorded")
        self.end()
        return chunks

    def heard(self, response: Any) -> bool:
        """Notes what passes; ``False`` for what is no response."""
        if not isinstance(response, translate.Response):
            self.stage.losses.append(f"the model gave {_kind(response)}, expected a response; it is not recorded")
            return False
        self.last = response
        self.deltas.append(response.delta or "")
        if response.raw is not None or response.logprobs or response.additional_kwargs:
            with recording:
                measured = measures(response)
                self.logprobs += measured.logprobs
                self.told |= {k: v for k, v in measured._asdict().items() if v is not None}
                if not self.first_token and self.stage.probed:
                    self.first_token = first_token(response)
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Ends the stage, once, with what was delivered."""
        if self.stage.ended:
            return
        text = self.answer
        if text is None and self.last is not None and self.notices is None:
            text = "".join(self.deltas) or translate.text_of(self.last)
        if text is not None:
            with recording:
                told = self.told
                counts = told.get("input_tokens"), told.get("output_tokens")
                self.stage.measured(self.logprobs, *counts, told.get("model"), self.first_token)
                reason = told.get("finish_reason") if error is None else "error" if failed(error) else None
                self.stage.delivered([text], reason)
        if self in self.stage.scope.streaming:
            self.stage.scope.streaming.remove(self)
        self.stage.end(error)
        self.context = self.stage.context

    stop = end


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
