"""The words of a target that only somebody who has read it knows, and others to put in their place."""

from __future__ import annotations

import re
import weakref
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ragtrace import lexicons

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from ragtrace.types import Corpus, Document

_WORD = re.compile(r"\w[\w'’-]*\w|\w")
_ALSO = """
above across again against among another anyone anything around away below beside between beyond both came come could
day during each either else even every everyone everything few first get give given go gone got had herself himself
into itself last least less like long made make many me more most much myself near never next nobody nothing often
once one others out over own perhaps quite rather said same say says second seem seemed several something such take
them themselves third three together too towards two under up upon us used using very way went whether whose within
yet
""".split()


class Word(NamedTuple):
    """A word of a text: ``source[start:end] == text``."""

    text: str
    start: int
    end: int

    @property
    def key(self) -> str:
        """What makes two words the same."""
        return self.text.casefold()


def words(text: str) -> list[Word]:
    """The words of ``text`` in order, with hyphens and apostrophes inside them."""
    return [Word(m.group(), m.start(), m.end()) for m in _WORD.finditer(text)]


@cache
def function_words() -> frozenset[str]:
    """Words that carry a sentence and tell nothing of its subject."""
    return lexicons.load("function_words") | frozenset(_ALSO)


def tells(word: Word) -> bool:
    """Whether the word is one of content: a number, or at least three letters long and no function word."""
    return word.text.isdigit() or (len(word.text) > 2 and word.key not in function_words())


def content(text: str) -> frozenset[str]:
    """The content words of a text, casefolded."""
    return frozenset(w.key for w in words(text) if tells(w))


_counted: list[tuple[weakref.ref[Corpus], Counter[str]]] = []


def document_frequency(corpus: Corpus) -> Counter[str]:
    """In how many documents of the corpus each word stands: of members and non-members alike, for an attacker knows the
    distribution and not who is in.
    """
    if _counted and _counted[0][0]() is corpus:
        return _counted[0][1]
    found: Counter[str] = Counter()
    for document in (*corpus.members, *corpus.non_members):
        found.update({w.key for w in words(document.content)})
    _counted[:] = [(weakref.ref(corpus), found)]
    return found


def hardness(word: Word, frequency: Counter[str]) -> tuple[int, bool, int]:
    """How hard a word is to guess, to sort by: rare in the corpus, no common English word, long."""
    return -frequency[word.key], word.key not in lexicons.load("common_words"), len(word.text)


def shape(word: Word) -> str:
    """Words of one shape may stand for each other: ``number``, ``Name``, ``CODE`` or ``word``."""
    if any(c.isdigit() for c in word.text):
        return "number" if word.text.isdigit() else "CODE"
    return "word" if word.text.islower() else "CODE" if word.text.isupper() and len(word.text) > 1 else "Name"


def others(target: Document, corpus: Corpus, rng: random.Random) -> Iterator[Document]:
    """The other documents of the corpus, in random order, as many as are asked for."""
    everyone: Sequence[Document] = (*corpus.members, *corpus.non_members)
    order = list(range(len(everyone)))
    for i in range(len(order)):
        j = rng.randrange(i, len(order))
        order[i], order[j] = order[j], order[i]
        if (document := everyone[order[i]]).id != target.id:
            yield document


class Strangers:
    """Words of other documents, by shape, that the target does not have: each is given once."""

    def __init__(self, target: Document, corpus: Corpus, rng: random.Random) -> None:
        self._own = {w.key for w in words(target.content)}
        self._rng = rng
        self._source = others(target, corpus, rng)
        self._kept: dict[str, list[str]] = {}

    def like(self, word: Word) -> str | None:
        """A stranger of the word's shape; ``None`` where the corpus has no more of them."""
        wanted = shape(word)
        while not self._kept.get(wanted):
            if (document := next(self._source, None)) is None:
                return None
            self._read(document)
        return self._kept[wanted].pop()

    def _read(self, document: Document) -> None:
        found = [w for w in words(document.content) if tells(w) and w.key not in self._own]
        self._rng.shuffle(found)
        for word in found:
            if word.key not in self._own:
                self._own.add(word.key)
                self._kept.setdefault(shape(word), []).append(word.text)


def swap(text: str, swaps: Sequence[tuple[Word, str]]) -> str:
    """``text`` with these words of it replaced."""
    out: list[str] = []
    end = 0
    for word, instead in sorted(swaps, key=lambda pair: pair[0].start):
        out += (text[end : word.start], instead)
        end = word.end
    return "".join((*out, text[end:]))
