"""What a run of capitalised words names, told from what is known of each word (:mod:`ragtrace.lexicons.bits`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ragtrace.lexicons.bits import (
    CUE,
    DOTTED,
    FIRST,
    FORENAME,
    FUNCTION,
    HEAD,
    HONORIFIC,
    INITIAL,
    JOB,
    LAST,
    LONE,
    NAMED,
    ORG,
    PLACE,
    PLAIN,
    SHOUTED,
    STARTING,
    STOPPING,
    SURNAME,
    TEXTUAL,
    TITLE,
)

Names = tuple[tuple[int, int, str, bool], ...]
"""First word, word after the last, type, and whether what follows the run may make it longer or something else."""


@lru_cache(maxsize=4096)
def plan(bits: tuple[int, ...]) -> Names | None:
    """What a run names; ``None`` where only the text around it can tell.

    Kept by what lexicons say, not by the words: a few hundred patterns make up most of all text.
    """
    found: list[tuple[int, int, str, bool]] = []
    told, i, count = 0, 0, len(bits)
    for word in bits:
        told |= word
    if told & TEXTUAL:
        return None
    if told & ORG:
        begin, end = organisation(bits)
        if begin < end:
            found.append((begin, end + 1, "ORG_TITLE", end + 1 == count))
            i = end + 1
        elif end + 1 == count:
            return None
    while i < count:
        spans = title(bits, i) if bits[i] & TITLE else ()
        if spans:
            found.extend((*span, False) for span in spans)
            i = spans[-1][1]
            continue
        past, kind = name(bits, i)
        if kind:
            found.append((i, past, kind, kind == "PERSON_NAME" and past == count and past > i + 1))
        i = past
    return tuple(found)


def organisation(bits: Sequence[int]) -> tuple[int, int]:
    """The first and the last word of the organisation in a run where a word says that there is one."""
    begin, end = 0, len(bits) - 1
    while not bits[end] & ORG:
        end -= 1
    while begin < end and bits[begin] & FUNCTION:
        begin += 1
    return begin, end


def title(bits: Sequence[int], i: int) -> tuple[tuple[int, int, str], ...]:
    """``Mr. X`` is a person whatever X is, unless it is an everyday word; a job title is an ORG_TITLE."""
    count, j = len(bits), i + 1
    job = bits[i] & JOB
    if bits[i] & HONORIFIC:
        while j < min(count, i + 5) and (bits[j] & INITIAL or nameable(bits[j], j > i + 1)):
            j += 1
        if j > i + 1 and not bits[j - 1] & INITIAL:
            person = (i + 1, j, "PERSON_NAME")
            return ((i, i + 1, "ORG_TITLE"), person) if job else (person,)
    if not job:
        return ()
    j = i + 1
    while j < count and bits[j] & JOB:
        j += 1
    return ((i, j, "ORG_TITLE"),)


def name(bits: Sequence[int], i: int) -> tuple[int, str | None]:
    """The first word after what starts at word i, and what kind of name it is, strict or ambiguous, if any."""
    first, j, count = bits[i], i + 1, len(bits)
    if not first & STARTING:
        return j, None
    if j < count and not first & LAST and first & (FORENAME | PLAIN | DOTTED):
        while j + 1 < count and not bits[j] & LAST and bits[j] & (INITIAL | FIRST):
            j += 1
        kind = None if bits[j] & INITIAL else judge(bits, i, j)
        if kind:
            past = j + 1
            while past < count and past < j + 3 and not bits[past - 1] & LAST and bits[past] & PLAIN:
                past += 1
            return (past + 1, None) if past < count and bits[past] & HEAD else (past, kind)
    if not first & LONE:
        return i + 1, None
    if i + 1 < count and bits[i + 1] & HEAD:
        return i + 2, None
    cued = first & FORENAME and i > 0 and bits[i - 1] & CUE
    return i + 1, "PERSON_NAME" if cued else "PERSON_NAME_AMBIGUOUS"


def judge(bits: Sequence[int], i: int, j: int) -> str | None:
    """How sure it is that words i to j, from first name or initial to surname, name a person."""
    first, last = bits[i], bits[j]
    known = last & NAMED
    clear = not last & STOPPING
    if not last & (NAMED | PLAIN) or (first & PLACE and last & HEAD):
        return None
    previous = bits[i - 1] if i else 0
    sure = previous & JOB or not previous & (PLACE | HEAD | ORG)
    if first & FORENAME and not first & (STOPPING | SHOUTED):
        # A surname that is also a word (Young) or a place (Denver) is one after a certain first name.
        sure = sure and (clear or (known and not last & HEAD))
    elif first & (FORENAME | INITIAL):
        sure = sure and known and clear
    elif not (
        any(word & INITIAL for word in bits[i + 1 : j])
        or (first & PLAIN and not first & SURNAME and known and last & PLAIN)
    ):
        # An unknown word is taken for a first name only before an initial, or before a surname and nothing else.
        return None
    return "PERSON_NAME" if sure else "PERSON_NAME_AMBIGUOUS"


def nameable(bits: int, later: bool) -> bool:
    """Whether a word after a title is a part of the name."""
    return not bits & STOPPING or bool(bits & NAMED and not bits & PLACE and not (later and bits & ORG))
