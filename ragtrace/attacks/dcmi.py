"""DCMI (arXiv 2509.06026): how much the membership signal falls when the target is perturbed.

A model that says yes to anything says yes to both texts; one that has the target before it tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ragtrace.attacks._membership import MembershipAttack, Query
from ragtrace.attacks._words import Strangers, Word, document_frequency, hardness, swap, tells, words
from ragtrace.attacks._yes_no import probabilities, recognise
from ragtrace.attacks.base import Card
from ragtrace.attacks.rag_mia import INSTRUCTION, NO_CANDIDATES
from ragtrace.errors import UsageError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from ragtrace.metrics._read import Reply, Target
    from ragtrace.types import Corpus, Document

_PROMPT = "The target, then a copy with some words replaced, each with the question whether it is part of the context."
_DEVIATIONS = (
    "RAG-MIA's question in our wording is asked of both. The paper has a language model turn about 3 % of the words "
    "(at least one), adjectives and adverbs, into their opposite; without one (`perturb`) as many words, the hardest "
    "to guess, are replaced by words of other documents. The paper's threshold is left to the statistics. "
)


class DCMI(MembershipAttack):
    """The text form: (yes to the target) - (yes to the copy), -1, 0 or 1.

    :param fraction: share of the words that is replaced, in (0, 1]; at least one word is.
    :param perturb: text → perturbed text, in place of ours; what is not deterministic belongs behind a cache.
    """

    name = "dcmi"
    no_score = "no target could be perturbed, or not both answers were readable"
    card = Card(
        paper="DCMI, arXiv 2509.06026",
        prompt=_PROMPT,
        queries=2,
        access="text",
        deviations=_DEVIATIONS + "The paper's signal is a probability (dcmi_prob): an answer's text is coarser.",
    )

    def __init__(
        self, count: int | None = None, fraction: float = 0.03, perturb: Callable[[str], str] | None = None
    ) -> None:
        super().__init__(count)
        if not 0 < fraction <= 1:
            raise UsageError(f"fraction is {fraction}; expected a number above 0 and at most 1")
        if perturb is not None and not callable(perturb):
            raise UsageError(f"DCMI(perturb={perturb!r}); expected a function from a text to a perturbed text")
        self.fraction, self.perturb = fraction, perturb

    def queries(self, target: Document, rng: random.Random, corpus: Corpus) -> list[Query]:
        """The target and its copy; the target alone where no word of it can be replaced."""
        asked = [Query(INSTRUCTION.format(target.content))]
        copy = self._copy(target, rng, corpus)
        if copy != target.content:
            asked.append(Query(INSTRUCTION.format(copy), {"perturbed": True}))
        return asked

    def _copy(self, target: Document, rng: random.Random, corpus: Corpus) -> str:
        if self.perturb is None:
            return perturbed(target, self.fraction, rng, corpus)
        copy = self.perturb(target.content)
        if not isinstance(copy, str):
            raise UsageError(f"DCMI: perturb returned {type(copy).__name__}, expected a str")
        return copy

    def signal(self, reply: Reply) -> float | None:
        """1 for yes, 0 for any other answer."""
        return None if reply.response is None else float(recognise(reply.response) == "yes")

    def score(self, target: Target, arms: Mapping[str, Target]) -> float | None:
        """The difference of the two signals; no data where either is missing."""
        signals = [s for reply in target.replies[:2] if (s := self.signal(reply)) is not None]
        return signals[0] - signals[1] if len(signals) == 2 else None


class DCMIProbability(DCMI):
    """The probability form: p(yes) to the target - p(yes) to the copy."""

    name = "dcmi_prob"
    asks = "dcmi"
    no_score = NO_CANDIDATES
    card = Card(
        paper="DCMI, arXiv 2509.06026",
        prompt=_PROMPT,
        queries="2, shared with dcmi",
        access="log-probabilities",
        deviations=_DEVIATIONS + "p(yes) is read from the first token as in rag_mia_prob.",
    )

    def signal(self, reply: Reply) -> float | None:
        """p(yes) of the first token."""
        return probabilities(reply.first_token)[0] if reply.first_token else None


def perturbed(target: Document, fraction: float, rng: random.Random, corpus: Corpus) -> str:
    """The text with the hardest words replaced, each word everywhere it stands."""
    found = words(target.content)
    frequency = document_frequency(corpus)
    strangers = Strangers(target, corpus, rng)
    budget = max(1, round(fraction * len(found)))
    swaps: list[tuple[Word, str]] = []
    hard = {w.key: w for w in found if tells(w)}
    for word in sorted(hard.values(), key=lambda w: hardness(w, frequency), reverse=True):
        if len(swaps) >= budget:
            break
        if (other := strangers.like(word)) is not None:
            swaps += [(w, other) for w in found if w.key == word.key]
    return swap(target.content, swaps)


ATTACK = (DCMI(), DCMIProbability())
