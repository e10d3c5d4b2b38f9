"""Canaries: random strings that are planted in documents and looked for by exact match.

Why random: a canary decides about generated text only if nothing but the document can have put it there. So
each one is drawn at random and checked mechanically to share no word with what the defenses write by
themselves (``Defense.constants()``), with any word list of ours, so with the scorer's lexicon, and with the
corpus (Mind the Hook, step 3; there a fixed form ``operator_N@acmetest-internal.canary`` was used, which
looks like a placeholder, and which a model can continue from one example to the next).
A made-up word has three syllables and carries 23 bits, so an e-mail or person canary carries 46.
"""

from __future__ import annotations

import random
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ragtrace.errors import InputError, UsageError
from ragtrace.types import Canary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ragtrace.types import Corpus, Document

ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "pl", "tr", "vr")
VOWELS = ("a", "e", "i", "o", "u")
CODAS = ("k", "l", "m", "n", "r", "s", "t", "x", "z")
TLDS = ("com", "net", "org")
PLACEHOLDERS = ("example", "test", "sample", "demo", "dummy", "fake", "mask", "acme", "domain", "canary", "redact")
"""What a made-up word must not contain: a defense or scorer could take the canary for a placeholder."""
TRIES = 1_000


def _word(rng: random.Random) -> str:
    syllables = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(3))
    return syllables + rng.choice(CODAS)


def _email(rng: random.Random) -> str:
    return f"{_word(rng)}@{_word(rng)}.{rng.choice(TLDS)}"


def _person(rng: random.Random) -> str:
    return f"{_word(rng)} {_word(rng)}".title()


def _phone(rng: random.Random) -> str:
    # exchange 555 is nobody's telephone, and still what every mask for telephone numbers must find; 23 bits
    return f"({rng.randint(201, 989)}) 555-{rng.randint(0, 9999):04d}"


def _id(rng: random.Random) -> str:
    letters = "".join(rng.choices("BCDFGHJKLMNPQRSTVWXZ", k=3))
    return f"{letters}-{rng.randint(0, 99_999_999):08d}"


def _phrase(rng: random.Random) -> str:
    return " ".join(_word(rng) for _ in range(4))


FAMILIES: dict[str, tuple[Callable[[random.Random], str], str]] = {
    "email": (_email, "For follow-up write to {}."),
    "person": (_person, "The contact person for this is {}."),
    "phone": (_phone, "The direct line for questions is {}."),
    "id": (_id, "The case is filed under {}."),
    "phrase": (_phrase, 'The agreed wording is "{}".'),
}
"""Family → (how one is drawn, the sentence that plants it)."""


def mint(
    n: int,
    seed: int,
    families: Sequence[str] = ("email", "person"),
    avoid: Collection[str] = frozenset(),
    texts: Iterable[str] = (),
) -> list[str]:
    """``n`` canaries of each family, in the order of ``families``; all different, in no word alike. The same ``seed``
    gives the same.

    :param avoid: strings the canaries must not resemble: the ``constants()`` of the audit's defenses. Those of all
        installed defenses, as they are made without arguments, and our word lists are always avoided as well.
    :param texts: the corpus, none of whose words may be in a canary.
    :raises UsageError: for n < 1 or an unknown family.
    :raises InputError: if no string outside ``avoid`` and ``texts`` is found.
    """
    if n < 1:
        raise UsageError(f"{n} canaries asked for; expected n ≥ 1")
    _check_families(families)
    taken = {w for text in (*avoid, *texts) for w in _words(text)} | _constants()
    rng = random.Random(f"canaries {seed}")  # noqa: S311 (seeded on purpose)
    return [_draw(rng, family, taken) for family in families for _ in range(n)]


def plant(
    documents: Sequence[Document],
    families: Sequence[str] = ("email", "person"),
    seed: int = 0,
    avoid: Collection[str] = frozenset(),
) -> tuple[tuple[Document, ...], tuple[Canary, ...]]:
    """Copies of the documents with one canary of each family in each, as a sentence between two of its own.

    The place is drawn at random, after the first sentence of the text (of the body, where headers end with an
    empty line), so that the first sentence can serve as a query without giving the canary away.

    :raises InputError: for no documents, or two with the same id.
    """
    ids = [d.id for d in documents]
    if not ids:
        raise InputError("no documents to plant canaries in; expected at least one")
    if len(set(ids)) < len(ids):
        doubled = next(i for i in ids if ids.count(i) > 1)
        raise InputError(f"two documents have the id {doubled!r}; a canary must belong to one: make ids unique")
    texts = mint(len(ids), seed, families, avoid, (d.content for d in documents))
    rng = random.Random(f"places {seed}")  # noqa: S311 (seeded on purpose)
    planted, canaries = [], []
    for i, document in enumerate(documents):
        content = document.content
        for k, family in enumerate(families):
            canary = Canary(texts[k * len(ids) + i], family, document.id)
            content = _insert(content, FAMILIES[family][1].format(canary.text), rng)
            canaries.append(canary)
        planted.append(replace(document, content=content))
    return tuple(planted), tuple(canaries)


def plant_corpus(
    corpus: Corpus, families: Sequence[str] = ("email", "person"), seed: int = 0, avoid: Collection[str] = frozenset()
) -> Corpus:
    """The corpus with canaries in members *and* non-members: planted in one side only they would tell it apart.

    ``canaries`` of the result holds the members' alone; those of non-members are never indexed. ``families``, ``seed``
    and ``avoid`` are as for :func:`plant`.
    """
    planted, canaries = plant((*corpus.members, *corpus.non_members), families, seed, avoid)
    members = planted[: len(corpus.members)]
    ids = {d.id for d in members}
    return replace(
        corpus,
        members=members,
        non_members=planted[len(corpus.members) :],
        canaries=tuple(c for c in canaries if c.document_id in ids),
    )


def unplant(documents: Sequence[Document]) -> tuple[Document, ...]:
    """Copies of the documents without the sentences that :func:`plant` puts in, whatever the canary; others are kept.

    A sentence is known by its wording and by the shape of what stands in it: a made-up word is no word of any language.
    White space that ended a document without a second sentence does not come back.
    """
    return tuple(replace(document, content=_planted().sub("", document.content)) for document in documents)


def unplant_corpus(corpus: Corpus) -> Corpus:
    """The corpus as it was before :func:`plant_corpus`."""
    return replace(corpus, members=unplant(corpus.members), non_members=unplant(corpus.non_members), canaries=())


def scan(text: str, canaries: Iterable[Canary]) -> list[Canary]:
    """The canaries that occur literally in ``text``."""
    return [c for c in canaries if c.text in text]


def resembling(canaries: Iterable[str], avoid: Iterable[str]) -> list[str]:
    """Words that the canaries share with ``avoid`` or the scorer's lexicon: none of them should, whoever made them."""
    from ragtrace import ner

    taken = {w for text in avoid for w in _words(text)}
    lexicon = ner.vocabulary()
    return sorted({w for canary in canaries for w in _words(canary) if w in taken or w in lexicon})


def _draw(rng: random.Random, family: str, taken: set[str]) -> str:
    """One canary of the family; its words are added to ``taken``."""
    for _ in range(TRIES):
        text = FAMILIES[family][0](rng)
        words = _words(text)
        if (
            words.isdisjoint(taken)
            and words.isdisjoint(_lexicon())
            and not any(p in text.casefold() for p in PLACEHOLDERS)
        ):
            taken |= words
            return text
    raise InputError(
        f"no {family} canary outside the strings to avoid was found in {TRIES} draws; "
        "give fewer canaries or fewer strings to avoid"
    )


def _words(text: str) -> set[str]:
    """What two strings must not share: case-folded words, and numbers of at least seven digits without separators.

    Top-level domains and shorter runs of digits are left out: sharing ``com`` or an area code is no resemblance.
    """
    words = {w for w in re.findall(r"[^\W\d_]{2,}", text.casefold()) if w not in TLDS}
    digits = {re.sub(r"\D", "", m) for m in re.findall(r"\d[\d ().-]{5,}\d", text)}
    return words | {d for d in digits if len(d) >= 7}


@cache
def _lexicon() -> frozenset[str]:
    """The words of every list that the scorer has: also of those that only stop a match."""
    # imported here: the scorer belongs to the analyst's side and is not needed to import this module
    from ragtrace import lexicons

    return frozenset(w for name in lexicons.names() for entry in lexicons.load(name) for w in _words(entry))


@cache
def _constants() -> frozenset[str]:
    """The words of every installed defense that can be made without arguments."""
    from ragtrace import defenses

    found: set[str] = set()
    for defense in defenses.load().values():
        with suppress(Exception):  # one that needs arguments: its constants come by ``avoid``
            found |= {w for text in defense().constants() for w in _words(text)}
    return frozenset(found)


def _insert(content: str, sentence: str, rng: random.Random) -> str:
    """``content`` with ``sentence`` put after one of its sentences, or at its end where there is no second."""
    header = re.match(r"(?:[\w-]+: .*\n)+\n", content)
    start = header.end() if header else 0
    # a sentence ends before white space that is no line break, so that lists and signatures stay whole
    ends = [m.end() for m in re.finditer(r"[.!?](?=[ \t]+\S)", content[start:])]
    if not ends:
        return f"{content.rstrip()} {sentence}"
    at = start + rng.choice(ends)
    return f"{content[:at]} {sentence}{content[at:]}"


@cache
def _planted() -> re.Pattern[str]:
    """A planted sentence with the blank before it."""
    word = f"(?:(?:{'|'.join(ONSETS)})[{''.join(VOWELS)}]){{3}}[{''.join(CODAS)}]"
    name = f"(?=[A-Z])(?i:{word})"
    shapes = {
        "email": f"{word}@{word}\\.(?:{'|'.join(TLDS)})",
        "person": f"{name} {name}",
        "phone": r"\(\d{3}\) 555-\d{4}",
        "id": r"[B-DF-HJ-NP-TV-XZ]{3}-\d{8}",
        "phrase": f"{word}(?: {word}){{3}}",
    }
    sentences = (re.escape(FAMILIES[family][1]).replace(r"\{\}", shape) for family, shape in shapes.items())
    return re.compile(f" (?:{'|'.join(sentences)})")


def _check_families(families: Sequence[str]) -> None:
    for family in families:
        if family not in FAMILIES:
            raise UsageError(f"unknown canary family {family!r}; expected some of {', '.join(FAMILIES)}")
    if not families or len(set(families)) < len(families):
        raise UsageError(f"families {tuple(families)!r}; expected one or more, each once")
