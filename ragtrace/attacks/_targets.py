"""Whom a membership attack asks about: members and non-members in mixed order, in equal number unless told."""

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


def draw(
    corpus: Corpus, seed: int, count: int | None = None, members: int | None = None, non_members: int | None = None
) -> list[tuple[Document, bool]]:
    """(target, is it a member). Drawn by corpus and seed alone, so that all attacks of a run aim at the same targets.

    :param members: how many members, where the two numbers are not to be equal. :param non_members: the others.
    :raises InputError: for a corpus with too few members or non-members.
    """
    available = min(len(corpus.members), len(corpus.non_members))
    each = available if count is None else count // 2
    inside, outside = each if members is None else members, each if non_members is None else non_members
    if not (1 <= inside <= len(corpus.members) and 1 <= outside <= len(corpus.non_members)):
        wanted, lower = f"{max(each, 1)} of each", "count"
        if members is not None or non_members is not None:
            wanted, lower = f"{max(inside, 1)} and {max(outside, 1)}", "members or non_members"
        raise InputError(
            f"corpus {corpus.name!r} has {len(corpus.members)} members and {len(corpus.non_members)} non-members; "
            f"expected at least {wanted}: build it with more, or lower {lower}"
        )
    rng = random.Random(f"targets {seed}")  # noqa: S311 (seeded on purpose)
    targets = [(d, True) for d in rng.sample(corpus.members, inside)]
    targets += [(d, False) for d in rng.sample(corpus.non_members, outside)]
    rng.shuffle(targets)
    return targets
