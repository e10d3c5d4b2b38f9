"""Loss (Yeom et al., arXiv 1709.01604): a text that was seen has a low loss."""

from __future__ import annotations

from ragtrace.attacks._likelihood import LikelihoodAttack, Likelihoods, mean
from ragtrace.attacks.base import Card


class Loss(LikelihoodAttack):
    """The mean log-probability of the target's tokens."""

    name = "loss"
    card = Card(
        paper="Loss, arXiv 1709.01604",
        prompt="That of s2mia; afterwards the target is scored as the continuation of what the model was given.",
        queries=1,
        access="target likelihoods",
        deviations=(
            "The paper attacks training data: here the model is the one that was given the retrieved documents, "
            "so a target counts as seen where its prompt holds it. Score: minus the mean negative log-likelihood "
            "a token; no threshold is taken from the paper."
        ),
    )

    def value(self, x: Likelihoods) -> float | None:
        """Minus the loss."""
        return mean(x.logprobs)


ATTACK = Loss()
