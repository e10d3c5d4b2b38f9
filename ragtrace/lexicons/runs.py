"""Reads runs of capitalised words: persons, placeholders, organisations, titles, streets and dates."""

from __future__ import annotations

from typing import NamedTuple

from ragtrace.lexicons import words
from ragtrace.lexicons.bits import (
    CODED,
    DOTTED,
    FAKE,
    FAKE_START,
    FIRST,
    FLAT,
    FORENAME,
    INITIAL,
    JOB,
    LAST,
    LONE,
    MONTH,
    ORG,
    PLAIN,
    ROLE,
    SHOUTED,
    STOPPING,
    STREET,
    STREET_START,
    TITLE,
    Known,
)
from ragtrace.lexicons.naming import Names, name, organisation, plan, title
from ragtrace.lexicons.shapes import (
    BOX_AFTER,
    DAY_AFTER,
    DAY_BEFORE,
    DIGITS,
    FLAT_AFTER,
    HOUSE_AFTER,
    HOUSE_BEFORE,
    IBAN,
    ORG_AFTER,
    ROLE_NUMBER,
    STATE_ZIP,
    UNIT,
)


class Run(NamedTuple):
    """The capitalised words of a run, each with any particle before it (``van Gogh``), as parallel lists.

    An object a word would take longer to make than all that is asked of it.
    """

    starts: list[int]
    ends: list[int]
    keys: list[str]
    """Casefolded, without particle, full stop and possessive."""
    bits: list[int]
    """What is known of each word, see :mod:`ragtrace.lexicons.bits`."""
    told: int
    """The bits of all words together."""


def look(start: int, words: list[str], folded: list[str], known: Known) -> Run:
    """Looks up the words of a run that starts there."""
    starts, ends, keys, all_bits, told = [], [], [], [], 0
    at = begin = start
    for i, word in enumerate(words):
        key = folded[i]
        end = stop = at + len(word)
        if word == key:  # no capital: a particle, the word goes on
            at = stop + 1
            continue
        bits = 0
        if not word.isalpha():
            if word[-2:-1] in ("'", "\u2019") and word[-1] in "sS":
                word, end, bits = word[:-2], stop - 2, LAST
            key = word.rstrip(".").casefold().replace("\u2019", "'")
            bits |= signs(key, known)
        bits |= known[key]
        if len(key) == 1:
            bits |= INITIAL | DOTTED if word[-1] == "." else INITIAL
        elif word.isupper():
            bits = bits & ~PLAIN | SHOUTED
        starts.append(begin)
        ends.append(end)
        keys.append(key)
        all_bits.append(bits)
        told |= bits
        at = begin = stop + 1
    return tuple.__new__(Run, (starts, ends, keys, all_bits, told))


def signs(key: str, known: Known) -> int:
    """What a word says by its digits or its hyphen."""
    if not DIGITS.isdisjoint(key):
        return CODED
    if "-" in key and known[key.split("-")[0]] & FIRST:
        whole = known[key]
        return 0 if whole & JOB else FORENAME if whole & STOPPING else FORENAME | LONE
    return 0


class RunReader:
    """What is common to all reading of one text, and the reading of its capitalised words.

    Spans are collected in order; a later, longer reading replaces what it overlaps.
    """

    __slots__ = ("floor", "spans", "text", "w")

    def __init__(self, text: str) -> None:
        self.text = text
        self.w = words()
        self.spans: list[tuple[int, int, str]] = []
        self.floor = 0
        """Nothing before it may be looked at: it belongs to a link."""

    def add(self, start: int, end: int, kind: str) -> int:
        while self.spans and self.spans[-1][1] > start:
            self.spans.pop()
        self.spans.append((start, end, kind))
        return end

    def before(self, start: int, width: int = 24) -> str:
        begin = start - width
        return self.text[begin if begin > self.floor else self.floor : start]

    def code(self, start: int, end: int, found: str) -> int:
        """A word of letters and digits: an identifier, a quantity with its unit, or just a word."""
        digits = sum(map(str.isdigit, found))
        unit = UNIT.match(found)
        if unit:
            return self.add(start, start + len(unit[1]), "NUMBER") if digits >= 3 else end
        if len(found) >= 6 and (digits >= 4 or (digits == 3 and found.isupper() and not found.isalnum())):
            return self.add(start, end, "IDENTIFIER")
        return end

    def run(self, start: int, end: int, stop: int, found: str) -> int:
        """Reads a run of capitalised words; returns where to go on."""
        w = self.w
        numbered = self.text[end + 1 : end + 2] in DIGITS
        folded = found.casefold()
        keys = folded.split(" ")
        letters = "".join(keys)
        plain = letters.isalpha()
        if (
            w.telling.isdisjoint(keys)
            and (plain or ("'s" not in folded and letters.replace("'", "").isalpha()))
            and not (numbered and (folded.endswith(w.street_end) or (found[-1].isupper() and keys[-1] in w.state)))
        ):
            return end
        postal = numbered and (folded.endswith(w.street_end) or w.bits[keys[-1]] & FLAT)
        if plain and found.istitle() and not postal:
            names = plan(tuple(map(w.bits.__getitem__, keys)))
            if names is not None:
                return self.named(names, start, found, end, stop) if names else end
        return self.mixed(look(start, found.split(" "), keys, w.bits), end, stop, numbered)

    def named(self, names: Names, start: int, found: str, end: int, stop: int) -> int:
        """Adds what a run of plain words names; returns where to go on."""
        starts, ends = [], []
        for word in found.split(" "):
            starts.append(start)
            start += len(word) + 1
            ends.append(start - 1)
        for i, past, kind, closing in names:
            last = ends[past - 1]
            if closing:
                if kind == "ORG_TITLE":
                    if more := ORG_AFTER.match(self.text, last, stop):
                        end = last = more.end()
                elif HOUSE_AFTER.match(self.text, last, stop):
                    kind = "PERSON_NAME_AMBIGUOUS"
            self.spans.append((starts[i], last, kind))
        return end

    def mixed(self, run: Run, end: int, stop: int, numbered: bool) -> int:
        """Reads a run that may hold anything; returns where to go on."""
        text, bits = self.text, run.bits
        count, i = len(bits), 0
        if run.told & STREET:
            i = self.street(run, stop)
        if run.told & ORG and not i:
            i = self.organisation(run, stop)
        while i < count:
            word = bits[i]
            if word & CODED:
                at = run.starts[i]
                iban = IBAN.match(text, at, stop)
                if iban:
                    return self.add(at, iban.end(), "IDENTIFIER")
                self.code(at, run.ends[i], text[at : run.ends[i]])
                i += 1
                continue
            if word & MONTH and (past := self.date(run, i, stop)):
                return past
            if word & STREET_START and i + 1 < count and (number := HOUSE_AFTER.match(text, end, stop)):
                return self.add(run.starts[i], number.end(), "ADDRESS")
            if numbered and i + 1 == count and not word & LAST and (past := self.postal(run, stop)):
                return past
            past = (word & FAKE and self.placeholder(run, i, stop)) or (word & TITLE and self.title(run, i))
            if not past:
                past, kind = name(bits, i)
                if kind:
                    self.person(run.starts[i], run.ends[past - 1], stop, kind, past == count and past > i + 1)
            i = past
        return max(end, self.spans[-1][1]) if self.spans else end

    def person(self, start: int, end: int, stop: int, kind: str, full: bool) -> None:
        """Adds a name; a full one that ends the run may be a street's, if a house number follows."""
        if full and kind == "PERSON_NAME" and HOUSE_AFTER.match(self.text, end, stop):
            kind = "PERSON_NAME_AMBIGUOUS"
        self.add(start, end, kind)

    def date(self, run: Run, i: int, stop: int) -> int:
        """Adds the date that month i is part of, if any; returns where to go on then."""
        start, end = run.starts[i], run.ends[i]
        before = DAY_BEFORE.search(self.before(start))
        after = DAY_AFTER.match(self.text, end, stop)
        if not before and (not after or not after[0].rstrip(".")):
            return 0
        begin = start - len(before[0]) if before else start
        return self.add(begin, after.end() if after and after[0] != "." else end, "OTHER")

    def street(self, run: Run, stop: int) -> int:
        """``12 High Street, Apt 5``; returns the first word after it. A street without a number is no address."""
        house = HOUSE_BEFORE.search(self.before(run.starts[0]))
        last = len(run.bits) - 1
        while last and not run.bits[last] & STREET:
            last -= 1
        if not house or not last:
            return 0
        flat = FLAT_AFTER.match(self.text, run.ends[last], stop)
        self.add(run.starts[0] - len(house[0]), flat.end() if flat else run.ends[last], "ADDRESS")
        return last + 1

    def postal(self, run: Run, stop: int) -> int:
        """What the number after the last word makes of it: a ZIP code, a post box, a house number."""
        w, text = self.w, self.text
        start, end, key = run.starts[-1], run.ends[-1], run.keys[-1]
        if run.bits[-1] & SHOUTED and key in w.state and (zip_ := STATE_ZIP.match(text, end, stop)):
            return self.add(start, zip_.end(), "ADDRESS")
        if run.bits[-1] & FLAT and (box := BOX_AFTER.match(text, end, stop)):
            return self.add(start, box.end(), "ADDRESS")
        if len(key) > 5 and key.endswith(w.street_end) and (number := HOUSE_AFTER.match(text, end, stop)):
            return self.add(start, number.end(), "ADDRESS")
        return 0

    def organisation(self, run: Run, stop: int) -> int:
        """Adds the organisation that the run names, if any; returns the first word after it."""
        begin, end = organisation(run.bits)
        more = ORG_AFTER.match(self.text, run.ends[end], stop) if end + 1 == len(run.bits) else None
        if begin == end and not more:
            return 0
        self.add(run.starts[begin], more.end() if more else run.ends[end], "ORG_TITLE")
        return end + 1

    def title(self, run: Run, i: int) -> int:
        """Adds a job title and the person after a title, if any; returns the first word after it."""
        past = 0
        for begin, past, kind in title(run.bits, i):
            self.add(run.starts[begin], run.ends[past - 1], kind)
        return past

    def placeholder(self, run: Run, i: int, stop: int) -> int:
        bits, count = run.bits, len(run.bits)
        if bits[i] & FAKE_START:
            for width in (3, 2):
                if i + width <= count and " ".join(run.keys[i : i + width]) in self.w.fake:
                    self.add(run.starts[i], run.ends[i + width - 1], "PERSON_NAME_PLACEHOLDER")
                    return i + width
        if not bits[i] & ROLE:
            return 0
        if i + 1 < count:
            if bits[i + 1] & INITIAL and not bits[i + 1] & DOTTED:
                self.add(run.starts[i], run.ends[i + 1], "PERSON_NAME_PLACEHOLDER")
                return i + 2
        elif number := ROLE_NUMBER.match(self.text, run.ends[i], stop):
            self.add(run.starts[i], number.end(), "PERSON_NAME_PLACEHOLDER")
            return i + 1
        return 0
