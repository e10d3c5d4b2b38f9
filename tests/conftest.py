"""Fixtures for all tests: LangChain instrumented into memory, and taken off again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points
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
from store_fixtures import Bench, copied

from ragtrace import defense, plugins
from ragtrace.record import setup
from ragtrace.record.scope import put_back
from ragtrace.store import database

# CI must judge a change by the same examples each time; at a desk new ones are looked for.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Half a minute and more each. The workers begin with them, so that at the end none waits for one that began late.
LONGEST = ("spark", "ui", "docs", "same_audit", "ui_browser", "papers_mind_the_hook", "papers_s2mia", "exposure",
           "battery", "papers_grid_killed", "likelihood", "readme", "report_browser", "llama_index_streams",
           "no_text_leaves", "pytest_plugin", "audit_file", "growth")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which xdist hands out files (the Makefile keeps it from making its own)."""
    rank = {f"test_{name}.py": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


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


@pytest.fixture(autouse=True, scope="session")
def _new_databases_are_copies() -> Iterator[None]:
    """Making one takes 0.3 s, and a thousand tests want one; ``test_store.py`` says that a copy is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_connect", copied)
        yield


@cache
def _entry_points(group: str, places: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)


@pytest.fixture(autouse=True, scope="session")
def _packages_are_looked_through_once() -> Iterator[None]:
    """For each group and ``sys.path``: the environment has hundreds, and most tests ask what they offer."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (plugins, setup):
            patch.setattr(module, "entry_points", lambda group: _entry_points(group, tuple(sys.path)))
        yield


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
