"""Neighbourhood (Mattern et al., arXiv 2305.18462): a seen text is likelier than texts that differ a little."""

from __future__ import annotations

from ragtrace.attacks._likelihood import LikelihoodAttack, Likelihoods, mean
from ragtrace.attacks.base import Card


class Neighbourhood(LikelihoodAttack):
    """Mean loss of changed versions of the target, minus the target's loss."""

    name = "neighbourhood"
    needs = ("text", "neighbour")
    hint = "; a target needs a word, and other targets to take words from"
    card = Card(
        paper="Neighbourhood attack, arXiv 2305.18462",
        prompt="That of s2mia; afterwards the target is scored as the continuation of what the model was given.",
        queries=1,
        access="target likelihoods",
        deviations=(
            "The paper attacks training data: here the model is the one that was given the retrieved documents, "
            "so a target counts as seen where its prompt holds it. 25 neighbours; each has 5 % of its words (at "
            "least one) replaced. The paper draws replacements from a masked language model (words that fit the "
            "place); we work offline and draw words of the other targets of the run, seeded, as often as they "
            "occur there, and of the same shape (capitals, digits, length of number). Such neighbours are less "
            "fluent than the paper's, so the difference is greater for every target, and greatest for texts whose "
            "words are rare; neighbours are scored after the same prompt as the target."
        ),
    )

    def value(self, x: Likelihoods) -> float | None:
        """Higher where the target stands out from its neighbours."""
        own, others = mean(x.logprobs), mean(x.neighbours)
        return None if own is None or others is None else own - others


ATTACK = Neighbourhood()
