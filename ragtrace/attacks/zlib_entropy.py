"""Zlib (Carlini et al., arXiv 2012.07805): the loss, divided by how hard the text is to compress."""

from __future__ import annotations

import zlib

from ragtrace.attacks._likelihood import LikelihoodAttack, Likelihoods, mean
from ragtrace.attacks.base import Card


class ZlibEntropy(LikelihoodAttack):
    """The mean log-probability of the target's tokens ÷ bytes of the text when compressed."""

    name = "zlib_entropy"
    card = Card(
        paper="zlib, arXiv 2012.07805",
        prompt="That of s2mia; afterwards the target is scored as the continuation of what the model was given.",
        queries=1,
        access="target likelihoods",
        deviations=(
            "The paper attacks training data: here the model is the one that was given the retrieved documents, "
            "so a target counts as seen where its prompt holds it. The paper divides the logarithm of the "
            "perplexity by the entropy that zlib finds; we count bytes of zlib.compress at its default level, of "
            "the UTF-8 text. As the loss is a mean and the bytes are not, a long text scores nearer to 0 than a "
            "short one of the same loss: compare targets of like length."
        ),
    )

    def value(self, x: Likelihoods) -> float | None:
        """Minus loss ÷ compressed bytes: both parts positive, so the sign is that of the loss."""
        average = mean(x.logprobs)
        return None if average is None else average / len(zlib.compress(x.text.encode("utf-8", "replace")))


ATTACK = ZlibEntropy()
