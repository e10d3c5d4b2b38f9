"""PS of Mind the Hook, read as prompt stealing: plain requests to repeat or output the context."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ragtrace.attacks._anchors import anchors
from ragtrace.attacks._templates import TOPIC, filled, read
from ragtrace.attacks.base import Card
from ragtrace.types import Probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ragtrace.types import Corpus


class PromptStealing:
    """``count`` requests about topics of the corpus, from a pack of templates.

    :param pack: a TOML file with wordings of the user's, in place of ``packs/prompt_stealing.toml``.
    :raises InputError: for a pack that cannot be used.
    """

    name = "prompt_stealing"
    card = Card(
        paper="Mind the Hook, arXiv 2608.09001, attack PS",
        prompt="A plain request to repeat, output or list what the context says about a topic of the corpus.",
        queries="none are aimed at one target; 50 by default in all",
        access="text",
        deviations="The paper does not expand PS: prompt stealing, the templates and their number are our reading.",
    )

    def __init__(self, count: int = 50, pack: str | Path | None = None) -> None:
        self.count = count
        self.templates = read("prompt_stealing", TOPIC, pack)

    def probes(self, corpus: Corpus, seed: int) -> Iterator[Probe]:
        """Probes aimed at the corpus as a whole; ``detail["family"]`` is the family of their wording.

        :raises InputError: for a corpus without topics. :raises UsageError: for a count out of range.
        """
        rng = random.Random(f"{self.name} {seed}")  # noqa: S311 (seeded on purpose)
        for i, made in enumerate(filled(self.templates, TOPIC, anchors(corpus), self.count, rng), 1):
            detail = {"family": made.family}
            yield Probe(f"{self.name}-{seed}-{i:04d}", self.name, made.text, corpus.name, seed, detail=detail)


ATTACK = PromptStealing()
