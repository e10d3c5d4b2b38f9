"""Streams, step by step: the context of a part is current while the stream works, the consumer's own in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

from ragtrace.record.scope import attached
from ragtrace.record.steps import internal_error

Heard = Callable[[Any], None]


def stepwise(opened: Callable[[], Any], iterator: Iterator[Any], heard: Heard | None = None) -> Iterator[Any]:
    """Runs a stream in the context of a part, which ends with the stream, however that ends.

    Between two steps the consumer's own context is current, so nothing is detached in another context.
    ``opened`` makes the part at the first step; ``heard`` is told each item that is about to leave.
    """
    try:
        part = opened()
    except Exception:
        internal_error()
        yield from iterator
        return
    error: BaseException | None = None
    try:
        while True:
            with attached(part.context):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            if heard is not None:
                heard(item)
            yield item
    except BaseException as raised:
        error = raised
        part.stop(raised)
        raise
    finally:
        try:
            with attached(part.context), suppress(AttributeError):  # an iterator need not be a generator
                iterator.close()  # type: ignore[attr-defined]
        finally:
            part.end(error)
            del error  # its traceback holds this frame


async def astepwise(
    opened: Callable[[], Any], iterator: AsyncIterator[Any], heard: Heard | None = None
) -> AsyncIterator[Any]:
    """:func:`stepwise` for async streams."""
    try:
        part = opened()
    except Exception:
        internal_error()
        async for item in iterator:
            yield item
        return
    error: BaseException | None = None
    try:
        while True:
            with attached(part.context):
                try:
                    item = await anext(iterator)
                except StopAsyncIteration:
                    return
            if heard is not None:
                heard(item)
            yield item
    except BaseException as raised:
        error = raised
        part.stop(raised)
        raise
    finally:
        try:
            with attached(part.context), suppress(AttributeError):
                await iterator.aclose()  # type: ignore[attr-defined]
        finally:
            part.end(error)
            del error  # its traceback holds this frame
