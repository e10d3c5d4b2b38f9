"""What an attack is: it makes probes; its scores are read from traces."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from ragtrace.types import Corpus, Probe

Access = Literal["text", "log-probabilities", "target likelihoods", "own index"]
"""What the attacker must be given, from the least: the answer's text; the probabilities of the answer's tokens, or of
the target's own tokens under the model; an index that the attacker may build with and without the target."""


@dataclass(frozen=True)
class Card:
    """What a reader must know of an attack before its numbers: shown beside them.

    :param paper: short name and arXiv id. :param prompt: what is sent, in one sentence.
    :param queries: sent for each target, as a number or in words. :param access: see :data:`Access`.
    :param deviations: where this differs from the paper, or what the paper leaves open and how we read it.
    """

    paper: str
    prompt: str
    queries: int | str
    access: Access
    deviations: str


class Attack(Protocol):
    """One file an attack: its name, its card and the probes it sends.

    An attack whose score is its own brings it along as ``metrics`` (a tuple of ``ragtrace.metrics.base.Metric``).
    """

    name: str
    card: Card

    def probes(self, corpus: Corpus, seed: int) -> Iterable[Probe]:
        """The queries to send, each with its ground truth. The same seed gives the same probes."""
        ...


class AdaptiveAttack(Protocol):
    """An attacker who adapts: each query follows from the answers before it, within a budget of queries."""

    name: str
    card: Card

    def session(self, corpus: Corpus, seed: int) -> Generator[Probe, str | None, None]:
        """Yields a probe and is sent its answer, ``None`` where there was none. The same seed and the same answers give
        the same probes; the ``n``-th has the same id in every arm.
        """
        ...
