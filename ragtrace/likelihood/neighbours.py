"""Texts that differ from a target in a few words: an offline stand-in for a masked language model's suggestions."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

COUNT = 25
SHARE = 0.05
"""Of a text's words that are replaced in each neighbour; at least one."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_TRIES = 20

Words = Mapping[str, list[tuple[str, str]]]
"""By shape: words, each with the text that it is from."""


def shape(word: str) -> str:
    """Words of one shape may stand for each other: ``9`` and its length, ``A``, ``Aa`` or ``a``."""
    if any(c.isdigit() for c in word):
        return f"9{len(word)}"
    return "A" if word.isupper() and len(word) > 1 else "Aa" if word[:1].isupper() else "a"


def vocabulary(texts: Iterable[str]) -> Words:
    """The words of these texts, as often as they occur."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for text in texts:
        for word in _WORD.findall(text):
            found[shape(word)].append((word, text))
    return dict(found)


def neighbours(text: str, words: Words, count: int = COUNT) -> list[str]:
    """``count`` versions of ``text``, each with ``SHARE`` of its words replaced by words of other texts.

    The same text has the same neighbours. A word that no other of its shape can stand for stays; there are none where
    all stay.
    """
    places = list(_WORD.finditer(text))
    rng = random.Random(f"neighbours {text}")  # noqa: S311 (seeded on purpose)
    wanted = max(1, round(SHARE * len(places)))
    changed = []
    for _ in range(count):
        swaps: list[tuple[int, int, str]] = []
        for place in rng.sample(places, len(places)):
            if len(swaps) < wanted and (new := _another(place[0], text, words, rng)):
                swaps.append((*place.span(), new))
        version = text
        for start, end, new in sorted(swaps, reverse=True):  # from the right: places on the left stay where they are
            version = version[:start] + new + version[end:]
        if swaps:
            changed.append(version)
    return changed


def _another(word: str, text: str, words: Words, rng: random.Random) -> str | None:
    choices = words.get(shape(word), [])
    for _ in range(_TRIES if choices else 0):
        new, origin = rng.choice(choices)
        if origin != text and new.casefold() != word.casefold():
            return new
    return None
