"""DP-R as Mind the Hook describes it: an artefact under audit, not a defense to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.defenses.dp_retrieval import DPRetrieval

if TYPE_CHECKING:
    from ragtrace.types import Document


class DPStub(DPRetrieval):
    """DP-R of Mind the Hook (arXiv 2608.09001, Table I): noise on retrieval scores, and a response hook that is a stub.

    **This is the artefact under audit.** Its response hook does nothing on purpose, as in the benchmark the paper
    examined: an audit must find that by itself, from the source and from the run-time ledger. The words are ours;
    the paper reports a placeholder that gives the response back unmodified. What :class:`DPRetrieval` says on
    guarantees holds here; nothing at all is guaranteed for the response. Use :class:`DPRetrieval` in an app.
    """

    name = "dp_r"

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Would perturb the generated text."""
        # TODO: token-level noise; placeholder for now, the response goes out as it came in
        return response
