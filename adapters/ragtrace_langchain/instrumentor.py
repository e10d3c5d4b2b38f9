"""Puts the wraps on LangChain's classes, and takes them off."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import wrapt
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import base, branch, configurable, fallbacks, passthrough, retry, router
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from ragtrace.defense import checked
from ragtrace.record import attributes as a
from ragtrace.record.capture import Capture
from ragtrace.record.hooks import Recorder
from ragtrace.record.steps import recording
from ragtrace_langchain.events import Events
from ragtrace_langchain.generating import Generating
from ragtrace_langchain.requests import Requests, Wrapper
from ragtrace_langchain.retrieving import Retrieving
from ragtrace_langchain.texting import Texting

_WAYS = ("invoke", "ainvoke", "stream", "astream", "batch", "abatch")
_RUNNABLES: tuple[type, ...] = (
    base.Runnable, base.RunnableSequence, base.RunnableParallel, base.RunnableGenerator, base.RunnableLambda,
    base.RunnableBindingBase, branch.RunnableBranch, fallbacks.RunnableWithFallbacks, passthrough.RunnableAssign,
    configurable.DynamicRunnable, retry.RunnableRetry, router.RouterRunnable, BaseLLM,
)  # fmt: skip
_ELSEWHERE = {"langchain_classic.chains.base": "Chain", "langgraph.pregel.main": "Pregel"}
_OWN_WAY = {"langchain_classic.retrievers.ensemble": "EnsembleRetriever"}  # retrievers with an `invoke` of their own


class LangChainInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Spans, effects and defenses for LangChain.

    ``instrument(tracer_provider=…, defenses=[…], capture="digest", oversample=4)``: ``defenses`` act on every call;
    ``oversample`` is how many times k a vector store is asked for while a ``retrieval`` defense is on.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """What has to be installed."""
        return ("langchain-core >= 1.0",)

    def _instrument(self, **kwargs: Any) -> None:
        capture = kwargs.get("capture", "digest")
        recorder = Recorder(
            trace.get_tracer(a.SCOPE, tracer_provider=kwargs.get("tracer_provider")),
            "langchain",
            capture if isinstance(capture, Capture) else Capture(capture),
            checked(kwargs.get("defenses", ()), "instrument(defenses=…)"),
        )
        self._wrapped: list[tuple[type, str, Any]] = []
        self._on = [True]  # wraps that another instrumentor has wrapped again stay on the class, and stand aside
        requests = Requests(recorder)
        retrieving = Retrieving(recorder, kwargs.get("oversample", 4), self._wrap)
        generating = Generating(recorder, requests)
        texting, events = Texting(generating), Events(generating)
        for kind in _RUNNABLES:
            self._wrap_ways(kind, requests)
        for module, name in _ELSEWHERE.items():
            self._late(module, name, lambda kind: self._wrap_ways(kind, requests))
        for module, name in _OWN_WAY.items():
            self._late(module, name, lambda kind: self._wrap_retriever(kind, requests, retrieving))
        self._wrap_retriever(BaseRetriever, requests, retrieving)
        for way in ("invoke", "ainvoke"):
            self._wrap(BaseChatModel, way, getattr(requests, way))
        for model in (BaseChatModel, BaseLLM):
            self._wrap(model, "stream", generating.stream)
            self._wrap(model, "astream", generating.astream)
        self._wrap(BaseChatModel, "_generate_with_cache", generating.chat)
        self._wrap(BaseChatModel, "_agenerate_with_cache", generating.achat)
        if hasattr(BaseChatModel, "_iter_v2_events"):
            self._wrap(BaseChatModel, "_iter_v2_events", events.sync)
            self._wrap(BaseChatModel, "_aiter_v2_events", events.async_)
        self._wrap(BaseLLM, "generate", texting.text)
        self._wrap(BaseLLM, "agenerate", texting.atext)
        self._wrap(BaseLLM, "_generate_helper", texting.helper)
        self._wrap(BaseLLM, "_agenerate_helper", texting.ahelper)

    def _uninstrument(self, **kwargs: Any) -> None:
        self._on[0] = False
        for kind, name, wrapper in reversed(self._wrapped):
            if vars(kind).get(name) is wrapper:
                setattr(kind, name, wrapper.__wrapped__)
        self._wrapped = []

    def _wrap_ways(self, kind: type, requests: Requests) -> None:
        for way in _WAYS:
            if way in vars(kind) and not (kind is BaseLLM and way in ("stream", "astream")):
                self._wrap(kind, way, getattr(requests, way))

    def _wrap(self, kind: type, name: str, wrapper: Wrapper) -> None:
        on = self._on

        def guarded(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            return wrapper(wrapped, instance, args, kwargs) if on[0] else wrapped(*args, **kwargs)

        if getattr(vars(kind).get(name), "__isabstractmethod__", False):
            return
        self._wrapped.append((kind, name, wrapt.wrap_function_wrapper(kind, name, guarded)))

    def _wrap_retriever(self, kind: type, requests: Requests, retrieving: Retrieving) -> None:
        self._wrap(kind, "invoke", _inside(requests.invoke, retrieving.invoke))
        self._wrap(kind, "ainvoke", _ainside(requests.ainvoke, retrieving.ainvoke))

    def _late(self, module: str, name: str, wrap: Callable[[type], None]) -> None:
        """Wraps a class of a package that may be imported later, or never."""
        on = self._on

        def hook(imported: Any) -> None:
            if on[0] and on is self._on:
                with recording:
                    wrap(getattr(imported, name))

        wrapt.register_post_import_hook(hook, module)


def _inside(request: Wrapper, stage: Wrapper) -> Wrapper:
    """Runs ``stage`` inside a request."""

    def both(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return request(lambda *a, **k: stage(wrapped, instance, a, k), instance, args, kwargs)

    return both


def _ainside(request: Wrapper, stage: Wrapper) -> Wrapper:
    def both(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        async def inner(*a: Any, **k: Any) -> Any:
            return await stage(wrapped, instance, a, k)

        return request(inner, instance, args, kwargs)

    return both
