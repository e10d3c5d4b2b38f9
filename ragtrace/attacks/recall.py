"""ReCaLL (Xie et al., arXiv 2406.15968): texts that were not seen, put before the target, harm a seen one most."""

from __future__ import annotations

from ragtrace.attacks._likelihood import LikelihoodAttack, Likelihoods, mean
from ragtrace.attacks.base import Card


class ReCaLL(LikelihoodAttack):
    """Log-likelihood after a prefix of non-members ÷ log-likelihood without it."""

    name = "recall"
    needs = ("text", "prefixed")
    hint = "; the corpus must have non-members that are no targets (lower count)"
    card = Card(
        paper="ReCaLL, arXiv 2406.15968",
        prompt="That of s2mia; afterwards the target is scored as the continuation of what the model was given.",
        queries=1,
        access="target likelihoods",
        deviations=(
            "The paper attacks training data: here the model is the one that was given the retrieved documents, "
            "so a target counts as seen where its prompt holds it. Means a token, as in the paper's code. The "
            "prefix is the same for all targets of a seed: at most 5 texts and 400 words of non-members that are "
            "no targets; the paper tunes the number of texts, and shows that others serve too. It stands between "
            "the prompt and the target, so that both likelihoods are of the same model. Without such non-members "
            "there is no score."
        ),
    )

    def value(self, x: Likelihoods) -> float | None:
        """A ratio of two negative numbers, above 1 where the prefix harms."""
        own = mean(x.logprobs)
        return None if not own or x.prefixed is None else x.prefixed / own


ATTACK = ReCaLL()
