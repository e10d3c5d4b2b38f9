"""Answers that still stream when the framework has returned them: what began with the call ends with the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import finalize

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse

from ragtrace import defense
from ragtrace.record.hooks import Request
from ragtrace.record.scope import Scope
from ragtrace.record.steps import internal_error
from ragtrace.record.streaming import Heard, astepwise, stepwise


def begun(part: Any, iterator: Iterator[Any], heard: Any = None) -> Iterator[Any]:
    """Runs a stream as a part that is open already. It ends with the stream, also if nothing is ever read."""
    steps = stepwise(lambda: part, iterator, heard)
    finalize(steps, part.end, GeneratorExit()).atexit = False
    return steps


def abegun(part: Any, iterator: AsyncIterator[Any], heard: Any = None) -> AsyncIterator[Any]:
    """:func:`begun` for async streams."""
    steps = astepwise(lambda: part, iterator, heard)
    finalize(steps, part.end, GeneratorExit()).atexit = False
    return steps


def given(request: Request, result: Any) -> Any:
    """The result for the app. A request whose result still streams goes on, and any other ends here."""
    try:
        if isinstance(result, StreamingResponse | AsyncStreamingResponse):
            if result.response_gen is not None:
                is_async = isinstance(result, AsyncStreamingResponse)
                result.response_gen = _followed(request, result.response_gen, is_async)
                return result
        elif isinstance(result, StreamingAgentChatResponse):
            if _follow_chat(request, result):
                return result
        elif isinstance(result, Iterator | AsyncIterator):
            return _followed(request, result, not isinstance(result, Iterator))
    except Exception:
        internal_error()
    request.end()
    return result


def _followed(request: Request, stream: Any, is_async: bool) -> Any:
    heard = _listener(request.scope)
    return abegun(request, aiter(stream), heard) if is_async else begun(request, iter(stream), heard)


def _listener(scope: Scope) -> Heard | None:
    """Notes what leaves on the request's stream, where a declared defense may yet change it: then it is too late."""
    ours = {d.name for d in scope.defenses}
    if not any("response" in hooks and name not in ours for name, hooks in defense.declared().items()):
        return None

    def leaves(item: Any) -> None:
        text = item if isinstance(item, str) else getattr(item, "delta", None)
        if isinstance(text, str):
            scope.left.setdefault("", []).append(text)

    return leaves


def _follow_chat(request: Request, response: StreamingAgentChatResponse) -> bool:
    """A chat engine's stream is read by its own thread or task (:meth:`Requests.writing`), else by the consumer."""
    written = response.write_response_to_history_thread or response.awrite_response_to_history_task
    if written is not None or response.is_done:
        finalize(response, request.end, GeneratorExit()).atexit = False
        return True
    if response.chat_stream is not None:
        response.chat_stream = _followed(request, response.chat_stream, False)
        return True
    if response.achat_stream is not None:
        response.achat_stream = _followed(request, response.achat_stream, True)
        return True
    return False
