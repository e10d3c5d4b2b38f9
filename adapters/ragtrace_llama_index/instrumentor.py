"""Puts the wraps on LlamaIndex's classes, and takes them off."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from llama_index.core import async_utils
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.callbacks import CallbackManager
from llama_index.core.chat_engine.types import BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index_instrumentation.dispatcher import Dispatcher
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from workflows import Workflow

from ragtrace.defense import checked
from ragtrace.record import attributes as a
from ragtrace.record.capture import Capture
from ragtrace.record.hooks import Recorder
from ragtrace.record.wraps import Wrapper, Wraps, ainside, inside
from ragtrace_llama_index import notices, parts
from ragtrace_llama_index.foresight import streams
from ragtrace_llama_index.generating import Generating
from ragtrace_llama_index.requests import Requests
from ragtrace_llama_index.retrieving import Retrieving

_ASKED = ("predict", "structured_predict", "predict_and_call", "chat_with_tools")  # a model, by a longer way
_STREAMED = ("stream", "stream_structured_predict", "stream_chat_with_tools")


class LlamaIndexInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Spans, effects and defenses for LlamaIndex.

    ``instrument(tracer_provider=…, defenses=[…], capture="digest", oversample=4)``: ``defenses`` act on every call;
    ``oversample`` is how many times k a vector index is asked for while a ``retrieval`` defense is on; with
    ``also="openinference"`` the names of OpenInference are written beside ours.

    While a ``response`` defense is on, LlamaIndex's own events, spans and callbacks about a model call say what the
    defense left of the text, and come after it. Those about retrieval say what was retrieved.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """What has to be installed."""
        return ("llama-index-core >= 0.14",)

    def _instrument(self, **kwargs: Any) -> None:
        capture = kwargs.get("capture", "digest")
        self._recorder = recorder = Recorder(
            trace.get_tracer(a.SCOPE, tracer_provider=kwargs.get("tracer_provider")),
            "llama_index",
            capture if isinstance(capture, Capture) else Capture(capture, also=kwargs.get("also")),
            checked(kwargs.get("defenses", ()), "instrument(defenses=…)"),
        )
        self._wraps = Wraps()
        family, method = self._wraps.family, self._wraps.method
        requests = Requests(recorder)
        sync, async_ = requests.sync, requests.async_
        retrieving = Retrieving(recorder, kwargs.get("oversample", 4))
        retriever = {
            "retrieve": inside(sync("invoke"), retrieving.retrieve),
            "aretrieve": ainside(async_("ainvoke"), retrieving.aretrieve),
        }
        family(BaseRetriever, retriever)
        family(BaseLLM, _model(requests, Generating(recorder)))
        family(BaseQueryEngine, {"query": sync("invoke", streams), "aquery": async_("ainvoke", streams)})
        family(BaseSynthesizer, {"synthesize": sync("invoke", streams), "asynthesize": async_("ainvoke", streams)})
        chat = {"chat": sync("invoke"), "stream_chat": sync("stream")}
        achat = {"achat": async_("ainvoke"), "astream_chat": async_("astream")}
        family(BaseChatEngine, chat | achat)
        family(Workflow, {"run": requests.workflow})
        method(StreamingAgentChatResponse, "write_response_to_history", requests.writing)
        method(StreamingAgentChatResponse, "awrite_response_to_history", requests.awriting)
        self._wrap_function("run_async_tasks", requests.batch)
        for name in ("run_jobs", "batch_gather"):
            self._wrap_function(name, requests.abatch)
        parts.observe(recorder, self._wraps)
        method(Dispatcher, "event", notices.event)
        method(Dispatcher, "span_exit", notices.span_exit)
        method(CallbackManager, "on_event_end", notices.on_event_end)

    def _uninstrument(self, **kwargs: Any) -> None:
        self._wraps.remove()
        self._recorder.on = False

    def _wrap_function(self, name: str, wrapper: Wrapper) -> None:
        """Wraps a function of ``async_utils``, also in the modules that have imported it by its name."""
        function = vars(async_utils)[name]
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is function:
                self._wraps.method(module, name, wrapper)


def _model(requests: Requests, generating: Generating) -> dict[str, Wrapper]:
    wrappers: dict[str, Wrapper] = {}
    for name in ("chat", "complete"):
        wrappers[name] = inside(requests.sync("invoke"), generating.whole)
        wrappers[f"a{name}"] = ainside(requests.async_("ainvoke"), generating.awhole)
        wrappers[f"stream_{name}"] = inside(requests.sync("stream"), generating.stream)
        wrappers[f"astream_{name}"] = ainside(requests.async_("astream"), generating.astream)
    for name in _ASKED:
        wrappers |= {name: requests.sync("invoke"), f"a{name}": requests.async_("ainvoke")}
    for name in _STREAMED:
        wrappers |= {name: requests.sync("stream"), f"a{name}": requests.async_("astream")}
    return wrappers
