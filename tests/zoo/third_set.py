"""A third set of other people's idioms, read once before anything was tuned for it."""

from __future__ import annotations

import collections
import copy
import hashlib
import os
import random
import re
import time
from abc import ABC
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from langchain.agents.middleware import AgentMiddleware, ModelResponse, before_agent
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentTransformer
from langchain_core.documents import Document as LCDoc
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage, RemoveMessage, SystemMessage
from langchain_core.output_parsers import BaseTransformOutputParser, StrOutputParser
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

import ragtrace as rt
from ragtrace.types import Document

_EMAIL = r"[\w.]+@[\w.]+"
_PHONE = r"\+?\d[\d -]{7,}\d"
NAMES = ("Alice", "jo")
FLAGS: Dict[str, bool] = {"mask": False, "noise": True}


def _mask_all(text: str, *, patterns: Sequence[str] = (_EMAIL, _PHONE), repl: str = "█") -> str:
    for p in patterns:
        text = re.sub(p, repl, text, flags=re.I)
    return text


def identity(x):
    return x


def compose(*fns):
    def composed(x):
        for f in fns:
            x = f(x)
        return x

    return composed


# duck ---------------------------------------------------------------------------------------------


class OutputGuard(object):
    def filter_output(self, answer):
        return _mask_all(answer)


class TurnedOffInDict:
    def filter_output(self, answer):
        if FLAGS["mask"]:
            return _mask_all(answer)
        return answer


class TurnedOffByGet:
    def filter_output(self, answer):
        if FLAGS.get("mask", False):
            answer = _mask_all(answer)
        return answer


class OnInDict:
    def filter_output(self, answer):
        return _mask_all(answer) if FLAGS["mask"] or FLAGS["noise"] else answer


class Composed:
    def __init__(self):
        self._steps = [str.strip, _mask_all]

    def filter_output(self, answer):
        for step in self._steps:
            answer = step(answer)
        return answer


class ComposedIdle:
    def filter_output(self, answer):
        for step in (identity, identity):
            answer = step(answer)
        return answer


class ClosureFactory:
    def __init__(self):
        self.fn = compose(identity, _mask_all)

    def filter_output(self, answer):
        return self.fn(answer)


class NamesReplaced:
    def apply_defense_generation(self, response, retrieved_docs=None):
        for i, name in enumerate(NAMES):
            response = response.replace(name, f"PERSON_{i}")
        return response

    def apply_defense_retrieval(self, retrieved_docs):
        """Not needed for this defense."""
        return retrieved_docs


class Summarises:
    def __init__(self, llm=None):
        self.llm = llm or (lambda p: "summary")

    def apply_defense_context(self, context: str) -> str:
        prompt = f"Summarise without personal data:\n{context}"
        return self.llm(prompt)


class EpsilonRounds:
    def __init__(self, epsilon: float = 1.0):
        self.epsilon = epsilon

    def apply_defense_retrieval(self, scores: List[float]) -> List[float]:
        rng = random.Random(2)
        return [s + rng.gauss(0, 1.0 / self.epsilon) for s in scores]


class EpsilonInfinite:
    def apply_defense_retrieval(self, scores):
        noise_scale = 0.0
        noise = noise_scale * random.random()
        if noise_scale > 0:
            scores = [s + noise for s in scores]
        return scores


class MinScores:
    def filter_retrieval(self, docs, min_score=0.5):
        kept = []
        for d in docs:
            if d["score"] < min_score:
                continue
            kept.append(d)
        return kept


class KeepsEverything:
    def filter_retrieval(self, docs):
        kept = []
        for d in docs:
            kept.append(d)
        return kept


class CopiesDicts:
    def sanitize_documents(self, documents):
        return [dict(d) for d in documents]


class DeepCopyEdited:
    def sanitize_documents(self, documents):
        docs = copy.deepcopy(documents)
        for d in docs:
            d["text"] = _mask_all(d["text"])
        return docs


class DeepCopyForgotten:
    def sanitize_documents(self, documents):
        safe = copy.deepcopy(documents)
        for d in safe:
            d["text"] = _mask_all(d["text"])
        return documents


class RetriesForever:
    def filter_output(self, answer):
        for attempt in range(3):
            try:
                return _mask_all(answer)
            except RuntimeError:
                time.sleep(0)
        return answer


class BrokenImport:
    def filter_output(self, answer):
        try:
            import a_masking_library_nobody_has as lib

            return lib.mask(answer)
        except Exception:
            pass
        return answer


class WrongMethodName:
    def filter_output(self, answer: str) -> str:
        try:
            return answer.redacted()
        except AttributeError:
            return answer


class ComparesOnly:
    def filter_output(self, answer):
        masked = _mask_all(answer)
        assert masked is not None
        is_clean = masked == answer
        return answer


class HashesIds:
    def redact(self, text):
        return re.sub(r"\b[\w.]+@[\w.]+\b", lambda m: hashlib.md5(m.group().encode()).hexdigest()[:8], text)


class SubBack:
    def redact(self, text):
        return re.sub(_EMAIL, lambda m: m.group(0), text)


class UnreachableElif:
    mode = "off"

    def redact(self, text):
        if self.mode == "off":
            return text
        elif self.mode == "mask":
            return _mask_all(text)
        return ""


class StaticMethodHook:
    @staticmethod
    def redact(text: str) -> str:
        return _mask_all(text)


class ClassMethodHook:
    @classmethod
    def redact(cls, text: str) -> str:
        return text


# ours --------------------------------------------------------------------------------------------


class Counts(rt.Defense):
    name = "counts"

    def on_query(self, query):
        counter = collections.Counter(query.split())
        self.common = counter.most_common(1)
        return query


class Lower(rt.Defense):
    on_query = lambda self, query: query.lower()


class Kwargs(rt.Defense):
    def on_response(self, *args, **kwargs):
        return args[-1]


class Stateful(rt.Defense):
    def __init__(self):
        self.seen = set()

    def on_retrieval(self, query, documents):
        fresh = [d for d in documents if d.id not in self.seen]
        self.seen.update(d.id for d in fresh)
        return fresh[:2]


class ByTypeName(rt.Defense):
    def on_content(self, query, documents):
        result = []
        for doc in documents:
            masked = Document(**{**asdict(doc), "content": _mask_all(doc.content)})
            result.append(masked)
        return result


class NegativeIndex(rt.Defense):
    def on_prompt(self, messages):
        if messages and messages[-1].role == "user":
            messages[-1].content = _mask_all(messages[-1].content)
        return messages


# LangChain ---------------------------------------------------------------------------------------


class Typed(BaseDocumentCompressor):
    top_k: int = 1

    def compress_documents(self, documents: Sequence[LCDoc], query: str, callbacks: Optional[Callbacks] = None) -> Sequence[LCDoc]:
        if not documents:
            return []
        scored = [(self._score(d, query), d) for d in documents]
        scored.sort(key=lambda t: t[0], reverse=True)
        return [d for _, d in scored[: self.top_k]]

    def _score(self, doc: LCDoc, query: str) -> float:
        return float(len(doc.page_content))


class TypedUnused(Typed):
    def compress_documents(self, documents, query, callbacks=None):
        ranked = super().compress_documents(documents, query, callbacks)
        return documents


class Redacts(BaseDocumentTransformer):
    def transform_documents(self, documents: Sequence[LCDoc], **kwargs: Any) -> Sequence[LCDoc]:
        out: list[LCDoc] = []
        for document in documents:
            text = document.page_content
            text = _mask_all(text)
            out.append(LCDoc(page_content=text, metadata=dict(document.metadata)))
        return out


class RedactsNothing(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        out = []
        for document in documents:
            text = document.page_content
            _mask_all(text)
            out.append(LCDoc(page_content=text, metadata=document.metadata))
        return out


class Removes(AgentMiddleware):
    def before_model(self, state, runtime):
        old = state["messages"][:-1]
        if not old:
            return None
        return {"messages": [RemoveMessage(id=m.id) for m in old]}


class Guardrail(AgentMiddleware):
    def __init__(self, banned=("@",)):
        super().__init__()
        self.banned = banned

    def after_model(self, state, runtime):
        message = state["messages"][-1]
        for word in self.banned:
            if word in message.content:
                message.content = "I cannot provide this."
                break
        return {"messages": [message]}


class GuardrailOff(AgentMiddleware):
    strict = False

    def after_model(self, state, runtime):
        if self.strict:
            return {"messages": [AIMessage("no", id=state["messages"][-1].id)]}
        return None


class SystemPrompt(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        prompt = "Answer in your own words."
        return handler(request.override(system_message=SystemMessage(content=prompt)))


class RebuiltResponse(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        response = handler(request)
        clean = [AIMessage(content=_mask_all(m.content)) for m in response.result]
        return ModelResponse(result=clean)


class RebuiltAndLost(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        response = handler(request)
        clean = [AIMessage(content=_mask_all(m.content)) for m in response.result]
        return response


class StreamSafeParser(BaseTransformOutputParser[str]):
    def parse(self, text: str) -> str:
        return text


class RedactingParser(BaseTransformOutputParser[str]):
    def parse(self, text: str) -> str:
        redacted = _mask_all(text)
        return redacted


# LlamaIndex --------------------------------------------------------------------------------------


class ScoreRounder(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None) -> List[NodeWithScore]:
        return [NodeWithScore(node=n.node, score=round(n.score or 0.0, 1)) for n in nodes]


class EmptyBlock(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        """Drops nodes with secrets."""
        for node in nodes:
            if "secret" in node.node.get_content():
                pass
        return nodes


class MaskCopy(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        new_nodes = []
        for n in nodes:
            node = n.node.model_copy()
            node.set_content(_mask_all(node.get_content()))
            new_nodes.append(NodeWithScore(node=node, score=n.score))
        return new_nodes


class FirstOnly(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return nodes[:1] if len(nodes) > 1 else nodes


TRUTH = {
    "StreamSafeParser": {"response": "pass_through"},
    "OutputGuard": {"response": "active"},
    "TurnedOffInDict": {"response": "dead"},
    "TurnedOffByGet": {"response": "dead"},
    "OnInDict": {"response": "active"},
    "Composed": {"response": "active"},
    "ComposedIdle": {"response": "pass_through"},
    "ClosureFactory": {"response": "active"},
    "NamesReplaced": {"retrieval": "pass_through", "response": "active"},
    "Summarises": {"content": "active"},
    "EpsilonRounds": {"retrieval": "active"},
    "EpsilonInfinite": {"retrieval": "dead"},
    "MinScores": {"retrieval": "active"},
    "KeepsEverything": {"retrieval": "pass_through"},
    "CopiesDicts": {"content": "pass_through"},
    "DeepCopyEdited": {"content": "active"},
    "DeepCopyForgotten": {"content": "dead"},
    "RetriesForever": {"response": "active"},
    "BrokenImport": {"response": "dead"},
    "WrongMethodName": {"response": "dead"},
    "ComparesOnly": {"response": "dead"},
    "HashesIds": {"response": "active"},
    "SubBack": {"response": "dead"},
    "UnreachableElif": {"response": "dead"},
    "StaticMethodHook": {"response": "active"},
    "ClassMethodHook": {"response": "pass_through"},
    "counts": {"query": "pass_through"},
    "Lower": {"query": "active"},
    "Kwargs": {"response": "pass_through"},
    "Stateful": {"retrieval": "active"},
    "ByTypeName": {"content": "active"},
    "NegativeIndex": {"prompt": "conditional"},
    "Typed": {"retrieval": "active"},
    "TypedUnused": {"retrieval": "dead"},
    "Redacts": {"content": "active"},
    "RedactsNothing": {"content": "dead"},
    "Removes": {"prompt": "conditional"},
    "Guardrail": {"response": "conditional"},
    "GuardrailOff": {"response": "dead"},
    "SystemPrompt": {"prompt": "active"},
    "RebuiltResponse": {"response": "active"},
    "RebuiltAndLost": {"response": "dead"},
    "RedactingParser": {"response": "active"},
    "ScoreRounder": {"retrieval": "active"},
    "EmptyBlock": {"retrieval": "pass_through"},
    "MaskCopy": {"content": "active"},
    "FirstOnly": {"retrieval": "conditional"},
}
