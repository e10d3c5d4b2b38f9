"""The caller's outermost call, however it is made: one request, one scope, one root span.

Whatever runs inside finds the scope in the OpenTelemetry context. ``batch`` runs many requests through each
step together; there the scope of each input travels in its config, as a callback handler that handles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from inspect import isasyncgen, isgenerator
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import get_config_list, merge_configs
from opentelemetry import context as otel

from ragtrace.record import attributes as a
from ragtrace.record.hooks import Recorder, Request
from ragtrace.record.scope import SCOPE_KEY, Scope, attached, current, put_back
from ragtrace.record.steps import internal_error
from ragtrace.record.streaming import astepwise, stepwise
from ragtrace.types import Path
from ragtrace_langchain import leaving

_IDS = {"session_id": a.SESSION, "user_id": a.USER, "thread_id": a.CONVERSATION, "conversation_id": a.CONVERSATION}


class _Batch:
    """Stands in the context for "one of several requests: look into the config"."""


class _Carrier(BaseCallbackHandler):
    """Carries a request through LangChain's config; every event is ignored."""

    ignore_llm = ignore_retry = ignore_chain = ignore_agent = True
    ignore_retriever = ignore_chat_model = ignore_custom_event = True

    def __init__(self, request: Request) -> None:
        self.request = request


def carried(callbacks: Any) -> Request | None:
    """The request that a config's callbacks carry."""
    handlers = callbacks if isinstance(callbacks, list) else getattr(callbacks, "handlers", ())
    return next((h.request for h in handlers if isinstance(h, _Carrier)), None)


class Requests:
    """Makes the wrappers of the six ways to call a runnable."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def enter(self, path: Path, instance: Any, callbacks: Any, config: Any = None) -> AbstractContextManager[Any]:
        """The request to run in: the one we are in, the one that the batch's config carries, or a new one."""
        try:
            scope: Any = current()
            if isinstance(scope, _Batch):
                request = carried(callbacks)
                if request is not None:
                    return attached(request.context)
                path = "batch"
            elif scope is not None:
                return nullcontext()
            return self.recorder.request(path, type(instance).__name__, _ids(instance, config))
        except Exception:
            internal_error()
            return nullcontext()

    def invoke(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``invoke(input, config=None, **kwargs)``."""
        if _settled():
            return wrapped(*args, **kwargs)
        config = _config(args, kwargs)
        with self.enter("invoke", instance, config.get("callbacks"), config):
            return wrapped(*args, **kwargs)

    async def ainvoke(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``ainvoke(input, config=None, **kwargs)``."""
        if _settled():
            return await wrapped(*args, **kwargs)
        config = _config(args, kwargs)
        with self.enter("ainvoke", instance, config.get("callbacks"), config):
            return await wrapped(*args, **kwargs)

    def stream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``stream(input, config=None, **kwargs)``: the span starts with the first step, not with the call."""
        if _settled():
            return wrapped(*args, **kwargs)
        scope, iterator = self._scope("stream", instance, args, kwargs), wrapped(*args, **kwargs)
        opened = self._opener(scope, instance)
        return stepwise(opened, iterator, leaving.listener(scope, instance)) if isgenerator(iterator) else iterator

    def astream(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``astream(input, config=None, **kwargs)``."""
        if _settled():
            return wrapped(*args, **kwargs)
        scope, iterator = self._scope("astream", instance, args, kwargs), wrapped(*args, **kwargs)
        opened = self._opener(scope, instance)
        return astepwise(opened, iterator, leaving.listener(scope, instance)) if isasyncgen(iterator) else iterator

    def _scope(self, path: Path, instance: Any, args: Any, kwargs: Any) -> Scope:
        return self.recorder.scope(path, _ids(instance, _config(args, kwargs)))

    def _opener(self, scope: Scope, instance: Any) -> Callable[[], Request]:
        parent = otel.get_current()

        def opened() -> Request:
            with attached(parent):
                return Request(self.recorder, scope, type(instance).__name__)

        return opened

    def batch(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``batch(inputs, config=None, …)``: a request for each input."""
        if current() is not None:
            return wrapped(*args, **kwargs)
        args, kwargs, group = self._spread("batch", instance, args, kwargs)
        with group:
            return group.seen(wrapped(*args, **kwargs))

    async def abatch(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``abatch(inputs, config=None, …)``."""
        if current() is not None:
            return await wrapped(*args, **kwargs)
        args, kwargs, group = self._spread("abatch", instance, args, kwargs)
        with group:
            return group.seen(await wrapped(*args, **kwargs))

    def _spread(self, path: Path, instance: Any, args: Any, kwargs: Any) -> tuple[Any, Any, _Group]:
        try:
            inputs = args[0] if args else kwargs["inputs"]
            config = args[1] if len(args) > 1 else kwargs.get("config")
            configs = get_config_list(config, len(inputs))
            requests = [self.recorder.request(path, type(instance).__name__, _ids(instance, c)) for c in configs]
            spread = [merge_configs(c, {"callbacks": [_Carrier(r)]}) for c, r in zip(configs, requests, strict=True)]
            rest = {k: v for k, v in kwargs.items() if k not in ("inputs", "config")}
            return (inputs, spread, *args[2:]), rest, _Group(requests)
        except Exception:  # LangChain itself says what is wrong with the arguments
            return args, kwargs, _Group([])


class _Group:
    """The requests of one batch: they end together."""

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests

    def seen(self, results: Any) -> Any:
        for request, result in zip(self.requests, results, strict=False):
            request.end(result if isinstance(result, BaseException) else None)
        return results

    def __enter__(self) -> None:
        self._token = otel.attach(otel.set_value(SCOPE_KEY, _Batch()) if self.requests else otel.get_current())

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        put_back(self._token)
        for request in self.requests:
            request.end(error)


def _settled() -> bool:
    scope = current()
    return scope is not None and not isinstance(scope, _Batch)


def _config(args: Any, kwargs: Any) -> dict[str, Any]:
    config = args[1] if len(args) > 1 else kwargs.get("config")
    return config if isinstance(config, dict) else {}


def _ids(instance: Any, config: Any) -> Iterator[tuple[str, Any]]:
    """Session, user and conversation, where the call's config says them, or else one bound to the runnable."""
    for held in (getattr(instance, "__dict__", {}).get("config"), config):
        for part in ("configurable", "metadata"):
            if isinstance(held, dict) and isinstance(said := held.get(part), dict):
                yield from ((attribute, said[name]) for name, attribute in _IDS.items() if name in said)
