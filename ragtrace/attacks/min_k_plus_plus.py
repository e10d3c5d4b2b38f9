"""Min-k %++ (Zhang et al., arXiv 2404.02936): min-k %, with each token measured against what else could have come."""

from __future__ import annotations

from ragtrace.attacks._likelihood import LikelihoodAttack, Likelihoods, lowest_mean
from ragtrace.attacks.base import Card


class MinKPlusPlus(LikelihoodAttack):
    """The mean standardised log-probability of the lowest tokens."""

    name = "min_k_plus_plus"
    card = Card(
        paper="Min-K%++, arXiv 2404.02936",
        prompt="That of s2mia; afterwards the target is scored as the continuation of what the model was given.",
        queries=1,
        access="target likelihoods",
        deviations=(
            "The paper attacks training data: here the model is the one that was given the retrieved documents, "
            "so a target counts as seen where its prompt holds it. A token's value is (log p − μ) ÷ σ, with mean "
            "and standard deviation of log p(z) for z drawn from the model's own distribution at that place; "
            "where that is one token alone (σ = 0) the token is left out. k = 20 %, which the paper leaves to be "
            "tuned; rounded down, at least one."
        ),
    )

    def value(self, x: Likelihoods) -> float | None:
        """The mean of the lowest 20 % of (log p − μ) ÷ σ."""
        return lowest_mean([(p - m) / s for p, m, s in zip(x.logprobs, x.mu, x.sigma, strict=True) if s > 0])


ATTACK = MinKPlusPlus()
