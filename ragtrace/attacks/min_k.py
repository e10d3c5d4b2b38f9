"""Min-k % (Shi et al., arXiv 2310.16789): even the least likely tokens of a text that was seen are likely."""

from __future__ import annotations

from ragtrace.attacks._likelihood import LikelihoodAttack, Likelihoods, lowest_mean
from ragtrace.attacks.base import Card


class MinK(LikelihoodAttack):
    """The mean log-probability of the least likely tokens."""

    name = "min_k"
    card = Card(
        paper="Min-K% Prob, arXiv 2310.16789",
        prompt="That of s2mia; afterwards the target is scored as the continuation of what the model was given.",
        queries=1,
        access="target likelihoods",
        deviations=(
            "The paper attacks training data: here the model is the one that was given the retrieved documents, "
            "so a target counts as seen where its prompt holds it. k = 20 %, the paper's choice; the number of "
            "tokens is rounded down, and at least one."
        ),
    )

    def value(self, x: Likelihoods) -> float | None:
        """The mean of the lowest 20 %."""
        return lowest_mean(x.logprobs)


ATTACK = MinK()
