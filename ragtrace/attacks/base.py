"""What an attack is: it makes probes; its scores are read from traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ragtrace.types import Corpus, Probe


class Attack(Protocol):
    """One file an attack: its name and the probes it sends."""

    name: str

    def probes(self, corpus: Corpus, seed: int) -> Iterable[Probe]:
        """The queries to send, each with its ground truth. The same seed gives the same probes."""
        ...
