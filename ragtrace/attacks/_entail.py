"""Whether a target text says what an answer says, offline, in [0, 1] (embeddings: in [-1, 1])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ragtrace.attacks._words import content
from ragtrace.attacks._yes_no import refuses

Entails = Callable[[str, str], float]
"""A scorer of the user's: (text, answer) → how far the text entails the answer."""


class Pair(NamedTuple):
    """A target's text, a question about it, and the answer."""

    text: str
    question: str
    answer: str


def lexical(pairs: Sequence[Pair]) -> list[float]:
    """The share of the answer's content words that stand in the text; words of the question count on neither side.

    An answer that adds no word to its question, or that refuses, tells nothing: 0.
    """
    return [_contained(pair) for pair in pairs]


def _contained(pair: Pair) -> float:
    said = content(pair.answer) - content(pair.question)
    if not said or refuses(pair.answer):
        return 0.0
    return len(said & content(pair.text)) / len(said)


def embedded(pairs: Sequence[Pair]) -> list[float]:
    """The cosine of the sentence vectors of answer and text; 0 for an answer that is empty or refuses.

    :raises UsageError: the embedder is not installed.
    """
    import numpy as np

    from ragtrace.metrics._embed import embed

    told = [pair for pair in pairs if pair.answer.strip() and not refuses(pair.answer)]
    if not told:
        return [0.0] * len(pairs)
    texts, answers = embed([p.text for p in told]), embed([p.answer for p in told])
    norms = np.linalg.norm(texts, axis=1) * np.linalg.norm(answers, axis=1)
    cosines = dict(zip(told, ((texts * answers).sum(axis=1) / norms).tolist(), strict=True))
    return [cosines.get(pair, 0.0) for pair in pairs]
