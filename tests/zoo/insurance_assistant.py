"""Parts of an insurance assistant and of a code search."""
from __future__ import annotations

import asyncio
import collections
import copy
import functools
import json
import logging
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Optional

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.documents import BaseDocumentTransformer, Document as LCDoc
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import BaseOutputParser, StrOutputParser
from langchain_core.runnables import Runnable, RunnableLambda
from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode, TransformComponent
from pydantic import BaseModel, Field, PrivateAttr

from ragtrace import Defense
from ragtrace.types import Document, Message

_log = logging.getLogger("insurance")
POLICY_NO = re.compile(r"\bPOL-\d{6}\b")
MAIL = re.compile(r"[\w.]+@[\w.]+\w")
KEYS = re.compile(r"(?:sk|pk)_(?:live|test)_[0-9a-zA-Z]{8,}")
_STEPS: list[Callable[[str], str]] = []


def register(step):
    _STEPS.append(step)
    return step


@register
def hide_mail(text: str) -> str:
    return MAIL.sub("<mail>", text)


@register
def hide_policy(text: str) -> str:
    return POLICY_NO.sub("<policy>", text)


def run_steps(text: str) -> str:
    return functools.reduce(lambda t, step: step(t), _STEPS, text)


class Strategy(ABC):
    @abstractmethod
    def clean(self, text: str) -> str: ...


class Nothing(Strategy):
    def clean(self, text):
        return text


class Everything(Strategy):
    def clean(self, text):
        return run_steps(text)


STRATEGIES = {"none": Nothing, "all": Everything}


class StrategyGuard:
    def __init__(self, name: str = "none"):
        self.strategy = STRATEGIES[name]()

    def filter_response(self, response):
        return self.strategy.clean(response)


class StrategyAllGuard:
    def __init__(self):
        self.strategy = STRATEGIES.get("all", Nothing)()

    def filter_response(self, response):
        return self.strategy.clean(response)


class StepsGuard(Defense):
    def on_response(self, query, documents, response):
        return run_steps(response)


class OnlyFirstDoc(Defense):
    def on_content(self, query, documents):
        if documents:
            documents[0].content = run_steps(documents[0].content)
        return documents


class CopiesThenEdits(Defense):
    def on_content(self, query, documents):
        out = copy.deepcopy(documents)
        for d in out:
            d.content = run_steps(d.content)
        return out


class CopiesThenReturnsOriginal(Defense):
    def on_content(self, query, documents):
        out = [copy.copy(d) for d in documents]
        for d in out:
            d.content = run_steps(d.content)
        _log.debug("cleaned %s", [d.id for d in out])
        return documents


class TupleSwap(Defense):
    def on_response(self, query, documents, response):
        raw, clean = run_steps(response), response
        return clean


class DictLookup(Defense):
    TABLE: ClassVar[dict[str, str]] = {"alpha plan": "[plan]", "beta plan": "[plan]"}

    def on_response(self, query, documents, response):
        for k, v in self.TABLE.items():
            response = response.replace(k, v)
        return response


class DictLookupCase(Defense):
    TABLE: ClassVar[dict[str, str]] = {"Alpha Plan": "[plan]"}

    def on_response(self, query, documents, response):
        words = response.lower()
        for k, v in self.TABLE.items():
            if k in words:
                response = response.replace(k, v)
        return response


class TokenFilter(Defense):
    def on_response(self, query, documents, response):
        out = []
        for token in response.split(" "):
            out.append("***" if KEYS.match(token) else token)
        return " ".join(out)


class TokenFilterLost(Defense):
    def on_response(self, query, documents, response):
        out = []
        for token in response.split(" "):
            out.append(token)
            token = KEYS.sub("***", token)
        return " ".join(out)


class Quantised(Defense):
    def on_retrieval(self, query, documents):
        return [replace(d, score=round(d.score, 1) if d.score is not None else None) for d in documents]


class Canonical(BaseQueryTransform):
    def _run(self, query_bundle, metadata):
        return QueryBundle(run_steps(query_bundle.query_str))

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


class CanonicalLost(BaseQueryTransform):
    def _run(self, query_bundle, metadata):
        text = run_steps(query_bundle.query_str)
        return QueryBundle(query_str=query_bundle.query_str)

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


class CompressorOn(BaseDocumentCompressor):
    limit: int = 120

    def compress_documents(self, documents, query, callbacks=None):
        return [LCDoc(page_content=d.page_content[: self.limit], metadata=d.metadata) for d in documents]


class CompressorField(BaseDocumentCompressor):
    drop: list[str] = Field(default_factory=list)

    def compress_documents(self, documents, query, callbacks=None):
        return [d for d in documents if not any(w in d.page_content for w in self.drop)]


class CompressorPrivate(BaseDocumentCompressor):
    _ready: bool = PrivateAttr(default=False)

    def compress_documents(self, documents, query, callbacks=None):
        if self._ready:
            for d in documents:
                d.page_content = run_steps(d.page_content)
        return documents


class SystemAdded(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        return handler(request.override(system_message=SystemMessage("Never print policy numbers.")))


class ResponseCleaned(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        response = handler(request)
        for m in response.result:
            if isinstance(m, AIMessage):
                m.content = run_steps(str(m.content))
        return response


class ResponseRead(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        response = handler(request)
        leaks = [m for m in response.result if MAIL.search(str(m.content))]
        if leaks:
            _log.warning("%d leaks", len(leaks))
        return response


class ResponseBlocked(AgentMiddleware):
    def after_model(self, state, runtime):
        if POLICY_NO.search(str(state["messages"][-1].content)):
            return {"messages": [AIMessage("I cannot say.", id=state["messages"][-1].id)]}
        return None


class NodeTexts(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [NodeWithScore(node=TextNode(text=run_steps(n.node.get_content()), id_=n.node.node_id), score=n.score) for n in nodes]


class NodeBest(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [max(nodes, key=lambda n: n.score or 0.0)] if nodes else nodes


class MaskParser(StrOutputParser):
    def parse(self, text):
        return run_steps(super().parse(text))


class JsonGuard(Defense):
    def on_response(self, query, documents, response):
        try:
            data = json.loads(response)
            data["answer"] = run_steps(data["answer"])
        except (ValueError, KeyError, TypeError):
            return response
        return response


class Deferred(Defense):
    def on_response(self, query, documents, response):
        cleaned = functools.partial(run_steps, response)
        return response


class DeferredCalled(Defense):
    def on_response(self, query, documents, response):
        cleaned = functools.partial(run_steps, response)
        return cleaned()


class Nested(Defense):
    def __init__(self):
        self.guards = [StepsGuard(), DictLookup()]

    def on_response(self, query, documents, response):
        for guard in self.guards:
            response = guard.on_response(query, documents, response)
        return response


class NestedLost(Defense):
    def __init__(self):
        self.guards = [StepsGuard(), DictLookup()]

    def on_response(self, query, documents, response):
        for guard in self.guards:
            guard.on_response(query, documents, response)
        return response


class NestedEmpty(Defense):
    def __init__(self, guards: Iterable[Defense] = ()):
        self.guards = list(guards)

    def on_response(self, query, documents, response):
        for guard in self.guards:
            response = guard.on_response(query, documents, response)
        return response


class Todo(Defense):
    def on_content(self, query, documents):
        # FIXME: needs the entity model
        return documents

    def on_response(self, query, documents, response):
        # TODO also mask claim numbers
        return run_steps(response)


class Logged(Defense):
    def on_query(self, query):
        _log.info("query of %d characters", len(query))
        return query


class Checked(Defense):
    def on_response(self, query, documents, response):
        assert isinstance(response, str), "text expected"
        return response


TRUTH = {
    "StrategyGuard": {"response": "dead"},
    "StrategyAllGuard": {"response": "active"},
    "StepsGuard": {"response": "active"},
    "OnlyFirstDoc": {"content": "active"},
    "CopiesThenEdits": {"content": "active"},
    "CopiesThenReturnsOriginal": {"content": "dead"},
    "TupleSwap": {"response": "dead"},
    "DictLookup": {"response": "active"},
    "DictLookupCase": {"response": "dead"},
    "TokenFilter": {"response": "active"},
    "TokenFilterLost": {"response": "dead"},
    "Quantised": {"retrieval": "active"},
    "Canonical": {"query": "active"},
    "CanonicalLost": {"query": "dead"},
    "CompressorOn": {"content": "active"},
    "CompressorField": {"retrieval": "dead"},
    "CompressorPrivate": {"content": "dead"},
    "SystemAdded": {"prompt": "active"},
    "ResponseCleaned": {"response": "active"},
    "ResponseRead": {"prompt": "pass_through", "response": "pass_through"},
    "ResponseBlocked": {"response": "conditional"},
    "NodeTexts": {"content": "active"},
    "NodeBest": {"retrieval": "active"},
    "MaskParser": {"response": "active"},
    "JsonGuard": {"response": "dead"},
    "Deferred": {"response": "dead"},
    "DeferredCalled": {"response": "active"},
    "Nested": {"response": "active"},
    "NestedLost": {"response": "dead"},
    "NestedEmpty": {"response": "dead"},
    "Todo": {"content": "stub", "response": "active"},
    "Logged": {"query": "pass_through"},
    "Checked": {"response": "pass_through"},
}
TEXTS = {
    "DictLookup": "the alpha plan",
    "TokenFilter": "key sk_live_abcdefgh1 here",
    "ResponseBlocked": "policy POL-123456",
}
