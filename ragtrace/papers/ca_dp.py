"""CA-DP as Mind the Hook describes it: an artefact under audit, not a defense to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.defenses._budget import Recent
from ragtrace.defenses.dp_retrieval import DPRetrieval
from ragtrace.record.scope import conversation_id

if TYPE_CHECKING:
    from ragtrace.types import Document

_HALVINGS = 20


class CADP(DPRetrieval):
    """CA-DP of Mind the Hook (arXiv 2608.09001, Table I): a DP budget that composes over a dialogue, on scores alone.

    **This is the artefact under audit.** The paper says "composition-aware DP budget" and no more; our reading: the
    ``epsilon`` given is for a whole dialogue, and each turn spends half of what is left (ε ÷ 2, ε ÷ 4 …), so that the
    noise grows from turn to turn and the budget never runs out. Turns are counted within ``ragtrace.conversation(id)``;
    outside of one, each request is a dialogue of one turn. The response hook is a stub on purpose: it would compose the
    loss over generated tokens, and gives them back. What :class:`DPRetrieval` does not guarantee is not guaranteed
    here either; :class:`~ragtrace.defenses.DPTopK` is the one to use in an app.

    :param epsilon: of one dialogue, > 0. The others are those of :class:`DPRetrieval`.
    """

    name = "ca_dp"

    def __init__(
        self,
        epsilon: float = 1.0,
        sensitivity: float = 1.0,
        seed: int | None = None,
        higher_is_better: bool | None = None,
    ) -> None:
        super().__init__(epsilon, sensitivity, seed, higher_is_better)
        self._turns: Recent[int] = Recent(10_000)

    def _epsilon_now(self) -> float:
        """Half of what the dialogue has left."""
        id, turn = conversation_id(), 1
        if id is not None:
            turn = self._turns.update(id, lambda n: min((n or 0) + 1, _HALVINGS))
        return self.epsilon * 0.5**turn

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Would charge the dialogue's budget for what was generated."""
        # TODO: compose the loss over generated tokens; for the time being nothing happens to them
        return response
