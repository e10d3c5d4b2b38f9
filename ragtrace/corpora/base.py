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

    :param name: the corpus's. :param n: members. :param non_members: the others.
    :raises InputError: for counts out of range, or a pool that is too small.
    """
    _check_counts(n, non_members)
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
    return _flip(name, seed, pool, n, removed)


def split_share(name: str, seed: int, documents: Sequence[Document], share: float = 0.8) -> SplitCorpus:
    """The whole pool, ``share`` of it members: S²MIA's 80/20 split. Otherwise as :func:`split`.

    :raises InputError: for a share that leaves either side empty.
    """
    drop = near_duplicates([d.content for d in documents])
    pool = [d for i, d in enumerate(documents) if i not in drop]
    n = members_of(name, len(pool), share)
    return _flip(name, seed, pool, n, len(drop))


def members_of(name: str, size: int, share: float) -> int:
    """How many of ``size`` documents are members.

    :raises InputError: where that leaves no members or no others.
    """
    n = round(share * size) if 0 < share < 1 else 0
    if not 0 < n < size:
        raise InputError(
            f"{share} of {name}'s {size} documents as members leaves one side empty; expected a share between 0 and 1, "
            "and at least one document on each side"
        )
    return n


def split_labelled(
    name: str, seed: int, labelled: Sequence[tuple[Document, bool]], n: int, non_members: int
) -> SplitCorpus:
    """The first ``n`` members and ``non_members`` others by labels that came with the data, in place of coin flips.

    Near duplicates are removed from the whole pool before, as by :func:`split`. Nothing says that the two sides are of
    one distribution: that is what the blind baseline is for.

    :raises InputError: for counts out of range, or a side that is too small.
    """
    _check_counts(n, non_members)
    drop = near_duplicates([d.content for d, _ in labelled])
    kept = [one for i, one in enumerate(labelled) if i not in drop]
    sides = [[d for d, is_member in kept if is_member is side] for side in (True, False)]
    if len(sides[0]) < n or len(sides[1]) < non_members:
        raise InputError(
            f"{name} has {len(sides[0])} documents labelled members and {len(sides[1])} others that are no near "
            f"duplicates ({len(drop)} are); {n} and {non_members} were asked for: lower n or non_members"
        )
    return SplitCorpus(name, seed, tuple(sides[0][:n]), tuple(sides[1][:non_members]), (), len(drop))


def _check_counts(n: int, non_members: int) -> None:
    if n < 1:
        raise InputError(f"a corpus of {n} documents is empty; expected n ≥ 1")
    if non_members < 0:
        raise InputError(f"{non_members} non-members asked for; expected 0 or more")


def _flip(name: str, seed: int, pool: Sequence[Document], n: int, removed: int) -> SplitCorpus:
    """``n`` of the pool are members, all sets of ``n`` equally likely; each side keeps the pool's order."""
    order = list(range(len(pool)))
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

    Exact, by prefix filtering (Chaudhuri et al. 2006): two sets with Jaccard ≥ t share ⌈t·\\|x\\|⌉ elements or more,
    and so k of their rarest \\|x\\| - ⌈t·\\|x\\|⌉ + k. Only texts that share k rare shingles are compared; k grows with
    the set, since texts made from one template share some with all.
    """

    def least(size: int) -> int:
        """How many elements a set of that size shares for sure."""
        return ceil(threshold * size - 1e-9)

    def common(size: int) -> int:
        return max(1, least(size) // 6)

    codes: dict[tuple[str, ...], int] = {}
    coded = [[codes.setdefault(s, len(codes)) for s in shingles(text)] for text in texts]
    frequency = Counter(code for own in coded for code in own)
    rank = {code: at for at, code in enumerate(sorted(codes.values(), key=frequency.__getitem__))}
    unique = sum(count == 1 for count in frequency.values())  # these have the lowest ranks, and no one to share with
    sets = [frozenset(rank[code] for code in own) for own in coded]
    index: defaultdict[int, list[int]] = defaultdict(list)
    dropped: set[int] = set()
    for i, own in enumerate(sets):
        rarest = [r for r in sorted(own)[: len(own) - least(len(own)) + common(len(own))] if r >= unique]
        shared: Counter[int] = Counter()
        for r in rarest if i >= known else ():
            shared.update(index[r])
        bar = common(least(len(own)))  # a near duplicate has no fewer elements than that
        rivals = (j for j, count in shared.items() if count >= bar)
        if any(len(own & sets[j]) >= threshold * len(own | sets[j]) for j in rivals):
            dropped.add(i)
        else:
            for r in rarest:
                index[r].append(i)
    return dropped
