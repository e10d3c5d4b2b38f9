"""What a corpus is, and the split into members and non-members that every corpus goes through."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Protocol

from ragtrace.errors import InputError
from ragtrace.types import Corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragtrace.types import Document

SHINGLE = 3
"""Words in a shingle."""
NEAR_DUPLICATE = 0.6
"""Jaccard similarity of two texts' shingles from which they count as near duplicates."""


class CorpusSource(Protocol):
    """One file a corpus: its name and how to get its documents."""

    name: str

    def build(self, n: int, seed: int, non_members: int = 0) -> Corpus:
        """``n`` members and ``non_members`` others of the same distribution.

        :raises InputError: for an empty corpus, or more documents than the source has.
        """
        ...


@dataclass(frozen=True)
class SplitCorpus(Corpus):
    """A corpus with members and non-members split by :func:`split`."""

    near_duplicates_removed: int = 0


def split(name: str, seed: int, draw: Callable[[int], list[Document]], n: int, non_members: int) -> SplitCorpus:
    """Coin-flip membership over one pool, so that nothing but the index tells the two sides apart.

    ``draw(k)`` gives the pool's next ``k`` documents (fewer when it ends). Near duplicates are removed from the
    whole pool *before* the coins are flipped, and replaced by further documents: a document close to another
    says nothing about its membership, and removing it from one side only would change that side. The coins are
    flipped conditional on the two counts. The same seed gives the same corpus.

    :raises InputError: for counts out of range, or a pool that is too small.
    """
    if n < 1:
        raise InputError(f"a corpus of {n} documents is empty; expected n ≥ 1")
    if non_members < 0:
        raise InputError(f"{non_members} non-members asked for; expected 0 or more")
    pool: list[Document] = []
    removed, wanted = 0, n + non_members
    while len(pool) < wanted:
        fresh = draw(wanted - len(pool))
        if not fresh:
            raise InputError(
                f"{name} has {len(pool)} documents that are no near duplicates ({removed} are); "
                f"{wanted} were asked for: lower n or non_members"
            )
        texts = [d.content for d in (*pool, *fresh)]
        drop = near_duplicates(texts, known=len(pool))
        removed += len(drop)
        pool = [d for i, d in enumerate((*pool, *fresh)) if i not in drop]
    order = list(range(wanted))
    random.Random(f"{name} membership {seed}").shuffle(order)  # noqa: S311 (seeded on purpose)
    members = set(order[:n])
    return SplitCorpus(
        name=name,
        seed=seed,
        members=tuple(replace(d) for i, d in enumerate(pool) if i in members),
        non_members=tuple(replace(d) for i, d in enumerate(pool) if i not in members),
        near_duplicates_removed=removed,
    )


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The text's overlapping word triples, case folded (one shorter tuple for a text of fewer words)."""
    words = re.findall(r"\w+", text.casefold())
    return frozenset(tuple(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1)))


def near_duplicates(texts: Sequence[str], known: int = 0, threshold: float = NEAR_DUPLICATE) -> set[int]:
    """Indexes of the texts that are near duplicates of an earlier kept one; the first ``known`` are kept unseen.

    Exact, by prefix filtering (Chaudhuri et al. 2006): two sets with Jaccard ≥ t share one of their rarest
    \\|x\\| - ⌈t·\\|x\\|⌉ + 1 elements, so only texts that share a rare shingle are compared.
    """
    sets = [shingles(t) for t in texts]
    frequency = Counter(s for one in sets for s in one)
    index: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    dropped: set[int] = set()
    for i, own in enumerate(sets):
        rarest = sorted(own, key=lambda s: (frequency[s], s))[: len(own) - ceil(threshold * len(own) - 1e-9) + 1]
        rivals = {j for s in rarest for j in index[s]} if i >= known else ()
        if any(len(own & sets[j]) >= threshold * len(own | sets[j]) for j in rivals):
            dropped.add(i)
        else:
            for s in rarest:
                index[s].append(i)
    return dropped
