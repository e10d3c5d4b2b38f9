"""PM of Mind the Hook, read as prompt manipulation: override, role and format tricks round the requests of PS."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ragtrace.attacks._anchors import anchors
from ragtrace.attacks._templates import REQUEST, TOPIC, filled, read
from ragtrace.attacks.base import Card
from ragtrace.types import Probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ragtrace.types import Corpus


class PromptManipulation:
    """``count`` requests of prompt stealing, each inside a trick.

    :param pack: a TOML file with tricks of the user's, in place of ``packs/prompt_manipulation.toml``.
    :param requests: a TOML file with the requests inside them, in place of ``packs/prompt_stealing.toml``.
    :raises InputError: for a pack that cannot be used.
    """

    name = "prompt_manipulation"
    card = Card(
        paper="Mind the Hook, arXiv 2608.09001, attack PM",
        prompt="A plain request for the context, wrapped in an override, a role, a format or a pretext.",
        queries="none are aimed at one target; 50 by default in all",
        access="text",
        deviations="The paper does not expand PM: prompt manipulation, the templates and their number are our reading.",
    )

    def __init__(self, count: int = 50, pack: str | Path | None = None, requests: str | Path | None = None) -> None:
        self.count = count
        self.tricks = read("prompt_manipulation", REQUEST, pack)
        self.requests = read("prompt_stealing", TOPIC, requests)

    def probes(self, corpus: Corpus, seed: int) -> Iterator[Probe]:
        """Probes aimed at the corpus as a whole; ``detail["family"]`` is the family of the trick.

        :raises InputError: for a corpus without topics. :raises UsageError: for a count out of range.
        """
        rng = random.Random(f"{self.name} {seed}")  # noqa: S311 (seeded on purpose)
        topics = anchors(corpus)
        most = len(self.requests) * len(topics)
        wanted = min(self.count, most) if type(self.count) is int and self.count > 0 else most
        requests = [r.text for r in filled(self.requests, TOPIC, topics, wanted, rng)]
        for i, made in enumerate(filled(self.tricks, REQUEST, requests, self.count, rng), 1):
            detail = {"family": made.family}
            yield Probe(f"{self.name}-{seed}-{i:04d}", self.name, made.text, corpus.name, seed, detail=detail)


ATTACK = PromptManipulation()
