"""Laplace noise on retrieval scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ragtrace.defense import Defense
from ragtrace.defenses._chance import check_seed, positive, source
from ragtrace.errors import UsageError
from ragtrace.types import Document


class DPRetrieval(Defense):
    """Adds Laplace noise of scale ``sensitivity / epsilon`` to each score and ranks the documents anew.

    *Guaranteed*: each released score, taken alone, carries Laplace noise of that scale. *Not guaranteed*: differential
    privacy of what the user gets. Noise on scores is no ε-DP for the top-k unless three things are accounted for:

    - **sensitivity**: ``sensitivity`` must bound how far one document's presence can move any score. For scores in
      [0, 1] that is 1; an unbounded distance has no such bound, and none is enforced here (scores are not clipped);
    - **the candidate set**: the noise reaches only the documents the store returned. Which ones they are was decided
      without noise, so a document's absence from the candidates shows through, and the text of a document that is
      chosen leaves in the clear;
    - **composition**: one call releases one noisy score for each candidate, up to k of them seen: k·ε by basic
      composition, again for each further query. No budget is kept here.

    Floating-point Laplace samples have gaps that leak as well (Mironov, CCS 2012). The generated text is not touched.
    Where a guarantee is wanted, see :class:`~ragtrace.defenses.DPTopK`.

    It does what Mind the Hook (arXiv 2608.09001, Table I) audits as **DP-R** at its one active hook, with ε ∈ {1, 5}
    there. Nearest with a proof: DP-RAG (arXiv 2412.19291) and per-document privacy filters (arXiv 2511.07637).

    Documents without a score, or with NaN, keep their rank and get no noise; only the scored ones change places among
    themselves. Where no document has a score, nothing changes, which the ledger records as ``unchanged``.

    :param epsilon: > 0, finite; smaller is noisier.
    :param sensitivity: > 0, finite, in the unit of the scores.
    :param seed: makes the noise a function of (seed, query), for audits that can be repeated; whoever knows the
        seed can take the noise off. ``None``: fresh randomness from the operating system.
    :param higher_is_better: whether a larger score is a better one (similarity) or a worse one (distance). ``None``:
        read from the order of the documents, best first, for each call; larger is better where it does not tell.
    :raises UsageError: for a value outside these ranges.
    """

    name = "dp_retrieval"

    def __init__(
        self,
        epsilon: float = 1.0,
        sensitivity: float = 1.0,
        seed: int | None = None,
        higher_is_better: bool | None = None,
    ) -> None:
        self.epsilon = positive("epsilon", epsilon)
        self.sensitivity = positive("sensitivity", sensitivity)
        if not 0 < self.sensitivity / self.epsilon < math.inf:
            raise UsageError(f"sensitivity / epsilon = {sensitivity!r} / {epsilon!r} is no finite positive noise scale")
        if higher_is_better not in (None, True, False):
            raise UsageError(f"higher_is_better={higher_is_better!r}; expected True, False or None (infer)")
        self.seed = check_seed(seed)
        self.higher_is_better = higher_is_better

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """New documents with noisy scores, best first; the ones given are not touched."""
        scored = [(i, d.score) for i, d in enumerate(documents) if d.score is not None and not math.isnan(d.score)]
        chance, rate = source(self.seed, query), self._epsilon_now() / self.sensitivity
        # the difference of two exponential variables of one rate has the Laplace distribution of scale 1/rate
        noisy = [
            replace(documents[i], score=score + chance.expovariate(rate) - chance.expovariate(rate))
            for i, score in scored
        ]
        higher = self.higher_is_better
        if higher is None:
            higher = _higher_is_better([score for _, score in scored])
        noisy.sort(key=lambda d: d.score or 0.0, reverse=higher)
        ranked = list(documents)
        for (i, _), document in zip(scored, noisy, strict=True):
            ranked[i] = document
        return ranked

    def _epsilon_now(self) -> float:
        """The ε of the request being made."""
        return self.epsilon


def _higher_is_better(scores: Sequence[float]) -> bool:
    """Read from documents that come best first: do scores fall more often than they rise?"""
    return sum((a > b) - (a < b) for a, b in pairwise(scores)) >= 0


DEFENSE = DPRetrieval
