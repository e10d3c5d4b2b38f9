"""Text models: several prompts in one call of the framework, one generation stage for each."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from contextvars import ContextVar
from typing import Any

from langchain_core.outputs import LLMResult
from opentelemetry import context as otel

from ragtrace.record.hooks import Generation
from ragtrace.record.scope import STAGE_KEY, attached, put_back
from ragtrace.record.steps import Steps, adrive, drive, internal_error, recording
from ragtrace.types import Path
from ragtrace_langchain import translate
from ragtrace_langchain.generating import Generating, muted, sent_text
from ragtrace_langchain.requests import carried

_held: ContextVar[list[tuple[Any, str]] | None] = ContextVar("ragtrace_held_callbacks", default=None)


class Texting:
    """Runs one call of a text model."""

    def __init__(self, generating: Generating) -> None:
        self.generating = generating

    def text(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``generate(prompts, stop=None, callbacks=None, **kwargs)``: one stage for each prompt."""
        with _Call(self.generating, instance, args, kwargs, "invoke") as call:
            prompts = drive(call.sent(), call.prompts)
            result = call.call(wrapped, prompts)
            result = drive(call.answered(result), result)
            for manager, output in call.held(result):
                manager.on_llm_end(output)
            return result

    async def atext(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``agenerate``."""
        with _Call(self.generating, instance, args, kwargs, "ainvoke") as call:
            prompts = await adrive(call.sent(), call.prompts)
            result = await call.call(wrapped, prompts)
            result = await adrive(call.answered(result), result)
            for manager, output in call.held(result):
                await manager.on_llm_end(output)
            return result

    def helper(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_generate_helper(prompts, stop, run_managers, …)``: callbacks wait for a response defense's text."""
        if (managers := _hold(args)) is None:
            return wrapped(*args, **kwargs)
        try:
            return wrapped(args[0], args[1], [muted(m) for m in managers], *args[3:], **kwargs)
        except BaseException as error:
            for manager in managers:
                manager.on_llm_error(error, response=LLMResult(generations=[]))
            raise

    async def ahelper(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_agenerate_helper``."""
        if (managers := _hold(args)) is None:
            return await wrapped(*args, **kwargs)
        try:
            return await wrapped(args[0], args[1], [muted(m) for m in managers], *args[3:], **kwargs)
        except BaseException as error:
            for manager in managers:
                await manager.on_llm_error(error, response=LLMResult(generations=[]))
            raise


def _hold(args: Any) -> list[Any] | None:
    held = _held.get()
    if held is None or len(args) < 3:
        return None
    held.extend(zip(args[2], args[0], strict=True))
    return list(args[2])


class _Call:
    """One ``generate`` of a text model: several prompts, several stages, one call of the framework."""

    def __init__(self, owner: Generating, instance: Any, args: Any, kwargs: Any, path: Path) -> None:
        self.owner, self.instance, self.path = owner, instance, path
        self.rest = dict(zip(("stop", "callbacks"), args[1:], strict=False)) | kwargs
        self.args = args[:1]
        given = args[0] if args else kwargs.get("prompts")
        self.prompts: list[str] = list(given) if isinstance(given, list) else []  # LangChain says what is wrong
        self.stages: list[Generation] = []

    def __enter__(self) -> _Call:
        self._left = ExitStack()
        callbacks = self.rest.get("callbacks")
        each = callbacks if isinstance(callbacks, list) and len(callbacks) == len(self.prompts) else []
        requests = [carried(c) for c in each]
        if not any(requests):
            self._left.enter_context(self.owner.requests.enter(self.path, self.instance, callbacks))
            requests = [None] * len(self.prompts)
        try:
            for request in requests:
                with attached(request.context) if request is not None else nullcontext():
                    self.stages.append(self.owner.stage(self.instance, "text_completion"))
        except Exception:
            internal_error()
            self._end(None)
            self.stages = []
        if self.stages:
            alone = len(self.stages) == 1
            within = self.stages[0].context if alone else otel.set_value(STAGE_KEY, self.stages[0])
            self._left.enter_context(attached(within))
        self._token = _held.set([] if any(s.has("response") for s in self.stages) else None)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        put_back(self._token)
        self._end(error)
        self._left.__exit__(kind, error, traceback)

    def _end(self, error: BaseException | None) -> None:
        for stage in self.stages:
            stage.end(error)

    def call(self, wrapped: Any, prompts: list[str]) -> Any:
        """The framework's own call."""
        if self.args:
            return wrapped(prompts if self.stages else self.args[0], **self.rest)
        return wrapped(**self.rest | ({"prompts": prompts} if self.stages else {}))

    def sent(self) -> Steps[list[str]]:
        """The prompts for the model."""
        for place, stage in enumerate(self.stages):
            self.prompts[place] = yield from sent_text(stage, self.prompts[place])
        return self.prompts

    def answered(self, result: LLMResult) -> Steps[LLMResult]:
        """The result for the app."""
        rows: list[list[Any]] = []
        same = True
        for stage, generations in zip(self.stages, result.generations, strict=False):
            kept: list[Any] = []
            for generation in generations:
                answer = yield from stage.response(generation.text)
                if answer != generation.text:
                    same = False
                    kept.append(translate.generation_with_text(generation, answer))
                else:
                    kept.append(generation)
            if generations:
                with recording:
                    info = generations[0].generation_info
                    first = translate.first_token(info) if stage.probed else ()
                    stage.measured(translate.logprobs(info), None, None, None, first)
                    stage.delivered([g.text for g in kept])
            rows.append(kept)
        if same:
            return result
        return LLMResult(generations=rows, llm_output=translate.without_logprobs(result.llm_output), run=result.run)

    def held(self, result: LLMResult) -> list[tuple[Any, LLMResult]]:
        """The callbacks that waited, each with its defended output. Prompts met in the model's cache have none."""
        out, place = [], -1
        if waiting := _held.get():
            flat = result.flatten()
            for manager, prompt in waiting:
                place = self.prompts.index(prompt, place + 1)
                out.append((manager, flat[place]))
        return out
