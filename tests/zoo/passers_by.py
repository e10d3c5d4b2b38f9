"""A second set written to be unlike the rest, after the first one was read; again read once before anything was tuned."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from itertools import chain as chain_iter
from typing import Any, AsyncIterator, List, Optional

from langchain.agents.middleware import AgentMiddleware, dynamic_prompt
from langchain_core.documents import BaseDocumentTransformer
from langchain_core.documents import Document as LCDocument
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode

import ragtrace
from ragtrace.types import Document, Message

log = logging.getLogger(__name__)

PII_PATTERNS = {
    "EMAIL": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+",
    "SSN": r"\b\d{3}-\d{2}-\d{4}\b",
}
BLOCKED_TERMS: List[str] = []
ENABLE_PSEUDONYMS = False
_MASKER = None

try:
    import spacy_not_installed_here  # noqa

    HAS_NER = True
except ImportError:
    HAS_NER = False


class Config:
    mask_output = False
    max_len = 10


class PrivacyFilter:
    """Masks PII in generated answers."""

    def __init__(self, patterns: Optional[dict] = None, placeholder: str = "[{}]"):
        self.patterns = patterns or PII_PATTERNS
        self._compiled = {k: re.compile(v) for k, v in self.patterns.items()}
        self.placeholder = placeholder

    def _apply(self, text: str) -> str:
        for name, rx in self._compiled.items():
            text = rx.sub(self.placeholder.format(name), text)
        return text

    def filter_output(self, response: str, **kwargs) -> str:
        if not isinstance(response, str):
            return response
        return self._apply(response)

    def filter_input(self, query: str) -> str:
        return query


class ConfigOff:
    def filter_output(self, text):
        return re.sub(PII_PATTERNS["EMAIL"], "", text) if Config.mask_output else text


class NerMissing:
    def redact(self, text: str) -> str:
        if HAS_NER:
            text = self._ner(text)
        return text

    def _ner(self, text):
        return re.sub("[A-Z][a-z]+", "NAME", text)


class SingletonNeverSet:
    def sanitize_output(self, text):
        if _MASKER:
            return _MASKER(text)
        return text


class BlockedTerms:
    def filter_output(self, text):
        for term in BLOCKED_TERMS:
            text = text.replace(term, "***")
        return text


class JsonRoundTrip:
    def sanitize_output(self, output: dict) -> dict:
        clean = json.loads(json.dumps(output))
        clean["text"] = re.sub(PII_PATTERNS["EMAIL"], "", clean["text"])
        return output


class TruncatesContext:
    def apply_defense_context(self, context: str) -> str:
        return context[: Config.max_len]


class ReturnsFormat:
    def apply_defense_prompt(self, query, context):
        return f"Context:\n{context}\n\nQuestion: {query}\nDo not quote."


class ParaphraseLater:
    def apply_defense_query(self, query: str) -> str:
        """Paraphrase with an LLM (not implemented)."""
        return query


class StripsOnly:
    def apply_defense_query(self, query):
        return query.replace("@", "").replace("-", " ")


class NotImplementedHook:
    def apply_defense_generation(self, text):
        raise NotImplementedError


class ReturnsNotImplemented:
    def apply_defense_generation(self, response):
        result = response  # placeholder for DP decoding
        return result


class SortsScores:
    def apply_defense_retrieval(self, docs, scores):
        paired = sorted(zip(docs, scores), key=lambda x: x[1])
        docs, scores = zip(*paired)
        return list(docs), list(scores)


class LaplaceLost:
    def apply_defense_retrieval(self, docs, scores):
        rng = random.Random(0)
        noisy = [s + rng.expovariate(1) for s in scores]
        log.debug("noisy %s", noisy)
        return docs, scores


class TopKOne:
    def apply_defense_retrieval(self, query, docs, k=1):
        return docs[:k]


class AsyncGather(ragtrace.Defense):
    async def on_content(self, query, documents):
        texts = await asyncio.gather(*(self._mask(d.content) for d in documents))
        return [replace(d, content=t) for d, t in zip(documents, texts)]

    async def _mask(self, text):
        return re.sub(PII_PATTERNS["EMAIL"], "[E]", text)


class ForgotAwait(ragtrace.Defense):
    async def on_response(self, query, documents, response):
        masked = self._mask(response)
        return response

    async def _mask(self, text):
        return re.sub(PII_PATTERNS["EMAIL"], "[E]", text)


class Cached(ragtrace.Defense):
    @staticmethod
    @lru_cache(maxsize=32)
    def _mask(text):
        return text.replace("@", "*")

    def on_response(self, query, documents, response):
        return self._mask(response)


class AbstractBase(ragtrace.Defense, ABC):
    @abstractmethod
    def transform(self, text: str) -> str: ...

    def on_response(self, query, documents, response):
        return self.transform(response)


class ConcreteUpper(AbstractBase):
    def transform(self, text: str) -> str:
        return text.upper()


class ConcreteNothing(AbstractBase):
    def transform(self, text: str) -> str:
        return text


def strategy(fn):
    class Made(ragtrace.Defense):
        def on_response(self, query, documents, response):
            return fn(response)

    return Made


class ContextManaged(ragtrace.Defense):
    def on_response(self, query, documents, response):
        with open("/dev/null", "w") as sink:
            sink.write(response)
        return response


class TernaryChain(ragtrace.Defense):
    level = 2

    def on_response(self, query, documents, response):
        return response if self.level == 0 else response.lower() if self.level == 1 else re.sub(r"\S+@\S+", "", response)


class DropsDuplicates(ragtrace.Defense):
    def on_retrieval(self, query, documents):
        seen, unique = set(), []
        for d in documents:
            if d.content[2:] in seen:
                continue
            seen.add(d.content[2:])
            unique.append(d)
        return unique


class FlattensAgain(ragtrace.Defense):
    def on_retrieval(self, query, documents):
        groups = [documents]
        return list(chain_iter.from_iterable(groups))


class StopsAtFirst(ragtrace.Defense):
    def on_retrieval(self, query, documents):
        for d in documents:
            return [d]
        return documents


class SwapsEnds(ragtrace.Defense):
    def on_retrieval(self, query, documents):
        documents[0], documents[-1] = documents[-1], documents[0]
        return documents


class PopsLast(ragtrace.Defense):
    def on_prompt(self, messages):
        history = messages[:-1]
        return [*history, Message("user", re.sub(r"\S+@\S+", "", messages[-1].content))]


class RoleFilter(ragtrace.Defense):
    def on_prompt(self, messages):
        for m in messages:
            if m.role == "tool":
                m.content = ""
        return messages


class RegexCompressor(BaseDocumentCompressor):
    pattern: str = r"\S+@\S+"

    def _clean(self, doc: LCDocument) -> LCDocument:
        doc = doc.model_copy()
        doc.page_content = re.sub(self.pattern, "[E]", doc.page_content)
        return doc

    def compress_documents(self, documents, query, callbacks=None):
        return list(map(self._clean, documents))


class RegexCompressorLost(RegexCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        for doc in documents:
            self._clean(doc)
        return documents


class Shuffler(BaseDocumentTransformer):
    seed: int = 3

    def transform_documents(self, documents, **kwargs):
        docs = list(documents)
        random.Random(3).shuffle(docs)
        return docs


class ExtraInstruction(AgentMiddleware):
    def before_model(self, state, runtime):
        return {"messages": [HumanMessage("Never reveal e-mail addresses.", id="9")]}


class JumpsToEnd(AgentMiddleware):
    def before_model(self, state, runtime):
        if any("@" in str(m.content) for m in state["messages"]):
            return {"messages": [AIMessage("I cannot help.", id="8")], "jump_to": "end"}
        return None


class LogsAnswer(AgentMiddleware):
    def after_model(self, state, runtime):
        last: BaseMessage = state["messages"][-1]
        log.info("answered: %s", str(last.content)[:20])
        return None


class UppercaseAnswer(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        response = handler(request)
        message = response.result[0]
        return AIMessage(content=message.content.upper())

    def after_agent(self, state, runtime):
        return None


class MaskNode(BaseNodePostprocessor):
    def _mask(self, node: TextNode) -> TextNode:
        return TextNode(text=re.sub(r"\S+@\S+", "", node.text), id_=node.id_)

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [NodeWithScore(node=self._mask(n.node), score=n.score) for n in nodes]


class NodesByKeyword(BaseNodePostprocessor):
    blocked: List[str] = ["@"]

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [n for n in nodes if not any(b in n.get_content() for b in self.blocked)]


class TodoNodes(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        out: List[NodeWithScore] = []
        for n in nodes:
            # FIXME: drop confidential nodes
            out.append(n)
        return out


class Parser(StrOutputParser):
    def parse(self, text):
        return text.split("ANSWER:")[-1].replace("@", "")


@ragtrace.observe(hook="response", name="later")
def later(text: str) -> str:
    cleaned = re.sub(r"\S+@\S+", "", text)
    return text


@ragtrace.observe(hook="query")
async def ask_less(query: str) -> str:
    return query.replace("@", " ")


TRUTH = {
    "PrivacyFilter": {"query": "pass_through", "response": "active"},
    "ConfigOff": {"response": "dead"},
    "NerMissing": {"response": "dead"},
    "SingletonNeverSet": {"response": "dead"},
    "BlockedTerms": {"response": "dead"},
    "JsonRoundTrip": {"response": "dead"},
    "TruncatesContext": {"content": "active"},
    "ReturnsFormat": {"prompt": "active"},
    "ParaphraseLater": {"query": "stub"},
    "StripsOnly": {"query": "active"},
    "NotImplementedHook": {"response": "stub"},
    "ReturnsNotImplemented": {"response": "stub"},
    "SortsScores": {"retrieval": "active"},
    "LaplaceLost": {"retrieval": "dead"},
    "TopKOne": {"retrieval": "active"},
    "AsyncGather": {"content": "active"},
    "ForgotAwait": {"response": "dead"},
    "Cached": {"response": "active"},
    "ConcreteUpper": {"response": "active"},
    "ConcreteNothing": {"response": "pass_through"},
    "Made": {"response": "unknown"},
    "ContextManaged": {"response": "pass_through"},
    "TernaryChain": {"response": "active"},
    "DropsDuplicates": {"retrieval": "active"},
    "FlattensAgain": {"retrieval": "pass_through"},
    "StopsAtFirst": {"retrieval": "active"},
    "SwapsEnds": {"retrieval": "active"},
    "PopsLast": {"prompt": "active"},
    "RoleFilter": {"prompt": "active"},
    "RegexCompressor": {"content": "active"},
    "RegexCompressorLost": {"content": "dead"},
    "Shuffler": {"retrieval": "active"},
    "ExtraInstruction": {"prompt": "active"},
    "JumpsToEnd": {"prompt": "conditional"},
    "LogsAnswer": {"response": "pass_through"},
    "UppercaseAnswer": {"response": "active"},
    "MaskNode": {"content": "active"},
    "NodesByKeyword": {"retrieval": "active"},
    "TodoNodes": {"content": "stub"},
    "Parser": {"response": "active"},
    "later": {"response": "dead"},
    "ask_less": {"query": "active"},
}
