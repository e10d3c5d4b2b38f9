"""Chat models, and the streams of all models: the prompt and response hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatResult

from ragtrace.record import attributes as a
from ragtrace.record.first_token import Candidates
from ragtrace.record.hooks import Generation, Recorder
from ragtrace.record.providers import provider_of
from ragtrace.record.scope import attached, current, inside
from ragtrace.record.spans import failed
from ragtrace.record.steps import Steps, adrive, drive, internal_error, recording
from ragtrace.record.streaming import astepwise, stepwise
from ragtrace.types import Message
from ragtrace_langchain import translate
from ragtrace_langchain.requests import Requests


class Generating:
    """Runs one model call as the generation stage."""

    def __init__(self, recorder: Recorder, requests: Requests) -> None:
        self.recorder = recorder
        self.requests = requests

    def chat(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_generate_with_cache(messages, stop, run_manager, **kwargs)``: every call that is not streamed."""
        with self.requests.enter("invoke", instance, kwargs.get("run_manager")):
            stage, messages, rest = self._chat_stage(instance, args, kwargs)
            if stage is None:
                return wrapped(*args, **kwargs)
            with stage:
                messages = drive(sent(stage, messages), messages)
                _listen(stage, rest)
                result = wrapped(messages, **rest)
                return drive(_answered(stage, result), result)

    async def achat(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_agenerate_with_cache``."""
        with self.requests.enter("ainvoke", instance, kwargs.get("run_manager")):
            stage, messages, rest = self._chat_stage(instance, args, kwargs)
            if stage is None:
                return await wrapped(*args, **kwargs)
            with stage:
                messages = await adrive(sent(stage, messages), messages)
                _listen(stage, rest)
                result = await wrapped(messages, **rest)
                return await adrive(_answered(stage, result), result)

    def _chat_stage(self, instance: Any, args: Any, kwargs: Any) -> Any:
        try:
            rest = dict(zip(("stop", "run_manager"), args[1:], strict=False)) | kwargs
            messages = args[0] if args else rest.pop("messages")
            return self.stage(instance, "chat"), messages, rest
        except Exception:
            internal_error()
            return None, None, None

    def stage(self, instance: Any, operation: str) -> Generation:
        """The generation stage of a call made here and now."""
        scope = current()
        if scope is None:
            raise LookupError("no request is open here")
        names = ("model_name", "model", "model_id")
        model = next((v for n in names if isinstance(v := getattr(instance, n, None), str)), type(instance).__name__)
        stage = Generation(self.recorder, scope, model, operation, provider=provider_of(instance))
        stage.span.set_attribute(a.REQUEST_MODEL, model)
        return stage

    # streams

    def stream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``stream(input, config=None, *, stop=None, **kwargs)``."""
        return self.requests.stream(self._streaming(wrapped, instance), instance, args, kwargs)

    def astream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``astream(input, config=None, *, stop=None, **kwargs)``."""
        return self.requests.astream(self._astreaming(wrapped, instance), instance, args, kwargs)

    def _streaming(self, wrapped: Any, instance: Any, retry: bool = True) -> Any:
        def stream(*args: Any, **kwargs: Any) -> Any:
            """A response defense reads the whole answer first: then the model is not asked to stream at all, so that no
            token leaves early by any way, callbacks included. The answer comes as one chunk."""
            if current() is None and retry:  # made in a request, read after it
                yield from self.requests.stream(self._streaming(wrapped, instance, False), instance, args, kwargs)
            elif (way := self._way(instance, False, kwargs)) == "whole":
                yield _chunk(instance.invoke(*args, **kwargs))
            elif way == "plain" or (part := Streamed.opened(self, instance)) is None:
                yield from wrapped(*args, **kwargs)
            else:
                with part.prepared():
                    args, kwargs = drive(part.sent(args, kwargs), (args, kwargs))
                for chunk in stepwise(lambda: part, wrapped(*args, **kwargs)):
                    part.heard(chunk)
                    yield chunk

        return stream

    def _astreaming(self, wrapped: Any, instance: Any, retry: bool = True) -> Any:
        async def astream(*args: Any, **kwargs: Any) -> Any:
            if current() is None and retry:
                stream = self.requests.astream(self._astreaming(wrapped, instance, False), instance, args, kwargs)
                async for chunk in stream:
                    yield chunk
            elif (way := self._way(instance, True, kwargs)) == "whole":
                yield _chunk(await instance.ainvoke(*args, **kwargs))
            elif way == "plain" or (part := Streamed.opened(self, instance)) is None:
                async for chunk in wrapped(*args, **kwargs):
                    yield chunk
            else:
                with part.prepared():
                    args, kwargs = await adrive(part.sent(args, kwargs), (args, kwargs))
                async for chunk in astepwise(lambda: part, wrapped(*args, **kwargs)):
                    part.heard(chunk)
                    yield chunk

        return astream

    def defended(self) -> bool:
        """Whether a response defense must see the whole answer of a call made here."""
        scope = current()
        return scope is not None and inside() is None and any("response" in d.hooks for d in scope.switched_on())

    def _way(self, instance: Any, is_async: bool, kwargs: dict[str, Any]) -> str:
        """``plain`` where the framework falls back to ``invoke`` by itself, ``whole`` where a defense reads it all."""
        try:
            if current() is None or not _streams(instance, is_async, kwargs):
                return "plain"
            return "whole" if self.defended() else "steps"
        except Exception:
            internal_error()
            return "plain"


def muted(manager: Any) -> Any:
    """The same run, heard by nobody."""
    return type(manager)(
        run_id=manager.run_id, handlers=[], inheritable_handlers=[], parent_run_id=manager.parent_run_id
    )


def sent(stage: Generation, messages: list[BaseMessage]) -> Steps[list[BaseMessage]]:
    """Runs the ``prompt`` hook on a chat model's messages."""
    ours = translate.messages(messages)
    kept = yield from stage.prompt(ours)
    return messages if kept is ours else translate.messages_back(messages, kept)


def sent_text(stage: Generation, prompt: str) -> Steps[str]:
    """Runs the ``prompt`` hook on a text model's prompt."""
    kept = yield from stage.prompt([Message("user", prompt)])
    return "\n\n".join(m.content for m in kept)


def _listen(stage: Generation, rest: dict[str, Any]) -> None:
    """Mutes the run where a response defense must see the text before any callback does; else notes what they hear."""
    if (manager := rest.get("run_manager")) is None:
        return
    if stage.has("response"):
        rest["run_manager"] = muted(manager)
    elif stage.recording and manager.handlers:
        rest["run_manager"] = noted = copy(manager)

        def on_llm_new_token(token: str, *, chunk: Any = None, **kwargs: Any) -> Any:
            with recording:
                stage.heard.append(str(chunk.text if chunk is not None else token))
            return manager.on_llm_new_token(token, chunk=chunk, **kwargs)

        def on_stream_event(event: Any, **kwargs: Any) -> Any:
            with recording:
                stage.heard.append(delta(event))
            return manager.on_stream_event(event, **kwargs)

        noted.on_llm_new_token, noted.on_stream_event = on_llm_new_token, on_stream_event


def _answered(stage: Generation, result: ChatResult) -> Steps[ChatResult]:
    kept: list[Any] = []
    for generation in result.generations:
        text = str(generation.message.text)
        answer = yield from stage.response(text)
        kept.append(generation if answer == text else translate.generation_with_text(generation, answer))
    if result.generations:
        with recording:
            first = result.generations[0]
            _measure(stage, first.message, first.generation_info, result.llm_output)
            stage.delivered([str(g.message.text) for g in kept], _finish_reason(first.message.response_metadata))
    if all(old is new for old, new in zip(result.generations, kept, strict=True)):
        return result
    return ChatResult(generations=kept, llm_output=translate.without_logprobs(result.llm_output))


def _finish_reason(metadata: dict[str, Any]) -> str | None:
    reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    return reason if isinstance(reason, str) else None


def _measure(stage: Generation, message: BaseMessage, info: Any, output: Any) -> None:
    metadata = message.response_metadata
    usage: dict[str, Any] = getattr(message, "usage_metadata", None) or {}
    stage.measured(
        translate.logprobs(metadata) or translate.logprobs(info) or translate.logprobs(output),
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        metadata.get("model_name") or metadata.get("model"),
        translate.first_token(metadata, info, output) if stage.probed else (),
    )


def delta(event: Any) -> str:
    """The piece of the answer's text in an event of the protocol."""
    found = event.get("delta") or {}
    return str(found["text"]) if found.get("type") == "text-delta" else ""


def _operation(instance: Any) -> str:
    return "chat" if isinstance(instance, BaseChatModel) else "text_completion"


def _streams(instance: Any, is_async: bool, kwargs: dict[str, Any]) -> bool:
    """Whether the framework will really stream, rather than fall back to ``invoke``."""
    if isinstance(instance, BaseChatModel):
        return instance._should_stream(async_api=is_async, **{**kwargs, "stream": True})
    kind = type(instance)
    return bool(kind._stream != BaseLLM._stream or (is_async and kind._astream != BaseLLM._astream))


def _chunk(answer: Any) -> Any:
    """A whole answer as the one chunk of a stream."""
    if not isinstance(answer, AIMessage) or isinstance(answer, AIMessageChunk):
        return answer
    try:
        told = {
            name: getattr(answer, name) for name in AIMessage.model_fields if name not in ("type", "usage_metadata")
        }
        chunk = AIMessageChunk(**told, chunk_position="last")
        chunk.usage_metadata = answer.usage_metadata  # of an answer from the cache it holds too little to be validated
    except Exception:
        internal_error()
        return answer
    return chunk


class Streamed:
    """The generation stage of a stream that no defense has to read: what passes is noted, never held back."""

    def __init__(self, stage: Generation, instance: Any) -> None:
        self.stage = stage
        self.instance = instance
        self.context = stage.context
        self.texts: list[str] = []
        self.logprobs: list[float] = []
        self.first_token: Candidates = []
        self.usage: dict[str, Any] = {}
        self.model: Any = None
        self.reason: str | None = None
        stage.span.set_attribute(a.REQUEST_STREAM, True)
        stage.scope.streaming.append(self)

    @classmethod
    def opened(cls, owner: Generating, instance: Any) -> Streamed | None:
        """The stage of a stream that begins here."""
        try:
            return cls(owner.stage(instance, _operation(instance)), instance)
        except Exception:
            internal_error()
            return None

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The stage up to the stream's first step."""
        try:
            with attached(self.context):
                yield
        except BaseException as error:
            self.end(error)
            raise

    def sent(self, args: Any, kwargs: Any) -> Steps[Any]:
        """The arguments for the framework, after the ``prompt`` hook."""
        given = args[0] if args else kwargs.get("input")
        rest = {k: v for k, v in kwargs.items() if k != "input"}
        value = self.instance._convert_input(given)
        kept: Any
        if isinstance(self.instance, BaseChatModel):
            messages = value.to_messages()
            kept = yield from sent(self.stage, messages)
            same = kept is messages
        else:
            text = value.to_string()
            kept = yield from sent_text(self.stage, text)
            same = kept == text
        return (given if same else kept, *args[1:]), rest

    def heard(self, chunk: Any) -> None:
        """Notes what passes."""
        if not self.stage.recording:
            return
        with recording:
            if isinstance(chunk, str):
                self.texts.append(chunk)
                return
            self.texts.append(str(chunk.text))
            metadata = chunk.response_metadata
            if metadata:
                self.logprobs += translate.logprobs(metadata)
                if not self.first_token and self.stage.probed:
                    self.first_token = translate.first_token(metadata)
                self.model = metadata.get("model_name") or self.model
                self.reason = _finish_reason(metadata) or self.reason
            if chunk.usage_metadata:
                self.usage = chunk.usage_metadata

    def end(self, error: BaseException | None) -> None:
        """Ends the stage, once, with what was delivered."""
        if self.stage.ended:
            return
        with recording:
            counts = self.usage.get("input_tokens"), self.usage.get("output_tokens")
            self.stage.measured(self.logprobs, *counts, self.model, self.first_token)
            self.stage.delivered(["".join(self.texts)], self.reason or ("error" if failed(error) else None))
        self.stage.scope.streaming.remove(self)
        self.stage.end(error)

    stop = end
