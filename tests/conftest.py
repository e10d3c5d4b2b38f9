"""Fixtures for all tests: LangChain instrumented into memory, and taken off again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import Traces
from ragtrace_langchain import LangChainInstrumentor
from store_fixtures import Bench

from ragtrace import defense
from ragtrace.record import setup
from ragtrace.record.scope import put_back

# CI must judge a change by the same examples each time; at a desk new ones are looked for.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def instrumented() -> Iterator[Callable[..., Traces]]:
    """Instruments LangChain when called, with the options given; undone after the test."""

    def instrument(sampler: Any = None, **options: Any) -> Traces:
        exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        LangChainInstrumentor().instrument(**{"tracer_provider": provider, "capture": "full"} | options)
        return Traces(exporter, provider.get_tracer("app"))

    yield instrument
    if LangChainInstrumentor().is_instrumented_by_opentelemetry:
        LangChainInstrumentor().uninstrument()


@pytest.fixture
def traces(instrumented: Callable[..., Traces]) -> Traces:
    """LangChain instrumented with ``capture="full"``."""
    return instrumented()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench for hand-made spans and a database."""
    return Bench(tmp_path / "t.duckdb")


@pytest.fixture
def chains(bench: Bench) -> Iterator[Bench]:
    """A bench whose spans come from LangChain, with all texts."""
    LangChainInstrumentor().instrument(tracer_provider=bench.provider, capture="full")
    yield bench
    LangChainInstrumentor().uninstrument()


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """What an abandoned stream of an earlier test leaves behind, when it is collected, is not current in this one."""
    token = otel.attach(Context())
    yield
    put_back(token)


@pytest.fixture(autouse=True)
def _undeclared() -> Iterator[None]:
    """A test meets only what it declares itself; modules that observe functions declare them when collected."""
    before = defense._declared.copy()
    defense._declared.clear()
    yield
    defense._declared.clear()
    defense._declared.update(before)


@pytest.fixture(autouse=True)
def nothing_left_on() -> Iterator[None]:
    """Whatever a test (or what it calls) sets up is shut down again: an app must be able to rely on that as well."""
    before = set(setup._installed)
    yield
    left = {path: tracing for path, tracing in setup._installed.items() if path not in before}
    for tracing in list(left.values()):
        tracing.shutdown()
    assert not left, f"still recording into {[str(path) for path in left]}"
