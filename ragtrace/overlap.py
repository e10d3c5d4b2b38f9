"""What an answer took over from a document, word by word: the longest common run, and the share of its word n-grams.

The one definition, for the join point (where texts may not be kept) and for the analyst's side. A word is a run
of letters, digits and underscores, in lower case; in scripts that put no blanks between words, each character is one.
An answer is indexed once, then compared with each of its documents.
"""

from __future__ import annotations

import re
from typing import NamedTuple

N = 5
"""Words of an n-gram: few enough to outlast small edits, enough not to be met by chance."""
LIMIT = 20_000
"""Characters that are read of each text, from its start."""

_GAP = "\0"  # stands for every word that the answer does not have
_SMALL = 250_000  # words of one times words of the other: beyond, by automaton, in linear time whatever they hold
_BLANKS = str.maketrans({chr(c): " " for c in range(128) if not (chr(c).isalnum() or chr(c) == "_")})
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")


class Overlap(NamedTuple):
    """An answer and a document, compared."""

    longest_run: int
    """Words of the longest run that stands in both."""
    containment: float | None
    """Share of the answer's different word n-grams (n = :data:`N`; all of its words, where it has fewer) that stand in
    the document. ``None`` for an answer without words."""


def words(text: str) -> list[str]:
    """The words of a text (of its first :data:`LIMIT` characters)."""
    text = text[:LIMIT].lower()
    return text.translate(_BLANKS).split() if text.isascii() else _WORD.findall(text)


class Answer:
    """An answer, ready to be compared with many documents."""

    __slots__ = ("_automaton", "_grams", "_line", "_n", "_signs")

    def __init__(self, text: str) -> None:
        signs: dict[str, str] = {}  # each different word as one character, so that runs of words are texts
        self._line = "".join([signs.setdefault(word, chr(len(signs) + 1)) for word in words(text)])
        self._signs = signs
        self._n = min(N, len(self._line))
        self._grams: set[str] | None = None
        self._automaton: list[tuple[int, int, dict[str, int]]] | None = None

    def against(self, document: str) -> Overlap:
        """What of the answer stands in ``document``."""
        line, sign = self._line, self._signs.get
        if not line:
            return Overlap(0, None)
        theirs = "".join([sign(word, _GAP) for word in words(document)])
        pieces = [piece for piece in theirs.split(_GAP) if piece]
        run = self._longest(pieces) if len(line) * len(theirs) <= _SMALL else self._longest_of_many(pieces)
        if run < (n := self._n):
            return Overlap(run, 0.0)
        if (grams := self._grams) is None:
            grams = self._grams = {line[at : at + n] for at in range(len(line) - n + 1)}
        met = {piece[at : at + n] for piece in pieces for at in range(len(piece) - n + 1)}
        return Overlap(run, len(met & grams) / len(grams))

    def _longest(self, pieces: list[str]) -> int:
        line, best = self._line, 0
        for piece in pieces:
            if len(piece) <= best:
                continue
            if piece in line:
                best = len(piece)
                continue
            at, last = 0, len(piece) - best
            while at < last:
                if piece[at : at + best + 1] in line:
                    best, last = best + 1, last - 1
                else:
                    at += 1
        return best

    def _longest_of_many(self, pieces: list[str]) -> int:
        states = self._automaton = self._automaton or _automaton(self._line)
        best = 0
        for piece in pieces:
            state = run = 0
            for sign in piece:
                while state and sign not in states[state][2]:
                    state = states[state][1]
                    run = states[state][0]
                if (after := states[state][2].get(sign)) is None:
                    continue
                state, run = after, run + 1
                if run > best:
                    best = run
        return best


def _automaton(line: str) -> list[tuple[int, int, dict[str, int]]]:
    """The suffix automaton of ``line`` (Blumer et al., 1985): length, suffix link and steps of each state."""
    length, link, steps = [0], [-1], [dict[str, int]()]
    last = 0
    for sign in line:
        new = len(length)
        length.append(length[last] + 1)
        link.append(0)
        steps.append({})
        state = last
        while state != -1 and sign not in steps[state]:
            steps[state][sign] = new
            state = link[state]
        if state != -1:
            after = steps[state][sign]
            if length[after] == length[state] + 1:
                link[new] = after
            else:
                copy = len(length)
                length.append(length[state] + 1)
                link.append(link[after])
                steps.append(steps[after].copy())
                while state != -1 and steps[state].get(sign) == after:
                    steps[state][sign] = copy
                    state = link[state]
                link[after] = link[new] = copy
        last = new
    return list(zip(length, link, steps, strict=True))
