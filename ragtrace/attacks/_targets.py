"""Whom a membership attack asks about: members and non-members in equal number and mixed order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ragtrace.errors import InputError, UsageError

if TYPE_CHECKING:
    from ragtrace.types import Corpus, Document


def check_count(count: int | None) -> int | None:
    """An even number of targets, or ``None`` for as many as the corpus allows.

    :raises UsageError: for anything else.
    """
    if count is not None and (count < 2 or count % 2):
        raise UsageError(f"count is {count}; expected an even number from 2 on (half members, half non-members)")
    return count


def draw(corpus: Corpus, seed: int, count: int | None) -> list[tuple[Document, bool]]:
    """(target, is it a member). Drawn by corpus and seed alone, so that all attacks of a run aim at the same targets.

    :raises InputError: for a corpus with too few members or non-members.
    """
    available = min(len(corpus.members), len(corpus.non_members))
    each = available if count is None else count // 2
    if not 1 <= each <= available:
        raise InputError(
            f"corpus {corpus.name!r} has {len(corpus.members)} members and {len(corpus.non_members)} non-members; "
            f"expected at least {max(each, 1)} of each: build it with more, or lower count"
        )
    rng = random.Random(f"targets {seed}")  # noqa: S311 (seeded on purpose)
    targets = [(d, True) for d in rng.sample(corpus.members, each)]
    targets += [(d, False) for d in rng.sample(corpus.non_members, each)]
    rng.shuffle(targets)
    return targets
