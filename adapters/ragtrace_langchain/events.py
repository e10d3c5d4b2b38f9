"""Streams of protocol events (``stream_events(version="v3")``): a way to the model beside ``stream`` and ``invoke``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragtrace.record.scope import inside
from ragtrace.record.steps import adrive, drive, recording
from ragtrace.record.streaming import astepwise, stepwise
from ragtrace_langchain.generating import Generating, Streamed, delta, muted, sent


class Events:
    """Runs one stream of events as the generation stage."""

    def __init__(self, generating: Generating) -> None:
        self.generating = generating

    def sync(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_iter_v2_events(messages, *, run_manager, stream, stop=None, **kwargs)``."""
        if not _outermost(args, kwargs):
            return wrapped(*args, **kwargs)
        return _to_its_end(self.generating.requests.stream(self._steps(wrapped, instance), instance, args, kwargs))

    def async_(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``_aiter_v2_events``."""
        if not _outermost(args, kwargs):
            return wrapped(*args, **kwargs)
        return self.generating.requests.astream(self._asteps(wrapped, instance), instance, args, kwargs)

    def _steps(self, wrapped: Any, instance: Any) -> Any:
        def steps(messages: Any, *, run_manager: Any, stream: Any, **kwargs: Any) -> Any:
            if self.generating.defended():
                result = instance._generate_with_cache(messages, run_manager=muted(run_manager), **kwargs)
                for event in _replayed(result, stream):
                    stream.dispatch(event)
                    run_manager.on_stream_event(event)
                    yield event
                return
            kwargs |= {"run_manager": run_manager, "stream": stream}
            if (part := Streamed.opened(self.generating, instance)) is None:
                yield from wrapped(messages, **kwargs)
                return
            with part.prepared():
                messages = drive(sent(part.stage, messages), messages)
            for event in stepwise(lambda: part, wrapped(messages, **kwargs)):
                _hear(part, event)
                yield event

        return steps

    def _asteps(self, wrapped: Any, instance: Any) -> Any:
        async def steps(messages: Any, *, run_manager: Any, stream: Any, **kwargs: Any) -> Any:
            if self.generating.defended():
                result = await instance._agenerate_with_cache(messages, run_manager=muted(run_manager), **kwargs)
                for event in _replayed(result, stream):
                    stream.dispatch(event)
                    await run_manager.on_stream_event(event)
                    yield event
                return
            kwargs |= {"run_manager": run_manager, "stream": stream}
            if (part := Streamed.opened(self.generating, instance)) is None:
                async for event in wrapped(messages, **kwargs):
                    yield event
                return
            with part.prepared():
                messages = await adrive(sent(part.stage, messages), messages)
            async for event in astepwise(lambda: part, wrapped(messages, **kwargs)):
                _hear(part, event)
                yield event

        return steps


def _outermost(args: Any, kwargs: Any) -> bool:
    """Inside a stage, events are one way of LangChain's to do an ``invoke``."""
    return inside() is None and len(args) == 1 and {"run_manager", "stream"} <= kwargs.keys()


def _to_its_end(events: Iterator[Any]) -> Iterator[Any]:
    """LangChain asks for nothing after ``message-finish``: what comes behind it is read before."""
    for event in events:
        rest = list(events) if event.get("event") == "message-finish" else []
        yield event
        yield from rest


def _replayed(result: Any, stream: Any) -> Any:
    from langchain_core.language_models._compat_bridge import message_to_events

    return message_to_events(result.generations[0].message, message_id=stream.message_id)


def _hear(part: Streamed, event: Any) -> None:
    with recording:
        part.texts.append(delta(event))
        if event.get("usage"):
            part.usage = event["usage"]
