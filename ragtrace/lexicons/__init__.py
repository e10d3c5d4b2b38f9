"""Word lists as data files, one casefolded entry a line, ``#`` for comments. Sources and licences: README.md here."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ragtrace.lexicons.shapes import UP


@cache
def load(name: str) -> frozenset[str]:
    """The entries of ``<name>.txt``, read on first use and kept."""
    lines = (files(__name__) / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def names() -> list[str]:
    """The names of all lists."""
    return sorted(f.name.removesuffix(".txt") for f in files(__name__).iterdir() if f.name.endswith(".txt"))


class Words:
    """The lexicons as :mod:`ragtrace.ner` asks them; names are looked up after ``str.casefold``."""

    def __init__(self) -> None:
        self.first = load("first_names")
        self.surname = load("surnames")
        self.common = load("common_words")
        self.head = load("heads")
        self.org = load("org_words")
        self.job = load("job_titles")
        self.honorific = load("honorifics")
        self.street = load("streets")
        self.street_start = load("street_starts")
        self.street_end = tuple(load("street_endings"))
        self.cue = load("first_name_cues")
        self.fake = load("placeholder_names")
        self.role = load("placeholder_roles")
        self.slot = load("placeholder_slots")
        self.fake_domain = load("placeholder_domains")
        self.fake_mailbox = load("placeholder_mailboxes")
        self.month = load("months")
        self.place = load("places")
        self.stop = load("function_words")
        self.state = load("us_states")
        self.flat = load("flats")
        self.id_word = load("id_words")
        self.zip_word = load("zip_words")
        self.phone_word = load("phone_words")
        self.stopping = self.common | self.place | self.head | self.org | self.job
        """Words that speak against being part of a name."""
        self.fake_start = frozenset(name.split()[0] for name in self.fake)
        self.special = (
            self.org | self.job | self.honorific | self.street | self.street_start | self.month | self.role | self.flat
        )
        """Words that may mean something by themselves or with a number after them."""
        self.dull = self.common - self.special
        """Words that, standing alone, are passed over."""
        self.single = frozenset(n for n in self.first | self.surname if len(n) > 2) - self.stopping - self.special
        """Words that, standing alone, are an ambiguous name."""
        self.alone = self.special & (
            self.org | self.job | self.month | self.role | (self.first | self.surname) - self.stopping
        )
        """Words that, standing alone, may be something else."""
        self.leading = self.special | self.fake_start
        """Words that may begin something else than a name."""
        self.telling = self.first.union(self.surname - self.stopping, self.leading, UP.casefold())
        """Words without any of which a run of words means nothing; a single letter may be an initial."""
        self.small_first = frozenset(n for n in self.first if len(n) > 2 and n.isascii() and n not in self.stopping)
        """First names sure enough to be seen without a capital letter."""


@cache
def words() -> Words:
    """The lexicons, read once."""
    return Words()


@cache
def vocabulary() -> frozenset[str]:
    """Every word and phrase, casefolded, that can by itself make the classifier see an entity.

    A defense whose constants meet it is entangled with the scorer; canaries are minted outside it.
    Words that only stop a match (common English, places, things) are not in it.
    """
    w = words()
    return w.first.union(
        w.surname,
        w.org,
        w.job,
        w.honorific,
        w.street,
        w.street_start,
        w.fake,
        w.role,
        w.slot,
        w.fake_domain,
        w.fake_mailbox,
    )
