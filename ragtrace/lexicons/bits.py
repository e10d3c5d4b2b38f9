"""What lexicons say of a word, and what it is where it stands, as bits of one number: each word is looked up once.

Numbers below 2 ** 30 are the quick ones.
"""

from __future__ import annotations

from typing import Final

# Of the lexicons of the same names.
FIRST: Final = 1 << 0
SURNAME: Final = 1 << 1
COMMON: Final = 1 << 2
PLACE: Final = 1 << 3
HEAD: Final = 1 << 4
ORG: Final = 1 << 5
JOB: Final = 1 << 6
HONORIFIC: Final = 1 << 7
STREET: Final = 1 << 8
STREET_START: Final = 1 << 9
MONTH: Final = 1 << 10
FLAT: Final = 1 << 11
ROLE: Final = 1 << 12
CUE: Final = 1 << 13
FAKE_START: Final = 1 << 14
"""Begins the name of nobody."""
FUNCTION: Final = 1 << 15

# Of several together.
FORENAME: Final = 1 << 16
"""A first name that is no job."""
LONE: Final = 1 << 17
"""A name that needs no other beside it in its run."""
SINGLE: Final = 1 << 18
"""Standing alone, an ambiguous name."""
ALONE: Final = 1 << 19
"""Standing alone, may be something else."""
DULL: Final = 1 << 20
"""Standing alone, is passed over."""
SPECIAL: Final = 1 << 21
"""May mean something by itself or with a number after it."""
TELLING: Final = 1 << 22
"""Without any such word a run of words means nothing."""

# Of a word where it stands.
INITIAL: Final = 1 << 23
DOTTED: Final = 1 << 24
"""An initial with its full stop."""
SHOUTED: Final = 1 << 25
PLAIN: Final = 1 << 26
"""Three letters or more, not all of them capitals, and no lexicon speaks against a name."""
LAST: Final = 1 << 27
"""Nothing may follow: a possessive."""
CODED: Final = 1 << 28
"""Holds a digit."""

# Any of several bits.
NAMED: Final = FIRST | SURNAME
STOPPING: Final = COMMON | PLACE | HEAD | ORG | JOB
"""Speaks against being part of a name."""
HEEDED: Final = SINGLE | ALONE
TITLE: Final = HONORIFIC | JOB
FAKE: Final = ROLE | FAKE_START
TEXTUAL: Final = MONTH | STREET | STREET_START | FAKE | CODED
"""What it means, the text around its run says."""
STARTING: Final = FORENAME | LONE | INITIAL | PLAIN
"""A name may start here."""


class Known(dict[str, int]):
    """The bits of every word of the lexicons; a word of none has those that its length gives it."""

    def __missing__(self, key: str) -> int:
        return PLAIN if len(key) > 2 else 0


def derived(told: int) -> int:
    """``told``, by lexicons of a word of three letters or more, with what follows from it."""
    special, free = told & SPECIAL, not told & STOPPING
    named = free and told & NAMED
    if told & FIRST and not told & JOB:
        told |= FORENAME
    if named:
        told |= LONE if special else LONE | SINGLE
    if special and (named or told & (ORG | JOB | MONTH | ROLE)):
        told |= ALONE
    if told & COMMON and not special:
        told |= DULL
    if named or told & (FIRST | SPECIAL | FAKE_START):
        told |= TELLING
    return told | PLAIN if free else told


def short(bits: int, size: int) -> int:
    """``bits`` of a word of one or two letters: no name by itself, and an initial if it is one letter."""
    bits &= ~(LONE | SINGLE | PLAIN)
    return bits | INITIAL | TELLING if size == 1 else bits
