"""What an attack is: it makes probes; its scores are read from traces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ragtrace.types import Canary, Document, Probe


@dataclass(frozen=True)
class Corpus:
    """What an attack may aim at.

    ``members`` are indexed; ``non_members`` come from the same distribution and are not.
    ``canaries`` have been planted in the members already.
    """

    name: str
    seed: int
    members: tuple[Document, ...]
    non_members: tuple[Document, ...] = ()
    canaries: tuple[Canary, ...] = ()


class Attack(Protocol):
    """One file an attack: its name and the probes it sends."""

    name: str

    def probes(self, corpus: Corpus, seed: int) -> Iterable[Probe]:
        """The queries to send, each with its ground truth. The same seed gives the same probes."""
        ...
