"""Word lists as data files, one casefolded entry a line, ``#`` for comments. Sources and licences: README.md here."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ragtrace.lexicons import bits
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
        special = self.org.union(
            self.job, self.honorific, self.street, self.street_start, self.month, self.role, self.flat
        )
        told = dict.fromkeys(UP.casefold(), 0) | dict.fromkeys(self.surname, bits.SURNAME)
        for bit, entries in (
            (bits.FIRST, self.first),
            (bits.COMMON, self.common),
            (bits.PLACE, self.place),
            (bits.HEAD, self.head),
            (bits.ORG, self.org),
            (bits.JOB, self.job),
            (bits.HONORIFIC, self.honorific),
            (bits.STREET, self.street),
            (bits.STREET_START, self.street_start),
            (bits.MONTH, self.month),
            (bits.FLAT, self.flat),
            (bits.ROLE, self.role),
            (bits.CUE, self.cue),
            (bits.FAKE_START, frozenset(name.split()[0] for name in self.fake)),
            (bits.FUNCTION, self.stop),
            (bits.SPECIAL, special),
        ):
            for key in entries:
                told[key] = told.get(key, 0) | bit
        # Few combinations: what follows from each is worked out once.
        whole = {known: bits.derived(known) for known in set(told.values())}
        self.bits = bits.Known({key: whole[known] for key, known in told.items()})
        """What is known of each word by itself, see :mod:`ragtrace.lexicons.bits`."""
        for key in [key for key in told if len(key) < 3]:
            self.bits[key] = bits.short(self.bits[key], len(key))
        self.telling = frozenset(key for key, word in self.bits.items() if word & bits.TELLING)
        """Words without any of which a run of words means nothing."""
        self.small_first = frozenset(
            key for key in self.first if len(key) > 2 and key.isascii() and not self.bits[key] & bits.STOPPING
        )
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
