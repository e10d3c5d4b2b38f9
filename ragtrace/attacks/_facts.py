"""Facts of a target, offline: its words that tell, each with the piece of text round it, and what it is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ragtrace.attacks._words import Word, content, document_frequency, hardness, tells, words

if TYPE_CHECKING:
    from ragtrace.types import Corpus, Document

ABOUT = ("title", "topic", "subject")
"""Metadata that say what a document is about."""
_OPENING = 8
_EITHER_SIDE = 4
_END = re.compile(r"(?<=[.!?])\s|\n")


class Fact(NamedTuple):
    """A word that tells, and the piece of its sentence that it stands in."""

    word: Word
    before: str
    after: str

    def piece(self, other: str | None = None) -> str:
        """The piece, as it is or with another word in the word's place."""
        return f"{self.before}{other or self.word.text}{self.after}".strip()


def subject(target: Document) -> str:
    """What the target is about: its title, topic or subject, else its first words (a quarter of a short text)."""
    for key in ABOUT:
        if isinstance(named := target.metadata.get(key), str) and named.strip():
            return " ".join(named.split())
    found = words(target.content)
    kept = found[: max(1, min(_OPENING, len(found) // 4))]
    return " ".join(target.content[kept[0].start : kept[-1].end].split()) if kept else ""


def facts(target: Document, corpus: Corpus) -> list[Fact]:
    """The target's facts, hardest to guess first, each word once; none that its subject gives away."""
    text = target.content
    found = words(text)
    known = content(subject(target))
    frequency = document_frequency(corpus)
    kept: dict[str, Fact] = {}
    for i, word in enumerate(found):
        if tells(word) and word.key not in known and word.key not in kept:
            first, last = found[max(0, i - _EITHER_SIDE)], found[min(len(found) - 1, i + _EITHER_SIDE)]
            before, after = text[first.start : word.start], text[word.end : last.end]
            kept[word.key] = Fact(word, _END.split(before)[-1], _END.split(after)[0])
    return sorted(kept.values(), key=lambda fact: hardness(fact.word, frequency), reverse=True)
