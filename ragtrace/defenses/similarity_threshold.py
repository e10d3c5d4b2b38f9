"""Cuts documents that are not similar enough to the query."""

from __future__ import annotations

import math

from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.types import Document


class SimilarityThreshold(Defense):
    """Drops each document whose score is worse than ``threshold``.

    *Guaranteed*: no document with a worse score goes on, and the others stay as they were, in their order. *Not
    guaranteed*: any protection from a query that is close to its target, such as one that quotes it, as membership
    attacks do: it keeps away only who asks about something else. Which documents pass tells how near they are.

    A cut of this kind is examined as a mitigation in *The Good and the Bad* (Zeng et al., arXiv 2402.16893,
    "distance threshold"), where a higher threshold lowers what is extracted, at a cost in the quality of answers.

    :param threshold: finite, in the unit of the store's scores; a score equal to it passes.
    :param higher_is_better: ``True`` for similarities, ``False`` for distances. It is not guessed.
    :param keep_unscored: whether a document without a score (or with NaN) passes; by default it does not.
    :raises UsageError: for a value outside these ranges.
    """

    name = "similarity_threshold"

    def __init__(self, threshold: float = 0.5, higher_is_better: bool = True, keep_unscored: bool = False) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not math.isfinite(threshold):
            raise UsageError(f"threshold={threshold!r}; expected a finite number, in the unit of the store's scores")
        for parameter, value in (("higher_is_better", higher_is_better), ("keep_unscored", keep_unscored)):
            if not isinstance(value, bool):
                raise UsageError(f"{parameter}={value!r}; expected True or False")
        self.threshold = float(threshold)
        self.higher_is_better = higher_is_better
        self.keep_unscored = keep_unscored

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """Those that pass; none, where none does."""
        return [d for d in documents if self._passes(d.score)]

    def _passes(self, score: float | None) -> bool:
        if score is None or math.isnan(score):
            return self.keep_unscored
        return score >= self.threshold if self.higher_is_better else score <= self.threshold


DEFENSE = SimilarityThreshold
