"""Changes the order of what was retrieved, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

from ragtrace.defense import Defense
from ragtrace.defenses._chance import check_seed, source
from ragtrace.errors import DefenseTypeError, UsageError
from ragtrace.types import Document

Order = Callable[[str, list[Document]], list[Document]]
"""(query, documents best first) → the same documents in another order."""


class Rerank(Defense):
    """Reorders the retrieved documents: backwards, at random, or as a function of the user's says.

    *Guaranteed*: the same documents, with texts and scores as they were. *Not guaranteed*: any protection. With a pool
    larger than the app's k (the adapters' ``oversample``) the order decides which documents stay; see ``first``.

    "Re-ranking" in S²MIA (arXiv 2406.19234), Table 4, where the attack's ROC AUC stays between 0.59 and 0.70. It alters
    the order of what reaches the prompt; set ``first`` to the app's k to do exactly that.

    :param order: ``"reverse"``, ``"shuffle"``, or a function (query, documents) → documents.
    :param seed: makes ``"shuffle"`` a function of (seed, query); ``None`` shuffles afresh each time.
    :param first: reorder only so many documents from the top, ≥ 1; ``None`` means all.
    :raises UsageError: for another order, seed or number.
    """

    name = "rerank"

    def __init__(
        self,
        order: Literal["reverse", "shuffle"] | Order = "reverse",
        seed: int | None = None,
        first: int | None = None,
    ) -> None:
        if not callable(order) and order not in ("reverse", "shuffle"):
            raise UsageError(f"Rerank(order={order!r}); expected 'reverse', 'shuffle' or a function")
        if first is not None and (isinstance(first, bool) or not isinstance(first, int) or first < 1):
            raise UsageError(f"Rerank(first={first!r}); expected an int ≥ 1, or None for all documents")
        self.order = order
        self.seed = check_seed(seed)
        self.first = first

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """The documents in the new order.

        :raises DefenseTypeError: if the user's function added, dropped or exchanged documents.
        """
        top, rest = documents[: self.first], documents[len(documents[: self.first]) :]
        if self.order == "reverse":
            top = top[::-1]
        elif self.order == "shuffle":
            source(self.seed, query).shuffle(top)
        elif callable(self.order):
            top = _permutation(self.order(query, list(top)), top)
        return top + rest


def _permutation(found: list[Document], given: list[Document]) -> list[Document]:
    if not isinstance(found, list) or Counter(map(id, found)) != Counter(map(id, given)):
        got = f"{len(found)} documents, not the same ones" if isinstance(found, list) else type(found).__name__
        raise DefenseTypeError(
            f"Rerank: order returned {got}; expected a list of the {len(given)} documents it was given, each once "
            "(a defense that adds, drops or rewrites documents is no re-ranking: subclass ragtrace.Defense)"
        )
    return found


DEFENSE = Rerank
