"""Gives the model a summary of each document in its place."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from ragtrace.defense import Defense
from ragtrace.defenses._budget import check_whole
from ragtrace.errors import DefenseTypeError, UsageError
from ragtrace.types import Document

REQUEST = (
    "Summarise what the text says about the question, in your own words, in at most two sentences. Quote nothing, and "
    "leave out names, addresses and numbers that the question does not ask for.\n\nQuestion: {query}\n\nText: {text}"
)
"""What one may ask a model: ``SummarisedContext(lambda q, t: ask(REQUEST.format(query=q, text=t)))``."""
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = re.compile(r"\w+")
_DULL = frozenset(
    "a about all an and any are as at be been but by can did do does for from had has have how i if in is it its me my "
    "no not of on or our please say says she so tell that the their them there they this to us was we were what when "
    "where which who why will with would you your".split()
)

Summarise = Callable[[str, str], str] | Callable[[str, str], Awaitable[str]]


class SummarisedContext(Defense):
    """Replaces the text of each document by what ``summarise`` makes of it, with the query in view.

    Without a function the summary is extractive and made here: the ``sentences`` that share most words with the
    query, in their order; a document that shares none keeps its first one.

    *Guaranteed*: the model is given the summaries and not the texts. An extractive one holds at most ``sentences``
    sentences of each document, word for word. *Not guaranteed*: that a summary leaves out what ought to be left out. A
    model may quote, and a query about a person brings that person's sentences into the summary: so what is asked for
    is what is kept. An empty summary leaves an empty text.

    Summarising as a mitigation is examined in *The Good and the Bad* (Zeng et al., arXiv 2402.16893).

    :param summarise: (query, text) → summary, most often a call of a model, once a document, in the caller's thread. A
        coroutine function makes the hook ``async``: for pipelines called by ``ainvoke`` etc.
    :param sentences: how many an extractive summary has at most, ≥ 1.
    :raises UsageError: if ``summarise`` cannot be called, or for another number.
    """

    name = "summarised_context"

    def __init__(self, summarise: Summarise | None = None, sentences: int = 2) -> None:
        if summarise is not None and not callable(summarise):
            raise UsageError(f"SummarisedContext(summarise={summarise!r}); expected a function (query, text) → summary")
        self.sentences = check_whole("sentences", sentences)
        self._summarise: Callable[[str, str], Any] | None = summarise
        if inspect.iscoroutinefunction(summarise) or inspect.iscoroutinefunction(getattr(summarise, "__call__", None)):  # noqa: B004
            self.on_content = self._on_content_async  # type: ignore[method-assign, assignment]

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        """The documents with their summaries; metadata is left alone.

        :raises DefenseTypeError: if ``summarise`` returned something else than a string.
        """
        return [replace(d, content=self._summary(query, d.content)) for d in documents]

    async def _on_content_async(self, query: str, documents: list[Document]) -> list[Document]:
        if self._summarise is None:
            return self.on_content(query, documents)
        return [replace(d, content=_text(await self._summarise(query, d.content))) for d in documents]

    def _summary(self, query: str, text: str) -> str:
        if self._summarise is not None:
            return _text(self._summarise(query, text))
        found = [s for s in _SENTENCES.split(text) if s.strip()]
        asked = set(_WORDS.findall(query.casefold())) - _DULL
        shared = [len(asked.intersection(_WORDS.findall(s.casefold()))) for s in found]
        best = sorted(range(len(found)), key=lambda i: (-shared[i], i))[: self.sentences]
        told = [i for i in best if shared[i]] or best[:1]
        return " ".join(found[i].strip() for i in sorted(told))


def _text(summary: Any) -> str:
    if not isinstance(summary, str):
        if inspect.iscoroutine(summary):
            summary.close()
        raise DefenseTypeError(
            f"SummarisedContext: summarise returned {type(summary).__name__}, expected a str; "
            "return the model's text (for a chat model, its message's content), or give an `async def` function"
        )
    return summary.strip()


DEFENSE = SummarisedContext
