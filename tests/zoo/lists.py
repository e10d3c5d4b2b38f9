# ruff: noqa: C416, C417, RUF005 (specimens are written as people write them)
"""Defenses that act on documents and messages, or do not. ``TRUTH`` is checked by running them."""

from __future__ import annotations

import random
from dataclasses import replace

from ragtrace.defense import Defense
from ragtrace.types import Document, Message


class SortsInPlace(Defense):
    def on_retrieval(self, query, documents):
        documents.sort(key=lambda d: d.content)
        return documents


class SortsACopy(Defense):
    def on_retrieval(self, query, documents):
        ordered = list(documents)
        ordered.sort(key=lambda d: d.content)
        return documents


class Sorted(Defense):
    def on_retrieval(self, query, documents):
        return sorted(documents, key=lambda d: d.content)


class SortedAndLost(Defense):
    def on_retrieval(self, query, documents):
        sorted(documents, key=lambda d: d.content)
        return documents


class NoisyScores(Defense):
    def __init__(self) -> None:
        self.rng = random.Random(1)

    def on_retrieval(self, query, documents):
        noisy = []
        for d in documents:
            noisy.append(Document(d.content, d.id, (d.score or 0) + self.rng.gauss(0, 1), d.metadata))
        noisy.sort(key=lambda d: -d.score)
        return noisy


class EditsInPlace(Defense):
    def on_content(self, query, documents):
        for d in documents:
            d.content = d.content.replace("@", " at ")
        return documents


class EditsByIndex(Defense):
    def on_content(self, query, documents):
        for i in range(len(documents)):
            documents[i].content = "[REDACTED] " + documents[i].content
        return documents


class EditsSome(Defense):
    def on_content(self, query, documents):
        for d in documents:
            if "@" in d.content:
                d.content = "[REDACTED]"
        return documents


class ReadsOnly(Defense):
    def __init__(self) -> None:
        self.seen = 0

    def on_content(self, query, documents):
        for d in documents:
            if "@" in d.content:
                self.seen += 1
        return documents


class SetsTheSame(Defense):
    def on_content(self, query, documents):
        for d in documents:
            d.content = d.content
        return documents


class Rebuilds(Defense):
    def on_content(self, query, documents):
        return [replace(d, content=d.content.lower()) for d in documents]


class RebuildsTheSame(Defense):
    def on_content(self, query, documents):
        return [Document(content=d.content, id=d.id, score=d.score, metadata=d.metadata) for d in documents]


class CopiesOneByOne(Defense):
    def on_retrieval(self, query, documents):
        kept = []
        for document in documents:
            kept.append(document)
        return kept


class KeepsGoodOnes(Defense):
    def on_retrieval(self, query, documents):
        return [d for d in documents if (d.score or 0) > 0.5]


class KeepsAll(Defense):
    def on_retrieval(self, query, documents):
        return [d for d in documents][:]


class TopTwo(Defense):
    def on_retrieval(self, query, documents):
        return documents[:2]


class Reversed(Defense):
    def on_retrieval(self, query, documents):
        return documents[::-1]


class ShufflesACopy(Defense):
    def on_retrieval(self, query, documents):
        random.Random(3).shuffle(documents[:])
        return documents


class Instructs(Defense):
    def on_prompt(self, messages):
        return [Message("system", "Never quote."), *messages]


class InstructsInPlace(Defense):
    def on_prompt(self, messages):
        messages.insert(0, Message("system", "Never quote."))
        return messages


class InstructsNobody(Defense):
    def on_prompt(self, messages):
        with_rule = [Message("system", "Never quote.")] + messages
        assert with_rule
        return messages


class AsksElsewhere(Defense):
    def on_content(self, query, documents):
        from somewhere_else import anonymise

        return anonymise(documents)


class TwoHooks(Defense):
    def on_retrieval(self, query, documents):
        return list(reversed(documents))

    def on_response(self, query, documents, response):
        # placeholder
        return response


class MapsTheSame(Defense):
    def on_content(self, query, documents):
        return list(map(lambda d: d, documents))


class MapsMethod(Defense):
    def on_content(self, query, documents):
        return list(map(self.masked, documents))

    def masked(self, document):
        return replace(document, content="[" + document.content + "]")


TRUTH = {
    "SortsInPlace": {"retrieval": "active"},
    "SortsACopy": {"retrieval": "dead"},
    "Sorted": {"retrieval": "active"},
    "SortedAndLost": {"retrieval": "dead"},
    "NoisyScores": {"retrieval": "active"},
    "EditsInPlace": {"content": "active"},
    "EditsByIndex": {"content": "active"},
    "EditsSome": {"content": "conditional"},
    "ReadsOnly": {"content": "pass_through"},
    "SetsTheSame": {"content": "pass_through"},
    "Rebuilds": {"content": "active"},
    "RebuildsTheSame": {"content": "pass_through"},
    "CopiesOneByOne": {"retrieval": "pass_through"},
    "KeepsGoodOnes": {"retrieval": "active"},
    "KeepsAll": {"retrieval": "pass_through"},
    "TopTwo": {"retrieval": "active"},
    "Reversed": {"retrieval": "active"},
    "ShufflesACopy": {"retrieval": "dead"},
    "Instructs": {"prompt": "active"},
    "InstructsInPlace": {"prompt": "active"},
    "InstructsNobody": {"prompt": "pass_through"},
    "AsksElsewhere": {"content": "unknown"},
    "TwoHooks": {"retrieval": "active", "response": "stub"},
    "MapsTheSame": {"content": "pass_through"},
    "MapsMethod": {"content": "active"},
}
