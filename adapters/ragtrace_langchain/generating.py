"""Chat models and text models: the prompt and response hooks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatResult, LLMResult
from langchain_core.utils.utils import LC_ID_PREFIX

from ragtrace.record import attributes as a
from ragtrace.record.hooks import Generation, Recorder
from ragtrace.record.scope import Scope, current
from ragtrace.record.steps import Steps, adrive, drive, internal_error
from ragtrace.types import Message
from ragtrace_langchain import translate
from ragtrace_langchain.requests import Requests, astepwise, attached, carried, stepwise

_held: ContextVar[list[Any] | None] = ContextVar("ragtrace_held_callbacks", default=None)


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
                messages = drive(_sent(stage, messages), messages)
                manager = _withhold(stage, rest)
                result = wrapped(messages, **rest)
                return drive(_answered(stage, result, manager), result)

    async def achat(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_agenerate_with_cache``."""
        with self.requests.enter("ainvoke", instance, kwargs.get("run_manager")):
            stage, messages, rest = self._chat_stage(instance, args, kwargs)
            if stage is None:
                return await wrapped(*args, **kwargs)
            with stage:
                messages = await adrive(_sent(stage, messages), messages)
                manager = _withhold(stage, rest)
                result = await wrapped(messages, **rest)
                return await adrive(_answered(stage, result, manager), result)

    def _chat_stage(self, instance: Any, args: Any, kwargs: Any) -> Any:
        try:
            scope = current()
            assert scope is not None
            rest = dict(zip(("stop", "run_manager"), args[1:], strict=False)) | kwargs
            messages = args[0] if args else rest.pop("messages")
            return self._stage(scope, instance, "chat"), messages, rest
        except Exception:
            internal_error()
            return None, None, None

    def _stage(self, scope: Scope, instance: Any, operation: str) -> Generation:
        model = next((v for n in ("model_name", "model", "model_id") if isinstance(v := getattr(instance, n, None), str)), None)
        stage = Generation(self.recorder, scope, model or type(instance).__name__, operation)
        stage.span.set_attribute(a.REQUEST_MODEL, model or type(instance).__name__)
        return stage

    # streams

    def stream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``stream(input, config=None, *, stop=None, **kwargs)``."""
        return self.requests.stream(self._streaming(wrapped, instance), instance, args, kwargs)

    def astream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``astream(input, config=None, *, stop=None, **kwargs)``."""
        return self.requests.astream(self._astreaming(wrapped, instance), instance, args, kwargs)

    def _streaming(self, wrapped: Any, instance: Any) -> Any:
        def stream(*args: Any, **kwargs: Any) -> Any:
            """A response defense reads the whole answer first: then the model is not asked to stream at all, so that no
            token leaves early by any way, callbacks included. The answer comes as one chunk."""
            scope = current()
            if scope is None or not _streams(instance, False, kwargs):
                yield from wrapped(*args, **kwargs)
            elif _reads_response(scope):
                yield _chunk(instance.invoke(*args, **kwargs))
            else:
                part = _Streamed(self._stage(scope, instance, _operation(instance)), instance)
                with attached(part.context):
                    args, kwargs = drive(part.sent(args, kwargs), (args, kwargs))
                for chunk in stepwise(lambda: part, wrapped(*args, **kwargs)):
                    part.heard(chunk)
                    yield chunk

        return stream

    def _astreaming(self, wrapped: Any, instance: Any) -> Any:
        async def astream(*args: Any, **kwargs: Any) -> Any:
            scope = current()
            if scope is None or not _streams(instance, True, kwargs):
                async for chunk in wrapped(*args, **kwargs):
                    yield chunk
            elif _reads_response(scope):
                yield _chunk(await instance.ainvoke(*args, **kwargs))
            else:
                part = _Streamed(self._stage(scope, instance, _operation(instance)), instance)
                with attached(part.context):
                    args, kwargs = await adrive(part.sent(args, kwargs), (args, kwargs))
                async for chunk in astepwise(lambda: part, wrapped(*args, **kwargs)):
                    part.heard(chunk)
                    yield chunk

        return astream

    # text models

    def text(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``generate(prompts, stop=None, callbacks=None, **kwargs)``: one stage for each prompt."""
        call = _TextCall(self, instance, args, kwargs, "invoke")
        with call:
            prompts = drive(call.sent(), call.prompts)
            result = wrapped(prompts, **call.rest)
            result = drive(call.answered(result), result)
            for manager, output in call.held(result):
                manager.on_llm_end(output)
            return result

    async def atext(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``agenerate``."""
        call = _TextCall(self, instance, args, kwargs, "ainvoke")
        with call:
            prompts = await adrive(call.sent(), call.prompts)
            result = await wrapped(prompts, **call.rest)
            result = await adrive(call.answered(result), result)
            for manager, output in call.held(result):
                await manager.on_llm_end(output)
            return result

    def helper(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_[a]generate_helper(prompts, stop, run_managers, …)``: under a response defense, callbacks wait for its text."""
        held = _held.get()
        if held is None or len(args) < 3:
            return wrapped(*args, **kwargs)
        held.extend(args[2])
        return wrapped(args[0], args[1], [], *args[3:], **kwargs)


def _sent(stage: Generation, messages: list[BaseMessage]) -> Steps[list[BaseMessage]]:
    ours = translate.messages(messages)
    kept = yield from stage.prompt(ours)
    return messages if kept is ours else translate.messages_back(messages, kept)


def _withhold(stage: Generation, rest: dict[str, Any]) -> Any:
    """Takes the run manager away where a response defense must see the text before any callback does."""
    manager = rest.get("run_manager")
    if stage.has("response"):
        rest["run_manager"] = None
    return manager


def _answered(stage: Generation, result: ChatResult, manager: Any) -> Steps[ChatResult]:
    kept = []
    for index, generation in enumerate(result.generations):
        text = str(generation.message.text)
        answer = yield from stage.response(text)
        if answer != text:
            generation = translate.generation_with_text(generation, answer)  # noqa: PLW2901
        if manager is not None and generation.message.id is None:
            generation.message.id = f"{LC_ID_PREFIX}-{manager.run_id}-{index}"
        kept.append(generation)
    if result.generations:
        first = result.generations[0]
        _measure(stage, first.message, first.generation_info, result.llm_output)
        stage.delivered([str(g.message.text) for g in kept], _finish_reason(first.message.response_metadata))
    if all(old is new for old, new in zip(result.generations, kept, strict=True)):
        return result
    return ChatResult(generations=kept, llm_output=result.llm_output)


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
    )


def _operation(instance: Any) -> str:
    return "chat" if isinstance(instance, BaseChatModel) else "text_completion"


def _streams(instance: Any, is_async: bool, kwargs: dict[str, Any]) -> bool:
    """Whether the framework will really stream, rather than fall back to ``invoke``."""
    if isinstance(instance, BaseChatModel):
        return instance._should_stream(async_api=is_async, **{**kwargs, "stream": True})
    from langchain_core.language_models import BaseLLM

    kind = type(instance)
    return bool(kind._stream != BaseLLM._stream or (is_async and kind._astream != BaseLLM._astream))


def _reads_response(scope: Scope) -> bool:
    from ragtrace.record.scope import inside

    return inside() is None and any("response" in d.hooks for d in scope.switched_on())


def _chunk(answer: Any) -> Any:
    if not isinstance(answer, AIMessage) or isinstance(answer, AIMessageChunk):
        return answer
    return AIMessageChunk(**answer.model_dump(exclude={"type"}), chunk_position="last")


class _Streamed:
    """The generation stage of a stream that no defense has to read: what passes is noted, never held back."""

    def __init__(self, stage: Generation, instance: Any) -> None:
        self.stage = stage
        self.instance = instance
        self.context = stage.context
        self.texts: list[str] = []
        self.logprobs: list[float] = []
        self.usage: dict[str, Any] = {}
        self.model: Any = None
        self.reason: str | None = None

    def sent(self, args: Any, kwargs: Any) -> Steps[Any]:
        given = args[0] if args else kwargs.get("input")
        rest = {k: v for k, v in kwargs.items() if k != "input"}
        value = self.instance._convert_input(given)
        if not isinstance(self.instance, BaseChatModel):
            text = value.to_string()
            [kept] = yield from self.stage.prompt([Message("user", text)])
            return (given if kept.content == text else kept.content, *args[1:]), rest
        messages = value.to_messages()
        kept_messages = yield from _sent(self.stage, messages)
        return (given if kept_messages is messages else kept_messages, *args[1:]), rest

    def heard(self, chunk: Any) -> None:
        try:
            if isinstance(chunk, str):
                self.texts.append(chunk)
                return
            self.texts.append(str(chunk.text))
            metadata = chunk.response_metadata
            if metadata:
                self.logprobs += translate.logprobs(metadata)
                self.model = metadata.get("model_name") or self.model
                self.reason = _finish_reason(metadata) or self.reason
            if chunk.usage_metadata:
                self.usage = chunk.usage_metadata
        except Exception:
            internal_error()

    def end(self, error: BaseException | None) -> None:
        try:
            usage = self.usage
            self.stage.measured(self.logprobs, usage.get("input_tokens"), usage.get("output_tokens"), self.model)
            self.stage.delivered(["".join(self.texts)], self.reason)
        except Exception:
            internal_error()
        self.stage.end(error)


class _TextCall:
    """One ``generate`` of a text model: several prompts, several stages, one call of the framework."""

    def __init__(self, owner: Generating, instance: Any, args: Any, kwargs: Any, path: Any) -> None:
        self.rest = dict(zip(("stop", "callbacks"), args[1:], strict=False)) | kwargs
        self.prompts: list[str] = args[0] if args else self.rest.pop("prompts")
        self.stages: list[Generation] = []
        self.entered = owner.requests.enter(path, instance, None)
        self.owner, self.instance = owner, instance

    def __enter__(self) -> None:
        callbacks = self.rest.get("callbacks")
        each = callbacks if isinstance(callbacks, list) and len(callbacks) == len(self.prompts) else []
        requests = [carried(c) for c in each]
        if not any(requests):
            self.entered.__enter__()
        self._requests = requests if any(requests) else []
        try:
            for i in range(len(self.prompts)):
                if self._requests and (request := self._requests[i]) is not None:
                    with attached(request.context):
                        stage = self.owner._stage(request.scope, self.instance, "text_completion")
                else:
                    scope = current()
                    if scope is None:
                        return
                    stage = self.owner._stage(scope, self.instance, "text_completion")
                self.stages.append(stage)
        except Exception:
            internal_error()
            self.stages = []
        self._token = _held.set([] if any(s.has("response") for s in self.stages) else None)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        _held.reset(self._token)
        for stage in self.stages:
            stage.end(error)
        if not self._requests:
            self.entered.__exit__(kind, error, traceback)

    def sent(self) -> Steps[list[str]]:
        out = []
        for stage, prompt in zip(self.stages, self.prompts, strict=True):
            kept = yield from stage.prompt([Message("user", prompt)])
            out.append(prompt if len(kept) == 1 and kept[0].content == prompt else "\n\n".join(m.content for m in kept))
        return out

    def answered(self, result: LLMResult) -> Steps[LLMResult]:
        rows = []
        for stage, generations in zip(self.stages, result.generations, strict=True):
            kept = []
            for generation in generations:
                answer = yield from stage.response(generation.text)
                same = answer == generation.text
                kept.append(generation if same else translate.generation_with_text(generation, answer))  # type: ignore[arg-type]
            if generations:
                stage.measured(translate.logprobs(generations[0].generation_info), None, None, None)
                stage.delivered([g.text for g in kept])
            rows.append(kept)
        if rows == result.generations:
            return result
        return LLMResult(generations=rows, llm_output=result.llm_output, run=result.run)  # type: ignore[arg-type]

    def held(self, result: LLMResult) -> list[tuple[Any, LLMResult]]:
        """The callbacks that waited, each with its defended output."""
        return list(zip(_held.get() or [], result.flatten(), strict=False))
