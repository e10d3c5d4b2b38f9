"""Guards of a legal research assistant and a telecom helpdesk."""
from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import itertools
import logging
import os
import re
import string
import sys
import unicodedata
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, auto
from typing import Any, Iterable, NamedTuple

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import BaseDocumentTransformer, Document as LCDoc
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.runnables import RunnableLambda
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode, TransformComponent

from ragtrace import Defense
from ragtrace.types import Document, Message

logger = logging.getLogger(__name__)

try:
    import scrubadub
except ImportError:
    scrubadub = None

CASE_NO = re.compile(r"\b\d{1,3} ?[A-Z]{1,3} ?\d{2,4}/\d{2}\b")
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[a-z]{2,}")
NUMBER = re.compile(r"\b\d{3}[- ]\d{3}[- ]\d{4}\b|\+\d[\d -]{8,}\d")
BAD = re.compile(r"(?<=ID:)\s*^\d{8}")
SENSITIVE = frozenset({"privileged", "sealed"})


class Mode(Enum):
    OBSERVE = auto()
    ENFORCE = auto()


class Limits(NamedTuple):
    chars: int = 400
    docs: int = 3


@dataclass(frozen=True)
class Policy:
    mode: Mode = Mode.OBSERVE
    replace_with: str = "[removed]"
    patterns: tuple = (MAIL, NUMBER)

    @property
    def enforcing(self) -> bool:
        return self.mode is Mode.ENFORCE


def scrub(text, policy=Policy()):
    for p in policy.patterns:
        text = p.sub(policy.replace_with, text)
    return text


def maybe(fn):
    @functools.wraps(fn)
    def inner(self, *args, **kwargs):
        if not getattr(self, "active", False):
            return args[-1]
        return fn(self, *args, **kwargs)
    return inner


def audited(fn):
    @functools.wraps(fn)
    def inner(self, *args):
        out = fn(self, *args)
        logger.info("%s -> %d", fn.__name__, len(out))
        return out
    return inner


def dry_run(fn):
    @functools.wraps(fn)
    def inner(self, *args):
        fn(self, *copy.deepcopy(args))
        return args[-1]
    return inner


class PolicyGuard(Defense):
    def __init__(self, policy: Policy | None = None):
        self.policy = policy or Policy()

    def on_response(self, query, documents, response):
        if self.policy.enforcing:
            return scrub(response, self.policy)
        logger.info("would scrub")
        return response


class EnforcedGuard(PolicyGuard):
    def __init__(self):
        super().__init__(Policy(mode=Mode.ENFORCE))


class MaybeGuard(Defense):
    @maybe
    def on_response(self, query, documents, response):
        return scrub(response)


class AuditedGuard(Defense):
    @audited
    def on_response(self, query, documents, response):
        return scrub(response)


class DryRunGuard(Defense):
    @dry_run
    def on_response(self, query, documents, response):
        return scrub(response)


class ScrubadubGuard:
    def redact_output(self, text):
        return scrubadub.clean(text) if scrubadub else text


class CaseNumbers(Defense):
    def on_content(self, query, documents):
        return [replace(d, content=CASE_NO.sub("[case]", d.content)) for d in documents]

    def on_response(self, query, documents, response):
        return CASE_NO.sub("[case]", response)


class BackwardsPattern:
    def redact_output(self, text):
        return BAD.sub("[id]", text)


class UpperCaseOnly:
    def redact_output(self, text):
        lowered = text.casefold()
        if "CONFIDENTIAL" in lowered:
            return "[withheld]"
        return text


class PrivilegedText(Defense):
    def on_response(self, query, documents, response):
        if not SENSITIVE.isdisjoint(response.lower().split()):
            return "This material is privileged."
        return response


class TagsNeverMatch(Defense):
    def on_response(self, query, documents, response):
        if not SENSITIVE.isdisjoint(response.upper().split()):
            return "This material is privileged."
        return response


class LosesSlice(Defense):
    def on_retrieval(self, query, documents):
        documents[:3]
        return documents


class RebindsOnly(Defense):
    def on_content(self, query, documents):
        for i, doc in enumerate(documents):
            doc = replace(doc, content=scrub(doc.content))
        return documents


class RebindsAndStores(Defense):
    def on_content(self, query, documents):
        documents = list(documents)
        for i, doc in enumerate(documents):
            documents[i] = replace(doc, content=scrub(doc.content))
        return documents


class EditsDictCopy:
    def mask_documents(self, documents):
        for d in documents:
            copy_ = d.copy()
            copy_.update(text=scrub(copy_["text"]))
        return documents


class EditsAsDict(Defense):
    def on_content(self, query, documents):
        for d in documents:
            asdict(d)["content"] = scrub(d.content)
        return documents


class ParsesBack(Defense):
    def on_content(self, query, documents):
        rows = [asdict(d) for d in documents]
        for r in rows:
            r["content"] = scrub(r["content"])
        return [Document(**r) for r in rows]


class UnusedIterator(Defense):
    def on_retrieval(self, query, documents):
        safe = filter(lambda d: "sealed" not in d.content, documents)
        return documents


class ReturnsIterator(Defense):
    def on_retrieval(self, query, documents):
        return list(itertools.filterfalse(lambda d: "sealed" in d.content, documents))


class ExhaustedTwice(Defense):
    def on_response(self, query, documents, response):
        hits = MAIL.finditer(response)
        count = sum(1 for _ in hits)
        for h in hits:
            response = response.replace(h.group(), "[mail]")
        return response


class AwaitForgotten(Defense):
    async def on_response(self, query, documents, response):
        self._clean(response)
        return response

    async def _clean(self, response):
        return scrub(response)


class Awaited(Defense):
    async def on_response(self, query, documents, response):
        return await self._clean(response)

    async def _clean(self, response):
        return scrub(response)


class Shielded(Defense):
    def on_response(self, query, documents, response):
        try:
            cleaned = self._clean(response)
        except Exception:
            cleaned = response
        return cleaned

    def _clean(self, response):
        return scrub(response.strip(), polcy=Policy())


class Finally(Defense):
    def on_response(self, query, documents, response):
        original = response
        try:
            response = scrub(response)
        finally:
            response = original
        return response


class ElseBranch(Defense):
    def on_response(self, query, documents, response):
        for d in documents:
            if d.content is None:
                break
        else:
            return response
        return scrub(response)


class Walrus(Defense):
    def on_response(self, query, documents, response):
        if (m := MAIL.search(response)) and len(m.group()) > 3:
            response = response.replace(m.group(), "[mail]")
        return response


class Matched(Defense):
    def on_response(self, query, documents, response):
        match query.split():
            case ["delete", *_]:
                return "Not allowed."
            case _:
                return response


class Sentences(Defense):
    def on_response(self, query, documents, response):
        kept = [s for s in re.split(r"(?<=[.!?])\s+", response) if not MAIL.search(s)]
        return " ".join(kept)


class SentencesJoinedBack(Defense):
    def on_response(self, query, documents, response):
        parts = re.split(r"(\s+)", response)
        flagged = [p for p in parts if MAIL.search(p)]
        logger.debug("flagged %d", len(flagged))
        return "".join(parts)


class Translated(Defense):
    def on_query(self, query):
        return query.translate(str.maketrans("", "", string.digits))


class TranslatedNothing(Defense):
    def on_query(self, query):
        return query.translate({})


class Normal(Defense):
    def on_query(self, query):
        return unicodedata.normalize("NFKC", query)


class Instruct(Defense):
    def on_prompt(self, messages):
        head, *tail = messages
        return [replace(head, content=head.content + "\nDo not reveal personal data."), *tail]


class InstructLost(Defense):
    def on_prompt(self, messages):
        messages + [Message("system", "Do not reveal personal data.")]
        return messages


class InstructIf(Defense):
    def on_prompt(self, messages):
        if any("password" in m.content.lower() for m in messages):
            return [*messages, Message("system", "Refuse.")]
        return messages


class Budget(Defense):
    def __init__(self, epsilon=0.0):
        self.epsilon = epsilon

    def on_retrieval(self, query, documents):
        if not self.epsilon:
            return documents
        import random
        return sorted(documents, key=lambda d: (d.score or 0) + random.gauss(0, 1 / self.epsilon))


class Clamp(Defense):
    def on_retrieval(self, query, documents):
        return [replace(d, score=None) for d in documents]


class MinScore(BaseNodePostprocessor):
    minimum: float = 0.35

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [n for n in nodes if n.score is not None and n.score >= self.minimum]


class Dedupe(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        seen, out = set(), []
        for d in documents:
            if d.page_content not in seen:
                seen.add(d.page_content)
                out.append(d)
        return out


class ReorderLost(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        ranked = sorted(documents, key=lambda d: len(d.page_content))
        return documents


class AnswerGuard(AgentMiddleware):
    def after_model(self, state, runtime):
        last = state["messages"][-1]
        text = scrub(str(last.content))
        if text == last.content:
            return None
        return {"messages": [AIMessage(content=text, id=last.id)]}


class AnswerGuardLost(AgentMiddleware):
    def after_model(self, state, runtime):
        last = state["messages"][-1]
        return {"note": scrub(str(last.content))}


class MaskingParser(BaseOutputParser[str]):
    def parse(self, text):
        return scrub(text)


class LaterHook(Defense):
    """Response masking lands in the next release."""

    def on_response(self, query, documents, response):
        return response


class WaitingHook(Defense):
    def on_response(self, query, documents, response):
        pass  # waiting for the DLP team


TRUTH = {
    "PolicyGuard": {"response": "dead"},
    "EnforcedGuard": {"response": "active"},
    "MaybeGuard": {"response": "dead"},
    "AuditedGuard": {"response": "active"},
    "DryRunGuard": {"response": "dead"},
    "ScrubadubGuard": {"response": "dead"},
    "CaseNumbers": {"content": "active", "response": "active"},
    "BackwardsPattern": {"response": "dead"},
    "UpperCaseOnly": {"response": "dead"},
    "PrivilegedText": {"response": "conditional"},
    "TagsNeverMatch": {"response": "dead"},
    "LosesSlice": {"retrieval": "dead"},
    "RebindsOnly": {"content": "dead"},
    "RebindsAndStores": {"content": "active"},
    "EditsDictCopy": {"content": "dead"},
    "EditsAsDict": {"content": "dead"},
    "ParsesBack": {"content": "active"},
    "UnusedIterator": {"retrieval": "dead"},
    "ReturnsIterator": {"retrieval": "active"},
    "ExhaustedTwice": {"response": "dead"},
    "AwaitForgotten": {"response": "dead"},
    "Awaited": {"response": "active"},
    "Shielded": {"response": "dead"},
    "Finally": {"response": "dead"},
    "ElseBranch": {"response": "dead"},
    "Walrus": {"response": "conditional"},
    "Matched": {"response": "conditional"},
    "Sentences": {"response": "active"},
    "SentencesJoinedBack": {"response": "pass_through"},
    "Translated": {"query": "active"},
    "TranslatedNothing": {"query": "dead"},
    "Normal": {"query": "active"},
    "Instruct": {"prompt": "active"},
    "InstructLost": {"prompt": "dead"},
    "InstructIf": {"prompt": "conditional"},
    "Budget": {"retrieval": "dead"},
    "Clamp": {"retrieval": "active"},
    "MinScore": {"retrieval": "active"},
    "Dedupe": {"retrieval": "active"},
    "ReorderLost": {"retrieval": "dead"},
    "AnswerGuard": {"response": "conditional"},
    "AnswerGuardLost": {"response": "dead"},
    "MaskingParser": {"response": "active"},
    "LaterHook": {"response": "pass_through"},
    "WaitingHook": {"response": "stub"},
}
TEXTS = {
    "CaseNumbers": "see 12 C 345/20 today",
    "PrivilegedText": "this is privileged",
    "ReturnsIterator": "a sealed file",
    "Matched": "delete everything",
    "Normal": "\ufb01ne",
}
