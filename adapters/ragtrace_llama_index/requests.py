"""The caller's outermost call, however it is made: one request, one scope, one root span.

Whatever runs inside finds the scope in the OpenTelemetry context, which LlamaIndex takes along into its threads
and tasks. A request whose answer is a stream ends when that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from llama_index_instrumentation.dispatcher import active_instrument_tags
from opentelemetry import context as otel
from workflows.errors import WorkflowCancelledByUser

from ragtrace.record import attributes as a
from ragtrace.record.hooks import Recorder, Request
from ragtrace.record.scope import Scope, current
from ragtrace.record.steps import internal_error
from ragtrace.record.wraps import Wrapper
from ragtrace.types import Path
from ragtrace_llama_index.contexts import cause, within
from ragtrace_llama_index.following import given

_BATCH_KEY = otel.create_key("ragtrace-llama-index-batch")  # LlamaIndex's own way to run many is at work here
_REQUEST_KEY = otel.create_key("ragtrace-llama-index-request")

_IDS = {"session_id": a.SESSION, "user_id": a.USER, "thread_id": a.CONVERSATION, "conversation_id": a.CONVERSATION}

Foresee = Callable[[Any], bool]


def _plain(_: Any) -> bool:
    return False


class Requests:
    """Makes the wrappers of the calls that may be the caller's outermost."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def sync(self, path: Path, streams: Foresee = _plain) -> Wrapper:
        """For a sync method. ``streams`` tells beforehand whether an instance will answer with a stream."""

        def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            request = self._open(path, instance, streams)
            if request is None:
                return wrapped(*args, **kwargs)
            try:
                with within(request.context):
                    result = wrapped(*args, **kwargs)
            except BaseException as error:
                request.end(cause(error))
                raise
            return given(request, result)

        return call

    def async_(self, path: Path, streams: Foresee = _plain) -> Wrapper:
        """For an async method."""

        async def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            request = self._open(path, instance, streams)
            if request is None:
                return await wrapped(*args, **kwargs)
            try:
                with within(request.context):
                    result = await wrapped(*args, **kwargs)
            except BaseException as error:
                request.end(cause(error))
                raise
            return given(request, result)

        return call

    def workflow(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``Workflow.run(…)``: returns a handler at once; the request ends when the run does."""
        request = self._open("ainvoke", instance, _plain)
        if request is None:
            return wrapped(*args, **kwargs)
        try:
            with within(request.context):
                handler = wrapped(*args, **kwargs)
        except BaseException as error:
            request.end(cause(error))
            raise
        try:
            task = getattr(handler, "_result_task", handler)
            task.add_done_callback(lambda done: request.end(_outcome(done)))
        except Exception:
            internal_error()
            request.end()
        return handler

    def writing(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``write_response_to_history(memory, …)``, in a thread: a chat engine's stream is read there, to its end."""
        request = _own_request()
        if request is None:
            return wrapped(*args, **kwargs)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            request.end(cause(error))
            raise
        request.end()
        return result

    async def awriting(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``awrite_response_to_history``, in a task."""
        request = _own_request()
        if request is None:
            return await wrapped(*args, **kwargs)
        try:
            result = await wrapped(*args, **kwargs)
        except BaseException as error:
            request.end(cause(error))
            raise
        request.end()
        return result

    def batch(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``run_async_tasks(tasks, …)``: each job is a request."""
        with within(otel.set_value(_BATCH_KEY, "batch")):
            return wrapped(*args, **kwargs)

    async def abatch(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``run_jobs(jobs, …)``, ``batch_gather(tasks, …)``."""
        with within(otel.set_value(_BATCH_KEY, "abatch")):
            return await wrapped(*args, **kwargs)

    def _open(self, path: Path, instance: Any, streams: Foresee) -> Request | None:
        """A new request; ``None`` inside of one."""
        try:
            if isinstance(current(), Scope):
                return None
            if (batch := otel.get_value(_BATCH_KEY)) is not None:
                path = batch  # type: ignore[assignment]
            elif streams(instance):
                path = "stream" if path == "invoke" else "astream"
            request = self.recorder.request(path, type(instance).__name__, _ids())
            request.context = otel.set_value(_REQUEST_KEY, request, request.context)
            return request
        except Exception:
            internal_error()
            return None


def _ids() -> list[tuple[str, Any]]:
    """Session, user and conversation, where the app has said them with LlamaIndex's ``instrument_tags``."""
    tags = active_instrument_tags.get()
    return [(attribute, tags[name]) for name, attribute in _IDS.items() if name in tags]


def _own_request() -> Request | None:
    """The request that we are in, if it is one of LlamaIndex's."""
    request = otel.get_value(_REQUEST_KEY)
    return request if isinstance(request, Request) and request.scope is current() else None


def _outcome(done: asyncio.Future[Any]) -> BaseException | None:
    if done.cancelled():
        return asyncio.CancelledError()
    error = done.exception()
    return asyncio.CancelledError() if isinstance(error, WorkflowCancelledByUser) else error
