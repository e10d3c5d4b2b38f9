"""Rewrites the query before retrieval."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ragtrace.defense import Defense
from ragtrace.errors import DefenseTypeError, UsageError

REQUEST = "Rewrite the following question in other words. Keep its meaning. Answer with the question alone.\n\n{query}"
"""What one may ask the pipeline's own model for: ``Paraphrase(lambda q: ask(REQUEST.format(query=q)))``."""


class Paraphrase(Defense):
    """Replaces the query by what ``rewrite`` makes of it, so that retrieval is not steered by the exact wording.

    *Guaranteed*: retrieval is given the rewritten query, unless the rewriting is empty, when it is given the original.
    *Not guaranteed*: that the rewriting hides anything. A faithful paraphrase of a unique text still finds that text,
    and a weak model may answer the query, or repeat it, in place of rewriting it.

    "Paraphrasing" in S²MIA (arXiv 2406.19234), Table 4, where it lowers the attack's ROC AUC to between 0.51 and 0.61.

    :param rewrite: query → rewritten query, most often a call of the pipeline's own model. It runs for each query, in
        the caller's thread. A coroutine function makes the hook ``async``: for pipelines called by ``ainvoke`` etc.
    :raises UsageError: if it cannot be called.
    """

    name = "paraphrase"

    def __init__(self, rewrite: Callable[[str], str] | Callable[[str], Awaitable[str]]) -> None:
        if not callable(rewrite):
            raise UsageError(f"Paraphrase(rewrite={rewrite!r}); expected a function from query to rewritten query")
        self._rewrite: Callable[[str], Any] = rewrite
        if inspect.iscoroutinefunction(rewrite) or inspect.iscoroutinefunction(type(rewrite).__call__):
            self.on_query = self._on_query_async  # type: ignore[method-assign, assignment]

    def on_query(self, query: str) -> str:
        """The rewritten query.

        :raises DefenseTypeError: if ``rewrite`` returned something else than a string.
        """
        return _sane(self._rewrite(query), query)

    async def _on_query_async(self, query: str) -> str:
        return _sane(await self._rewrite(query), query)


def _sane(rewritten: Any, query: str) -> str:
    """``rewritten`` without the white space round it, or ``query`` where nothing is left."""
    if not isinstance(rewritten, str):
        if inspect.iscoroutine(rewritten):
            rewritten.close()
        raise DefenseTypeError(
            f"Paraphrase: rewrite returned {type(rewritten).__name__}, expected a str; "
            "return the model's text (for a chat model, its message's content), or give an `async def` function"
        )
    return rewritten.strip() or query


DEFENSE = Paraphrase
