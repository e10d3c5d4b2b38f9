"""Puts the wraps on LangChain's classes, and takes them off."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import base, branch, configurable, fallbacks, passthrough, retry, router
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from ragtrace.defense import checked
from ragtrace.record import attributes as a
from ragtrace.record.capture import Capture
from ragtrace.record.hooks import Recorder
from ragtrace.record.wraps import Wraps, ainside, inside
from ragtrace_langchain import parts
from ragtrace_langchain.events import Events
from ragtrace_langchain.generating import Generating
from ragtrace_langchain.requests import Requests
from ragtrace_langchain.retrieving import Retrieving
from ragtrace_langchain.texting import Texting

_WAYS = ("invoke", "ainvoke", "stream", "astream", "batch", "abatch")
_RUNNABLES: tuple[type, ...] = (
    base.Runnable, base.RunnableSequence, base.RunnableParallel, base.RunnableGenerator, base.RunnableLambda,
    base.RunnableBindingBase, branch.RunnableBranch, fallbacks.RunnableWithFallbacks, passthrough.RunnableAssign,
    configurable.DynamicRunnable, retry.RunnableRetry, router.RouterRunnable, BaseLLM,
)  # fmt: skip
_ELSEWHERE = {"langchain_classic.chains.base": "Chain", "langgraph.pregel.main": "Pregel"}


class LangChainInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Spans, effects and defenses for LangChain.

    ``instrument(tracer_provider=…, defenses=[…], capture="digest", oversample=4)``: ``defenses`` act on every call;
    ``oversample`` is how many times k a vector store is asked for while a ``retrieval`` defense is on; with
    ``also="openinference"`` the names of OpenInference are written beside ours.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """What has to be installed."""
        return ("langchain-core >= 1.0",)

    def _instrument(self, **kwargs: Any) -> None:
        capture = kwargs.get("capture", "digest")
        self._recorder = recorder = Recorder(
            trace.get_tracer(a.SCOPE, tracer_provider=kwargs.get("tracer_provider")),
            "langchain",
            capture if isinstance(capture, Capture) else Capture(capture, also=kwargs.get("also")),
            checked(kwargs.get("defenses", ()), "instrument(defenses=…)"),
        )
        self._wraps = Wraps()
        wrap = self._wraps.method
        requests = Requests(recorder)
        retrieving = Retrieving(recorder, kwargs.get("oversample", 4), wrap)
        generating = Generating(recorder, requests)
        texting, events = Texting(generating), Events(generating)
        for kind in _RUNNABLES:
            self._wrap_ways(kind, requests)
        for module, name in _ELSEWHERE.items():
            self._wraps.late(module, partial(self._wrap_ways_of, name, requests))
        retriever = {
            "invoke": inside(requests.invoke, retrieving.invoke),
            "ainvoke": ainside(requests.ainvoke, retrieving.ainvoke),
        }
        self._wraps.family(BaseRetriever, retriever)
        for way in ("invoke", "ainvoke"):
            wrap(BaseChatModel, way, getattr(requests, way))
        for model in (BaseChatModel, BaseLLM):
            wrap(model, "stream", generating.stream)
            wrap(model, "astream", generating.astream)
        wrap(BaseChatModel, "_generate_with_cache", generating.chat)
        wrap(BaseChatModel, "_agenerate_with_cache", generating.achat)
        if hasattr(BaseChatModel, "_iter_v2_events"):
            wrap(BaseChatModel, "_iter_v2_events", events.sync)
            wrap(BaseChatModel, "_aiter_v2_events", events.async_)
        wrap(BaseLLM, "generate", texting.text)
        wrap(BaseLLM, "agenerate", texting.atext)
        wrap(BaseLLM, "_generate_helper", texting.helper)
        wrap(BaseLLM, "_agenerate_helper", texting.ahelper)
        parts.observe(recorder, self._wraps)

    def _uninstrument(self, **kwargs: Any) -> None:
        self._wraps.remove()
        self._recorder.on = False

    def _wrap_ways(self, kind: type, requests: Requests) -> None:
        for way in _WAYS:
            if way in vars(kind) and not (kind is BaseLLM and way in ("stream", "astream")):
                self._wraps.method(kind, way, getattr(requests, way))

    def _wrap_ways_of(self, name: str, requests: Requests, module: Any) -> None:
        self._wrap_ways(getattr(module, name), requests)
