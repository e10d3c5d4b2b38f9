"""Private-RAG as Mind the Hook describes it: an artefact under audit, not a defense to use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ragtrace.defenses.dp_retrieval import DPRetrieval

if TYPE_CHECKING:
    from ragtrace.types import Document


class PrivateRAG(DPRetrieval):
    """Private-RAG of Mind the Hook (arXiv 2608.09001, Table I): a filter on noisy scores, and a stub at the response.

    **This is the artefact under audit.** The paper says "DP-on-scores filter inspired by Koga et al." and no more; our
    reading: scores get Laplace noise as in :class:`DPRetrieval`, and of the documents ranked anew those at least as
    good as the middle one go on, so that it works for any unit of scores. Documents without a score go on as well. The
    response hook is a stub on purpose: the vote at generation, which Koga et al. (arXiv 2412.04697) are about, is not
    there. Nothing is guaranteed; :class:`~ragtrace.defenses.SparseVote` is the vote.
    """

    name = "private_rag"

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """The better half of the documents, by noisy scores."""
        noisy = super().on_retrieval(query, documents)
        scored = [d for d in noisy if d.score is not None and not math.isnan(d.score)]
        dropped = {id(d) for d in scored[(len(scored) + 1) // 2 :]}
        return [d for d in noisy if id(d) not in dropped]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Would vote on each token."""
        # TODO: sparse-vector vote over disjoint sets of documents; placeholder until then
        return response
