"""The named-entity classifier behind NEL: regular expressions and lexicons, no model.

NEL (Mind the Hook, arXiv 2608.09001) counts the named entities in what leaves a pipeline; its strict
form counts only :data:`STRICT`. The paper names some of its eleven types; the full set is our reading.
The price of doing without a model is recall: a name outside the lexicons is found only beside a known
one or after a title such as ``Mr.``. Every step takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import Counter

from ragtrace.lexicons import vocabulary
from ragtrace.lexicons.bits import DULL, HEEDED, SINGLE, STOPPING
from ragtrace.lexicons.runs import RunReader
from ragtrace.lexicons.shapes import (
    CODE,
    CODE_HEAD,
    CURRENCY,
    DOMAIN,
    LINK,
    LOCAL,
    NUMBER,
    PLAIN,
    SCAN,
    SCAN_ASCII,
    SCHEME,
    SLOT,
    SMALL_PAIR,
    URL_REST,
    WORDS,
    WORDS_ASCII,
    is_phone,
    luhn,
)
from ragtrace.types import Entity

__all__ = ["MEANING", "STRICT", "TYPES", "counts", "entities", "vocabulary"]

MEANING: dict[str, str] = {
    "EMAIL_REAL": "an e-mail address that may belong to somebody",
    "EMAIL_PLACEHOLDER": "an e-mail address of nobody: a reserved domain, a mask, a slot such as [EMAIL]",
    "PERSON_NAME": "a full name (known first name, plausible surname), or a name after a title or greeting",
    "PERSON_NAME_PLACEHOLDER": "a conventional name of nobody: John Doe, Person A, [NAME]",
    "PERSON_NAME_AMBIGUOUS": "a single name, or a full one that may be a place, a thing or two words",
    "ORG_TITLE": "an organisation's name or a job title",
    "PHONE": "a telephone number, international or national",
    "IDENTIFIER": "a number or code of one person or thing: SSN, card (Luhn), IBAN, account, EMP-10293",
    "ADDRESS": "a street with its house number, a post box, a postal code beside its state or the word zip",
    "NUMBER": "another number of three digits or more, with decimals or with a currency sign",
    "OTHER": "a URL, an IP address, a date or a time",
}
"""The eleven types, each with its meaning."""
TYPES: tuple[str, ...] = tuple(MEANING)
STRICT: tuple[str, ...] = ("EMAIL_REAL", "PERSON_NAME")
"""The types NEL strict counts."""


_new = tuple.__new__  # a named tuple's own way goes through Python
_WORD, _PLAIN = SCAN.groupindex["word"], SCAN.groupindex["plain"]


def entities(text: str) -> list[Entity]:
    """The entities of ``text`` in order; spans do not overlap, and ``text[e.start:e.end] == e.text``."""
    found = []
    for start, end, kind in _Reader(text).read():
        found.append(_new(Entity, (kind, text[start:end], start, end)))
    return found


def counts(text: str) -> dict[str, int]:
    """How many entities of each type ``text`` holds; all eleven types are present, 0 where there is none."""
    found = Counter(kind for _, _, kind in _Reader(text).read())
    return {kind: found[kind] for kind in TYPES}


class _Reader(RunReader):
    """One pass over a text. Spans are collected in order; a later, longer reading replaces what it overlaps."""

    __slots__ = ()

    def read(self) -> list[tuple[int, int, str]]:
        text = self.text
        if "@" in text or "://" in text or "www." in text:
            for start, end, kind in self.links():
                self.between(self.floor, start)
                self.spans.append((start, end, kind))
                self.floor = end
        self.between(self.floor, len(text))
        return self.spans if self.w.small_first.isdisjoint(text.split(" ")) else self.small()

    # -- addresses of the net -----------------------------------------------------------------------

    def links(self) -> list[tuple[int, int, str]]:
        """E-mail addresses and URLs, found from ``@``, ``://`` and ``www.``."""
        text, end = self.text, 0
        found: list[tuple[int, int, str]] = []
        while hit := LINK.search(text, end):
            at, end = hit.span()
            floor = found[-1][1] if found else 0
            if hit[0] == "@":
                if at == floor or text[at - 1] in "@ \n":
                    continue
                local = LOCAL.search(text[max(floor, at - 64) : at])
                domain = local and DOMAIN.match(text, end)
                if local and domain and (mailbox := local[0].lstrip(".'`/=&|{")):
                    end = domain.end()
                    found.append((at - len(mailbox), end, self.mail(mailbox, domain[0])))
                continue
            scheme = SCHEME.search(text[max(floor, at - 16) : at]) if hit[0] == "://" else None
            rest = URL_REST.match(text, end)
            if rest and (scheme or hit[0] == "www."):
                end = rest.start() + len(rest[0].rstrip(".,;:!?"))
                found.append((at - len(scheme[0]) if scheme else at, max(end, hit.end()), "OTHER"))
                end = max(end, hit.end())
        return found

    def mail(self, mailbox: str, domain: str) -> str:
        w, domain, mailbox = self.w, domain.casefold(), mailbox.casefold()
        labels = domain.split(".")
        fake = (
            domain in w.fake_domain
            or f".{labels[-1]}" in w.fake_domain
            or ".".join(labels[-2:]) in w.fake_domain
            or f"{labels[0]}." in w.fake_domain
            or mailbox in w.fake_mailbox
            or "*" in mailbox
        )
        return "EMAIL_PLACEHOLDER" if fake else "EMAIL_REAL"

    def small(self) -> list[tuple[int, int, str]]:
        """Adds full names without capitals (queries, chat) where neither part is a word: ``amy schumer``."""
        w = self.w
        pairs = {
            (first, last)
            for first, last in SMALL_PAIR.findall(self.text)
            if first in w.small_first and last in w.surname and not w.bits[last] & STOPPING
        }
        if not pairs:
            return self.spans
        taken = bytearray(len(self.text) + 1)
        for start, end, _ in self.spans:
            taken[start:end] = b"1" * (end - start)
        for hit in SMALL_PAIR.finditer(self.text):
            if hit.groups() in pairs:
                start, end = hit.start(), hit.end(2)
                if not any(taken[start:end]):
                    taken[start:end] = b"1" * (end - start)
                    self.spans.append((start, end, "PERSON_NAME"))
        return sorted(self.spans)

    # -- the rest -----------------------------------------------------------------------------------

    def between(self, position: int, stop: int) -> None:
        text, get = self.text, self.w.bits.get
        search = SCAN_ASCII.search if text.isascii() else SCAN.search
        while hit := search(text, position, stop):
            shape, position = hit.lastindex, hit.end()
            if shape == _WORD:
                found = hit[0]
                key = found.casefold()
                bits = get(key, 0)
                if not bits & HEEDED and (key.isalpha() or bits & DULL):
                    continue
                if bits & SINGLE:
                    self.spans.append((hit.start(), position, "PERSON_NAME_AMBIGUOUS"))
                else:
                    position = self.run(hit.start(), position, stop, found)
                continue
            start = hit.start()
            if shape == _PLAIN:
                if position - start > 2 or text[start - 1] in CURRENCY:
                    self.plain_number(start, position, hit[0])
            elif shape:
                position = self.run(start, position, stop, hit[0])
            elif text[start] in "[<{":
                position = self.slot(start, position)
            else:
                position = self.number(start, stop)

    def slot(self, start: int, end: int) -> int:
        hit = SLOT.match(self.text, start)
        if not hit:
            return end
        parts = re.split(r"[_ -]", hit[1].casefold())
        if "email" in parts or "mail" in parts:
            return self.add(start, hit.end(), "EMAIL_PLACEHOLDER")
        if all(part in self.w.slot or part in ("redacted", "the", "your", "insert") for part in parts) and any(
            part in self.w.slot for part in parts
        ):
            return self.add(start, hit.end(), "PERSON_NAME_PLACEHOLDER")
        return end

    def number(self, start: int, stop: int) -> int:
        """Reads what starts with a digit, ``+`` or ``(``; returns where to go on."""
        text, w = self.text, self.w
        first = text[start]
        if first.isdigit() and start > self.floor and (text[start - 1].isalnum() or text[start - 1] in "_-"):
            head = CODE_HEAD.search(self.before(start, 64))
            begin = start - len(head[0].lstrip("-")) if head else start
            code = CODE.match(text, begin, stop)
            if code and code.end() > start and not code[0].replace("-", "").isdigit():
                return self.code(begin, code.end(), code[0])
        hit = NUMBER.match(text, start, stop)
        if not hit:
            return start + 1
        kind, end, found = hit.lastgroup, hit.end(), hit[0]
        if end < stop and first.isdigit() and (text[end].isalpha() or text[end] == "_"):
            code = CODE.match(text, start, stop)
            if code and code.end() > end:
                return self.code(start, code.end(), code[0])
        digits = "".join(filter(str.isdigit, found)) if len(found) < 64 else ""
        if kind == "card":
            kind = "IDENTIFIER" if luhn(digits) or found.isdigit() else "phone"
        if kind == "phone" and len(digits) >= 7:
            context = self.words_before(start)
            named = not w.phone_word.isdisjoint(context)
            kind = "PHONE" if is_phone(found, digits, named) else None
            if kind and not named and not w.id_word.isdisjoint(context):
                kind = "IDENTIFIER"
        if kind in ("OTHER", "IDENTIFIER", "PHONE"):
            return self.add(start, end, kind)
        if not first.isdigit():
            return start + 1
        plain = hit if kind == "number" else PLAIN.match(text, start, stop)
        if plain:
            end = plain.end()
            self.plain_number(start, end, plain[0])
        return end

    def plain_number(self, start: int, end: int, found: str) -> None:
        """A number by itself: what it is, the word before it or its length says."""
        if start > self.floor and self.text[start - 1] in CURRENCY:
            self.add(start - 1, end, "NUMBER")
        elif len(found) < 3:
            return
        elif not found.isdigit():
            self.add(start, end, "NUMBER")
        else:
            context = self.words_before(start) if len(found) > 3 else []
            if len(found) == 5 and not self.w.zip_word.isdisjoint(context):
                self.add(start, end, "ADDRESS")
            elif len(found) >= 9 or not self.w.id_word.isdisjoint(context):
                self.add(start, end, "IDENTIFIER")
            else:
                self.add(start, end, "NUMBER")

    def words_before(self, start: int) -> list[str]:
        """The last two words before a number, casefolded, over ``is`` and colons: ``my account number is: 1234``."""
        before = self.before(start).casefold()
        return (WORDS_ASCII if before.isascii() else WORDS).findall(before)[-2:]
