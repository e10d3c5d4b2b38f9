"""What an attacker who does not know the index makes of an answer: refusals, new text, phrases to ask about next."""

from __future__ import annotations

import re

from ragtrace.attacks._words import function_words, tells, words

_REFUSAL = re.compile(
    r"\b(?:i|we)(?: a|['’])?(?:m| am| are|re)? ?(?:sorry|afraid|unable|not (?:able|allowed|permitted))\b"
    r"|\b(?:i|we) (?:can ?not|can['’]?t|won['’]?t|will not|could not|couldn['’]?t|must not|may not|do not|don['’]?t)"
    r" (?:\w+ )?(?:answer|assist|comply|discuss|disclose|do|find|fulfil|give|have|help|know|list|output|provide|quote"
    r"|repeat|reveal|say|share|show|tell)\b"
    r"|\b(?:refuse|decline) to\b|\bagainst (?:the |our |my )?(?:policy|rules)\b"
    r"|\bno (?:relevant )?(?:information|documents?|context) (?:is |are |was |were )?(?:available|found|given)\b",
    re.I,
)
_OPENING, _SHORT = 160, 60
RUN = 5
"""Words in a row that make a run of text."""


def refused(answer: str) -> bool:
    """Whether an answer gives nothing: it is empty, or short and begins by refusing or by not knowing."""
    if not answer.strip():
        return True
    return bool(_REFUSAL.search(answer[:_OPENING])) and len(answer.split()) < _SHORT


def runs(text: str, length: int = RUN) -> set[tuple[str, ...]]:
    """The different runs of ``length`` words of a text, casefolded."""
    found = re.findall(r"\w+", text.casefold())
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}


def gained(answer: str, query: str) -> set[tuple[str, ...]]:
    """The runs of an answer that do not come from its query; none of a refusal.

    A model that loops gains nothing by it.
    """
    return set() if refused(answer) else runs(answer) - runs(query)


def phrases(text: str, most: int, longest: int = 3) -> list[str]:
    """Different things that a text speaks of, in order: up to ``longest`` content words in a row."""
    found: dict[str, None] = {}
    row: list[str] = []
    end = 0
    for word in words(text):
        apart = bool(text[end : word.start].strip(" ")) or len(row) == longest
        good = tells(word) and not word.text.isdigit()
        if row and (apart or not good):
            found[" ".join(row)] = None
            row = []
        if good:
            row.append(word.text)
        end = word.end
    if row:
        found[" ".join(row)] = None
    return list(found)[:most]


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text that say something."""
    parts = (" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+|\n+", text))
    return [p for p in parts if sum(w.key not in function_words() for w in words(p)) > 1]
