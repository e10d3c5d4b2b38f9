"""Blocks queries that ask for the context itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from ragtrace.defense import Defense
from ragtrace.defenses._budget import Recent
from ragtrace.errors import DefenseTypeError, UsageError
from ragtrace.types import Document

_ALL = r"(?:all|any|every|each|the|this|that|these|those|your|its|entire|whole|full|complete|exact|original|of|\s)*"
_CONTEXT = (
    r"(?:context|documents?|passages?|chunks?|excerpts?|sources?|retriev\w+|prompts?|instructions?|input|text|above)"
)
_SAY = (
    r"(?:repeat|recite|print|output|reproduce|copy|dump|display|echo|return|list|quote|reveal|leak|disclose|translate"
    r"|encode|spell|show)"
)
PATTERNS: tuple[str, ...] = (
    rf"\b{_SAY}\b(?:\s+(?:me|us|out|back|again|here|verbatim|exactly))*\s+{_ALL}(?:\w+\s+){{0,2}}{_CONTEXT}\b",
    rf"\b(?:what|which)\b.{{0,40}}\b{_CONTEXT}\b.{{0,40}}\b(?:exactly|given to you|were you given)\b",
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instructions?|rules?|prompts?|above|previous|prior)\b",
    r"\b(?:verbatim|word[- ]for[- ]word|character by character)\b",
    r"\bcopy and (?:paste|output|print)\b",
    r"\bdoes? (?:this|the following) (?:text|passage|document|sentence)s? (?:appear|occur|exist)\b",
    r"\bis (?:this|the following|it) .{0,60}\b(?:in|part of) (?:your|the) "
    r"(?:context|documents?|database|knowledge base)\b",
)
"""Regular expressions, without regard to case, of queries that ask for the context, or whether it holds a text."""
INSTEAD = "a general question"
REFUSAL = "I cannot help with this request."


class QueryBlock(Defense):
    """Refuses a query that a pattern or a classifier recognises.

    A blocked query is replaced before retrieval, no document comes back for it, and its answer is a refusal; so it is
    blocked also where one of the three hooks is crossed by another path of the app. All three judge the query as the
    user asked it.

    *Guaranteed*: what a pattern matches, or the classifier says yes to, gets no document and no answer. *Not
    guaranteed*: that attacks look like that. Benign-looking questions extract as well (IKEA, arXiv 2505.15420), other
    languages, encodings and wordings pass the patterns, and an honest question may be blocked: measure that too. An
    attacker learns from the refusal. The model may still be called, with the query and no documents.

    Query blocking is met as a defense by the interrogation attack (arXiv 2502.00306), whose questions pass detectors.

    :param patterns: regular expressions in place of :data:`PATTERNS`, searched without regard to case in the query with
        single spaces; may be empty where there is a classifier.
    :param classifier: query → whether to block it (a bool); asked where no pattern matches, once a query.
    :param refusal: the answer to a blocked query, not empty.
    :raises UsageError: for a pattern that is invalid or matches the empty text, or nothing to block by.
    """

    name = "query_block"

    def __init__(
        self,
        patterns: Collection[str] = PATTERNS,
        classifier: Callable[[str], bool] | None = None,
        refusal: str = REFUSAL,
    ) -> None:
        wanted = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._patterns = tuple(_compiled(p) for p in wanted)
        if classifier is not None and not callable(classifier):
            raise UsageError(f"QueryBlock(classifier={classifier!r}); expected a function from query to bool")
        if not self._patterns and classifier is None:
            raise UsageError("QueryBlock(patterns=()) blocks nothing; expected a pattern or a classifier")
        if not isinstance(refusal, str) or not refusal.strip():
            raise UsageError(f"QueryBlock(refusal={refusal!r}); expected a text that is not empty")
        self._classifier = classifier
        self._judged: Recent[bool] = Recent(1_000)
        self.refusal = refusal

    def on_query(self, query: str) -> str:
        """The query; for a blocked one, words that say nothing of it (some stores take no empty query)."""
        return INSTEAD if self.blocks(query) else query

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """The documents; none for a blocked query."""
        return [] if self.blocks(query) else documents

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """The answer; for a blocked query, the refusal."""
        return self.refusal if self.blocks(query) else response

    def blocks(self, query: str) -> bool:
        """Whether this query is blocked.

        :raises DefenseTypeError: if the classifier returned something else than a bool.
        """
        asked = " ".join(query.split())
        if any(p.search(asked) for p in self._patterns):
            return True
        if self._classifier is None:
            return False
        if (known := self._judged.get(query)) is None:
            told = _told(self._classifier(query))
            known = self._judged.update(query, lambda _: told)
        return known

    def constants(self) -> frozenset[str]:
        """The refusal, and what stands for a blocked query."""
        return frozenset({self.refusal, INSTEAD})


def _told(answer: Any) -> bool:
    if type(answer).__name__ not in ("bool", "bool_"):  # numpy's is no subclass
        raise DefenseTypeError(
            f"QueryBlock: classifier returned {type(answer).__name__}, expected a bool; "
            "compare a score with a threshold"
        )
    return bool(answer)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except (re.error, TypeError) as error:
        raise UsageError(f"QueryBlock pattern {pattern!r}: {error}; expected a regular expression") from error
    if compiled.search("") is not None:
        raise UsageError(f"QueryBlock pattern {pattern!r} matches the empty text, and would block every query")
    return compiled


DEFENSE = QueryBlock
