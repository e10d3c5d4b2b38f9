"""Streams, async calls, errors and cancellations leave nothing behind (plain calls: test_langchain_paths.py)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from collections import Counter
from contextvars import copy_context
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk.trace import TracerProvider
from pipelines import Echo, Shelf, join, lcel, text_chain

from ragtrace.record.spans import Part


def test_streams_async_calls_and_errors_leave_nothing_behind(instrumented: Any) -> None:
    instrumented(capture="full", tracer_provider=TracerProvider())
    chain, broken, batch = lcel(), lcel(Echo(fail_at=1)), text_chain()

    async def several(times: int) -> None:
        for _ in range(times):
            await chain.ainvoke("q")
            async for _ in chain.astream("q"):
                break
            with pytest.raises(OSError):
                await broken.ainvoke("q")
            task = asyncio.create_task(chain.ainvoke("q"))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await asyncio.gather(chain.ainvoke("a"), broken.ainvoke("b"), return_exceptions=True)
            await batch.abatch(["a", "b"])

    def all_ways(times: int) -> None:
        for _ in range(times):
            list(chain.stream("q"))
            next(chain.stream("q"))
            chain.batch(["a", "b"])
            with pytest.raises(OSError):
                list(broken.stream("q"))
        asyncio.run(several(times))
        gc.collect()

    def held() -> Counter[str]:
        gc.collect()
        return Counter(type(o).__qualname__ for o in gc.get_objects() if str(type(o).__module__).startswith("ragtrace"))

    def elsewhere(times: int) -> None:
        copy_context().run(all_ways, times)  # the latest answers are kept in the caller's context, at most 64

    elsewhere(3)  # caches of the frameworks' own
    before = held()
    tracemalloc.start()
    elsewhere(5)
    first = _ours()
    elsewhere(25)
    grown = _ours() - first
    tracemalloc.stop()
    assert held() == before
    assert grown < 20_000  # of 25 × 15 calls


def _ours() -> int:
    """The memory held that was asked for in our own lines."""
    kept = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(True, "*/ragtrace/*"), tracemalloc.Filter(True, "*/ragtrace_langchain/*")]
    )
    return sum(s.size for s in kept.statistics("filename"))


def test_a_long_request_keeps_no_stage_that_has_ended(instrumented: Any) -> None:
    instrumented(capture="none", tracer_provider=TracerProvider())

    def work(query: str) -> int:
        for _ in range(300):
            with contextlib.suppress(LookupError):
                Shelf(error=LookupError("gone")).invoke(query)
            Echo().invoke(join(Shelf().invoke(query)))
            next(Echo().stream(query))
        gc.collect()
        return sum(issubclass(type(o), Part) for o in gc.get_objects())

    assert RunnableLambda(work).invoke("q") == 1  # the request itself
