"""Written to be unlike the rest: idioms of other people. Their first reading was an estimate of an unseen zoo's."""

from __future__ import annotations

import contextlib
import copy
import functools
import heapq
import hashlib
import logging
import operator
import os
import random
import re
import string
from collections import OrderedDict
from enum import Enum
from typing import Callable, Iterable

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import Document as LCDocument
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from ragtrace import Defense
from ragtrace.types import Document, Message

logger = logging.getLogger("app")
EMAIL = re.compile(r"\S+@\S+")
RULES: list[tuple[re.Pattern, str]] = [(EMAIL, "[EMAIL]"), (re.compile(r"\d{3}-\d{4}"), "[TEL]")]
DISPATCH: dict[str, Callable[[str], str]] = {"mask": lambda t: EMAIL.sub("#", t), "none": lambda t: t}


class Mode(Enum):
    OFF = 0
    ON = 1


class Reduces(Defense):
    def on_response(self, query, documents, response):
        return functools.reduce(lambda acc, rule: rule[0].sub(rule[1], acc), RULES, response)


class Dispatches(Defense):
    mode = "mask"

    def on_response(self, query, documents, response):
        return DISPATCH[self.mode](response)


class Walrus(Defense):
    def on_response(self, query, documents, response):
        if (m := EMAIL.search(response)) is None:
            return response
        return response[: m.start()] + "[gone]" + response[m.end() :]


class Suppresses(Defense):
    def on_response(self, query, documents, response):
        with contextlib.suppress(Exception):
            response = self._missing_engine.mask(response)
        return response


class FinallyWins(Defense):
    def on_response(self, query, documents, response):
        original = response
        try:
            response = EMAIL.sub("", response)
            return response
        finally:
            return original


class TryElse(Defense):
    def on_query(self, query):
        try:
            n = len(query)
        except TypeError:
            return query
        else:
            return query.translate(str.maketrans("", "", string.punctuation))


class Nested(Defense):
    def on_response(self, query, documents, response):
        def inner(text):
            def deeper(t):
                return t.replace("@", "(at)")

            return deeper(text)

        return inner(response)


class NestedIdle(Defense):
    def on_response(self, query, documents, response):
        def mask(text):
            return text.replace("@", "(at)")

        return response


class LambdaAttribute(Defense):
    clean = staticmethod(lambda t: EMAIL.sub("", t))

    def on_response(self, query, documents, response):
        return self.clean(response)


class AssignedMethod(Defense):
    def _mask(self, query, documents, response):
        return EMAIL.sub("*", response)

    on_response = _mask


class CallableHelper:
    def __call__(self, text: str) -> str:
        return EMAIL.sub("%", text)


class UsesCallable(Defense):
    def __init__(self):
        self.mask = CallableHelper()

    def on_response(self, query, documents, response):
        return self.mask(response)


class SliceAssign(Defense):
    def on_retrieval(self, query, documents):
        documents[:] = [d for d in documents if d.score is None or d.score > 0.5]
        return documents


class DeletesTail(Defense):
    def on_retrieval(self, query, documents):
        del documents[2:]
        return documents


class HeapTop(Defense):
    def on_retrieval(self, query, documents):
        return heapq.nlargest(2, documents, key=operator.attrgetter("score"))


class CopyShuffled(Defense):
    def on_retrieval(self, query, documents):
        shuffled = documents.copy()
        random.Random(5).shuffle(shuffled)
        return documents


class ReplacesLoopVariable(Defense):
    def on_content(self, query, documents):
        for d in documents:
            d = Document(EMAIL.sub("", d.content), d.id, d.score, d.metadata)
        return documents


class IndexAssign(Defense):
    def on_content(self, query, documents):
        for i, d in enumerate(documents):
            documents[i] = Document(EMAIL.sub("", d.content), d.id, d.score, d.metadata)
        return documents


class VarsUpdate(Defense):
    def on_content(self, query, documents):
        for d in documents:
            setattr(d, "content", EMAIL.sub("", getattr(d, "content")))
        return documents


class MatchStatement(Defense):
    level = "high"

    def on_response(self, query, documents, response):
        match self.level:
            case "high":
                return EMAIL.sub("", response)
            case _:
                return response


class EnumOff(Defense):
    mode = Mode.OFF

    def on_response(self, query, documents, response):
        if self.mode is Mode.ON:
            return EMAIL.sub("", response)
        return response


class EnvironmentFlag(Defense):
    def on_response(self, query, documents, response):
        if os.environ.get("RAGTRACE_ZOO_MASK") == "1":
            return EMAIL.sub("", response)
        return response


class PropertyFlag(Defense):
    @property
    def enabled(self):
        return False

    def on_response(self, query, documents, response):
        return EMAIL.sub("", response) if self.enabled else response


class Recursive(Defense):
    def on_response(self, query, documents, response):
        return self._strip(response, 3)

    def _strip(self, text, depth):
        if depth == 0:
            return text
        return self._strip(text.replace("@", ""), depth - 1)


class ComputesHash(Defense):
    def on_response(self, query, documents, response):
        digest = hashlib.sha256(response.encode()).hexdigest()
        logger.info("response %s", digest)
        return response


class AddsSystemMessage(Defense):
    def on_prompt(self, messages):
        rule = Message(role="system", content="Do not quote.")
        return messages + [rule]


class RewritesMessages(Defense):
    def on_prompt(self, messages):
        out = []
        for m in messages:
            content = m.content
            if m.role == "user":
                content = EMAIL.sub("", content)
            out.append(Message(m.role, content))
        return out


class CopiesMessages(Defense):
    def on_prompt(self, messages):
        return copy.deepcopy(messages)


class StringJoin(Defense):
    def on_response(self, query, documents, response):
        words = response.split()
        kept = [w for w in words if not EMAIL.match(w)]
        return " ".join(kept)


class WrongWay(Defense):
    def on_response(self, query, documents, response):
        masked = response
        response = EMAIL.sub("", response)
        return masked


class ReturnsInElse(Defense):
    def on_response(self, query, documents, response):
        for pattern, label in RULES:
            if pattern.search(response):
                break
        else:
            return response
        return "I cannot share that."


class BudgetedGuard:
    def __init__(self, budget: int = 3):
        self.budget = budget
        self.used = 0

    def filter_output(self, answer: str) -> str:
        self.used += 1
        if self.used > self.budget:
            return "Budget exhausted."
        return answer


class SettingsGuard:
    DEFAULTS = {"mask": True}

    def __init__(self, **overrides):
        self.settings = {**self.DEFAULTS, **overrides}

    def filter_output(self, answer):
        if self.settings["mask"]:
            answer = EMAIL.sub("", answer)
        return answer


class ScoreNoise:
    def apply_defense_retrieval(self, results):
        rng = random.Random(1)
        return [(doc, score + rng.gauss(0, 1)) for doc, score in results]


class ScoreNoiseLost:
    def apply_defense_retrieval(self, results):
        rng = random.Random(1)
        noisy = []
        for doc, score in results:
            noisy.append((doc, score + rng.gauss(0, 1)))
        return results


class PairsAgain:
    def apply_defense_retrieval(self, results):
        return [(doc, score) for doc, score in results]


class LongestFirst(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        ranked: OrderedDict = OrderedDict()
        for d in sorted(documents, key=lambda d: len(d.page_content)):
            ranked[d.page_content] = d
        return list(ranked.values())


class SnippetCompressor(BaseDocumentCompressor):
    limit: int = 5

    def compress_documents(self, documents, query, callbacks=None):
        return [LCDocument(page_content=d.page_content[: self.limit], metadata={**d.metadata}) for d in documents]


class LastMessageOnly(AgentMiddleware):
    def after_model(self, state, runtime=None):
        messages = list(state["messages"])
        last = messages.pop()
        if not isinstance(last, AIMessage) or not EMAIL.search(str(last.content)):
            return None
        messages.append(AIMessage(content="[blocked]", id=last.id))
        return {"messages": messages}


class NodeDropper(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        keep = []
        for node in nodes:
            if EMAIL.search(node.get_content()):
                continue
            keep.append(node)
        return keep


class NodeMetadataScrub(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        for node in nodes:
            node.metadata["author"] = "anonymous"
        return nodes


TRUTH = {
    "Reduces": {"response": "active"},
    "Dispatches": {"response": "active"},
    "Walrus": {"response": "conditional"},
    "Suppresses": {"response": "dead"},
    "FinallyWins": {"response": "dead"},
    "TryElse": {"query": "active"},
    "Nested": {"response": "active"},
    "NestedIdle": {"response": "dead"},
    "LambdaAttribute": {"response": "active"},
    "AssignedMethod": {"response": "active"},
    "UsesCallable": {"response": "active"},
    "SliceAssign": {"retrieval": "active"},
    "DeletesTail": {"retrieval": "active"},
    "HeapTop": {"retrieval": "active"},
    "CopyShuffled": {"retrieval": "dead"},
    "ReplacesLoopVariable": {"content": "dead"},
    "IndexAssign": {"content": "active"},
    "VarsUpdate": {"content": "active"},
    "MatchStatement": {"response": "active"},
    "EnumOff": {"response": "dead"},
    "EnvironmentFlag": {"response": "conditional"},
    "PropertyFlag": {"response": "dead"},
    "Recursive": {"response": "active"},
    "ComputesHash": {"response": "pass_through"},
    "AddsSystemMessage": {"prompt": "active"},
    "RewritesMessages": {"prompt": "active"},
    "CopiesMessages": {"prompt": "pass_through"},
    "StringJoin": {"response": "active"},
    "WrongWay": {"response": "dead"},
    "ReturnsInElse": {"response": "conditional"},
    "BudgetedGuard": {"response": "conditional"},
    "SettingsGuard": {"response": "conditional"},
    "ScoreNoise": {"retrieval": "active"},
    "ScoreNoiseLost": {"retrieval": "dead"},
    "PairsAgain": {"retrieval": "pass_through"},
    "LongestFirst": {"retrieval": "active"},
    "SnippetCompressor": {"content": "active"},
    "LastMessageOnly": {"response": "conditional"},
    "NodeDropper": {"retrieval": "active"},
    "NodeMetadataScrub": {"content": "active"},
}
