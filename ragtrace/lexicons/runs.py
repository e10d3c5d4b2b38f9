"""Reads runs of capitalised words: persons, placeholders, organisations, titles, streets and dates."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.lexicons import words
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


@dataclass(slots=True, eq=False)
class Token:
    """One capitalised word of a run, with any particle before it (``van Gogh``)."""

    start: int
    end: int
    key: str
    """Casefolded, without particle, full stop and possessive."""
    initial: bool
    shouted: bool
    last: bool
    """Nothing may follow: a possessive."""


class RunReader:
    """What is common to all reading of one text, and the reading of its capitalised words.

    Spans are collected in order; a later, longer reading replaces what it overlaps.
    """

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
        return self.text[max(self.floor, start - width) : start]

    def code(self, start: int, end: int, found: str) -> int:
        """A word of letters and digits: an identifier, a quantity with its unit, or just a word."""
        digits = sum(map(str.isdigit, found))
        unit = UNIT.match(found)
        if unit:
            return self.add(start, start + len(unit[1]), "NUMBER") if digits >= 3 else end
        if len(found) >= 6 and (digits >= 4 or (digits == 3 and found.isupper() and not found.isalnum())):
            return self.add(start, end, "IDENTIFIER")
        return end

    def tokens(self, start: int, words: list[str], keys: list[str]) -> list[Token]:
        tokens = []
        at = begin = start
        for word, key in zip(words, keys, strict=True):
            stop = at + len(word)
            if word[0].islower():
                at = stop + 1  # a particle: the token goes on
                continue
            end, possessive = stop, False
            if not word.isalpha():
                possessive = word[-2:-1] in ("'", "\u2019") and word[-1] in "sS"
                if possessive:
                    word, end = word[:-2], stop - 2
                key = word.rstrip(".").casefold().replace("\u2019", "'")
            size = len(key)
            tokens.append(Token(begin, end, key, size == 1, size > 1 and word.isupper(), possessive))
            at = begin = stop + 1
        return tokens

    def run(self, start: int, end: int, stop: int, found: str) -> int:
        """Reads a run of capitalised words; returns where to go on."""
        w, text = self.w, self.text
        numbered = text[end + 1 : end + 2] in DIGITS
        keys = found.casefold().split(" ")
        if not numbered and w.telling.isdisjoint(keys) and "".join(keys).isalpha():
            return end
        tokens = self.tokens(start, found.split(" "), keys)
        keys = [token.key for token in tokens]
        count, i, special = len(tokens), 0, not w.leading.isdisjoint(keys)
        if special:
            i = 0 if w.street.isdisjoint(keys) else self.street(tokens, stop)
            if not i and not w.org.isdisjoint(keys):
                i = self.organisation(tokens, stop)
        while i < count:
            token = tokens[i]
            key = token.key
            if not key.isalpha() and not DIGITS.isdisjoint(key):
                iban = IBAN.match(text, token.start, stop)
                if iban:
                    return self.add(token.start, iban.end(), "IDENTIFIER")
                self.code(token.start, token.end, text[token.start : token.end])
                i += 1
                continue
            if special:
                if key in w.month and (past := self.date(token, stop)):
                    return past
                if key in w.street_start and i + 1 < count and (number := HOUSE_AFTER.match(text, end, stop)):
                    return self.add(token.start, number.end(), "ADDRESS")
            if numbered and i + 1 == count and not token.last:
                past = self.postal(token, stop)
                if past is not None:
                    return past
            i = (
                (special and (key in w.role or key in w.fake_start) and self.placeholder(tokens, i, stop))
                or (special and (key in w.honorific or key in w.job) and self.title(tokens, i))
                or self.name(tokens, i, stop)
            )
        return max(end, self.spans[-1][1]) if self.spans else end

    def date(self, token: Token, stop: int) -> int | None:
        before = DAY_BEFORE.search(self.before(token.start))
        after = DAY_AFTER.match(self.text, token.end, stop)
        if not before and (not after or not after[0].rstrip(".")):
            return None
        begin = token.start - len(before[0]) if before else token.start
        return self.add(begin, after.end() if after and after[0] != "." else token.end, "OTHER")

    def street(self, tokens: list[Token], stop: int) -> int:
        """``12 High Street, Apt 5``; returns the first token after it. A street without a number is no address."""
        house = HOUSE_BEFORE.search(self.before(tokens[0].start))
        end = next((i for i in range(len(tokens) - 1, 0, -1) if tokens[i].key in self.w.street), 0)
        if not house or not end:
            return 0
        flat = FLAT_AFTER.match(self.text, tokens[end].end, stop)
        self.add(tokens[0].start - len(house[0]), flat.end() if flat else tokens[end].end, "ADDRESS")
        return end + 1

    def postal(self, token: Token, stop: int) -> int | None:
        """What the number after the last word makes of it: a ZIP code, a post box, a house number."""
        if token.shouted and token.key in self.w.state and (zip_ := STATE_ZIP.match(self.text, token.end, stop)):
            return self.add(token.start, zip_.end(), "ADDRESS")
        if token.key in self.w.flat and (box := BOX_AFTER.match(self.text, token.end, stop)):
            return self.add(token.start, box.end(), "ADDRESS")
        if len(token.key) > 5 and token.key.endswith(self.w.street_end):
            number = HOUSE_AFTER.match(self.text, token.end, stop)
            return self.add(token.start, number.end(), "ADDRESS") if number else None
        return None

    def organisation(self, tokens: list[Token], stop: int) -> int:
        """Adds the organisation that the run names, if any; returns the first token after it."""
        w = self.w
        end = next(i for i in range(len(tokens) - 1, -1, -1) if tokens[i].key in w.org)
        begin = next((i for i in range(end) if tokens[i].key not in w.stop), end)
        more = ORG_AFTER.match(self.text, tokens[end].end, stop) if end + 1 == len(tokens) else None
        if begin == end and not more:
            return 0
        self.add(tokens[begin].start, more.end() if more else tokens[end].end, "ORG_TITLE")
        return end + 1

    def title(self, tokens: list[Token], i: int) -> int | None:
        """``Mr. X`` is a person whatever X is, unless it is an everyday word; a job title is an ORG_TITLE."""
        w, key = self.w, tokens[i].key
        if key in w.honorific and i + 1 < len(tokens):
            j = i + 1
            while j < min(len(tokens), i + 5) and (tokens[j].initial or self.nameable(tokens[j], j > i + 1)):
                j += 1
            if j > i + 1 and not tokens[j - 1].initial:
                if key in w.job:
                    self.add(tokens[i].start, tokens[i].end, "ORG_TITLE")
                self.add(tokens[i + 1].start, tokens[j - 1].end, "PERSON_NAME")
                return j
        if key in w.job:
            j = i + 1
            while j < len(tokens) and tokens[j].key in w.job:
                j += 1
            self.add(tokens[i].start, tokens[j - 1].end, "ORG_TITLE")
            return j
        return None

    def nameable(self, token: Token, later: bool) -> bool:
        w = self.w
        known = token.key in w.surname or token.key in w.first
        return token.key not in w.stopping or (
            known and token.key not in w.place and not (later and token.key in w.org)
        )

    def placeholder(self, tokens: list[Token], i: int, stop: int) -> int | None:
        w, token = self.w, tokens[i]
        for width in (3, 2):
            if " ".join(t.key for t in tokens[i : i + width]) in w.fake and i + width <= len(tokens):
                self.add(token.start, tokens[i + width - 1].end, "PERSON_NAME_PLACEHOLDER")
                return i + width
        if token.key not in w.role:
            return None
        if i + 1 < len(tokens):
            if tokens[i + 1].initial and not self.text.startswith(".", tokens[i + 1].end - 1):
                self.add(token.start, tokens[i + 1].end, "PERSON_NAME_PLACEHOLDER")
                return i + 2
        elif number := ROLE_NUMBER.match(self.text, token.end, stop):
            self.add(token.start, number.end(), "PERSON_NAME_PLACEHOLDER")
            return i + 1
        return None

    def name(self, tokens: list[Token], i: int, stop: int) -> int:
        """A name that starts at this token, strict or ambiguous; returns the first token after it."""
        w, token = self.w, tokens[i]
        first, j = self.is_first(token), i + 1
        if (
            j < len(tokens)
            and not token.last
            and (first or self.plain(token) or (token.initial and self.text[token.end - 1] == "."))
        ):
            while j + 1 < len(tokens) and not tokens[j].last and (tokens[j].initial or tokens[j].key in w.first):
                j += 1
            if j < len(tokens) and not tokens[j].initial:
                kind = self.judge(tokens, i, j)
                past = j + 1
                while (
                    kind and past < min(len(tokens), j + 3) and not tokens[past - 1].last and self.plain(tokens[past])
                ):
                    past += 1
                if kind and past < len(tokens) and tokens[past].key in w.head:
                    return past + 1
                if kind == "PERSON_NAME" and past == len(tokens) and HOUSE_AFTER.match(self.text, tokens[-1].end, stop):
                    kind = "PERSON_NAME_AMBIGUOUS"
                if kind:
                    self.add(token.start, tokens[past - 1].end, kind)
                    return past
        if token.initial or not (first or token.key in w.surname) or token.key in w.stopping or len(token.key) < 3:
            return i + 1
        if i + 1 < len(tokens) and tokens[i + 1].key in w.head:
            return i + 2
        cued = first and i > 0 and tokens[i - 1].key in w.cue
        self.add(token.start, token.end, "PERSON_NAME" if cued else "PERSON_NAME_AMBIGUOUS")
        return i + 1

    def is_first(self, token: Token) -> bool:
        w = self.w
        key = token.key
        return (key in w.first or ("-" in key and key.split("-")[0] in w.first)) and key not in w.job

    def plain(self, token: Token) -> bool:
        return len(token.key) > 2 and not token.shouted and token.key not in self.w.stopping

    def unknown(self, token: Token) -> bool:
        return token.key not in self.w.surname and self.plain(token)

    def judge(self, tokens: list[Token], i: int, j: int) -> str | None:
        """How sure it is that tokens i to j, from first name or initial to surname, name a person."""
        w, first, last = self.w, tokens[i], tokens[j]
        known = last.key in w.surname or last.key in w.first
        clear = last.key not in w.stopping
        if not (known or self.plain(last)) or (first.key in w.place and last.key in w.head):
            return None
        previous = tokens[i - 1].key if i else ""
        sure = previous in w.job or not (previous in w.place or previous in w.head or previous in w.org)
        if self.is_first(first) and first.key not in w.stopping and not first.shouted:
            # A surname that is also a word (Young) or a place (Denver) is one after a certain first name.
            sure = sure and (clear or (known and last.key not in w.head))
        elif self.is_first(first) or first.initial:
            sure = sure and known and clear
        elif not (any(t.initial for t in tokens[i + 1 : j]) or (self.unknown(first) and known and self.plain(last))):
            # An unknown word is taken for a first name only before an initial, or before a surname and nothing else.
            return None
        return "PERSON_NAME" if sure else "PERSON_NAME_AMBIGUOUS"
