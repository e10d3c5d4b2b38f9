"""Passages in an answer, and a memory that knows them again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragtrace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST = 8
"""Words that a passage has at least; shorter blocks are headings, and go with what follows."""
_TAGGED = re.compile(r"<(passage|document|chunk|context|doc)\b[^>]*>(.*?)(?=</\1>|<\1\b|\Z)", re.S | re.I)
_RULE = re.compile(r"\n[ \t]*(?:[-=*#_]{3,}|```\w*)[ \t]*(?=\n|\Z)|^[ \t]*```\w*[ \t]*\n")
_HEAD = re.compile(r"\n(?=[ \t]*(?:(?:passage|document|chunk|context|source)\s*#?\d+\b|\[?\d{1,3}[\].):]\s))", re.I)
_BLANK = re.compile(r"\n[ \t]*\n")


def chunks(answer: str, query: str) -> list[str]:
    """The passages of an answer: tagged, ruled off, numbered, or else its paragraphs; never what the query said."""
    answer = answer.replace(query, "\n\n")
    parts = [found[2] for found in _TAGGED.finditer(answer)] or _split(answer)
    known = _folded(query)
    found = (" ".join(part.split()) for part in parts)
    return list(dict.fromkeys(t for t in found if len(t.split()) >= SHORTEST and _folded(t) not in known))


def _split(answer: str) -> list[str]:
    for separator in (_RULE, _HEAD):
        parts = [part for part in separator.split(answer) if part.strip()]
        if len(parts) > 1:
            return parts
    parts = []
    heading = ""
    for block in _BLANK.split(answer):
        heading = f"{heading}\n{block}".strip()
        if len(heading.split()) >= SHORTEST:
            parts.append(heading)
            heading = ""
    if heading and parts:
        parts[-1] += f"\n{heading}"
    return parts or [answer]


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def rouge_l(first: str, second: str) -> float:
    """ROUGE-L F1 of two texts' words, in [0, 1].

    :raises UsageError: the extra ``audit`` is not installed.
    """
    longest, one, other = _common(first.casefold(), second.casefold())
    return 2 * longest / (one + other) if one + other else 0.0


def rouge_l_recall(reference: str, said: str) -> float:
    """The share of the reference's words that the other text has in the same order, in [0, 1].

    :raises UsageError: the extra ``audit`` is not installed.
    """
    longest, of, _ = _common(reference.casefold(), said.casefold())
    return longest / of if of else 0.0


def _common(first: str, second: str) -> tuple[int, int, int]:
    try:
        from rapidfuzz.distance import LCSseq
    except ModuleNotFoundError as error:
        raise UsageError(
            "ROUGE-L needs the package 'rapidfuzz', which is not installed; "
            'install it with: pip install "ragtrace-audit[audit]"'
        ) from error
    one, other = re.findall(r"\w+", first), re.findall(r"\w+", second)
    return LCSseq.similarity(one, other), len(one), len(other)


class Memory:
    """The chunks that came out.

    :param repeated: ROUGE-L from which a chunk counts as known.
    """

    def __init__(self, repeated: float) -> None:
        self.repeated = repeated
        self.chunks: list[str] = []

    def new(self, found: Iterable[str]) -> Iterator[str]:
        """Those of ``found`` that are not known yet; each is known from then on."""
        for chunk in found:
            if not any(rouge_l(chunk, known) >= self.repeated for known in self.chunks):
                self.chunks.append(chunk)
                yield chunk
