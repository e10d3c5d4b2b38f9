"""Two texts compared word by word, and texts masked: what stays are lengths, spaces and punctuation."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from ragtrace.report.terminal import harmless

LONGEST = 2_000
"""Characters of a text that are compared and shown."""
_BEFORE = 200  # characters kept before the first difference
_SAME = 160  # a longer stretch of equal words is cut in the middle
_LONG_WORD = 80  # a longer one is compared in pieces: a megabyte without a space is one word
_WORD = re.compile(rf"\w{{1,{_LONG_WORD}}}|\s+|[^\w\s]")


def mask(text: str) -> str:
    """Every letter and digit as a dot."""
    return re.sub(r"[^\W_]", "•", text)


def compare(before: str, after: str, show: bool) -> list[tuple[str, str]]:
    """Pieces in reading order: (``same``, ``gone`` or ``new``, text fit to be shown)."""
    start = max(0, _common(before, after) - _BEFORE)
    old, new = before[start : start + LONGEST], after[start : start + LONGEST]
    left, right = _WORD.findall(old), _WORD.findall(new)
    pieces: list[tuple[str, str]] = [("same", "…")] if start else []
    for tag, i, j, k, m in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            pieces.append(("same", _shortened(_fit("".join(left[i:j]), show))))
            continue
        if j > i:
            pieces.append(("gone", _fit("".join(left[i:j]), show)))
        if m > k:
            pieces.append(("new", _fit("".join(right[k:m]), show)))
    if len(before) > start + LONGEST or len(after) > start + LONGEST:
        pieces.append(("same", "…"))
    return pieces


def fit(text: str | None, show: bool, longest: int = LONGEST) -> str | None:
    """One text, masked unless it may be shown."""
    return None if text is None else _fit(text[:longest], show) + ("…" if len(text) > longest else "")


def _fit(text: str, show: bool) -> str:
    shown = harmless(text, None)
    return shown if show else mask(shown)


def _shortened(text: str) -> str:
    return text if len(text) <= _SAME else f"{text[: _SAME // 2]} … {text[-_SAME // 2 :]}"


def _common(before: str, after: str) -> int:
    """Length of the common beginning."""
    low, high = 0, min(len(before), len(after))
    while low < high:  # by halves: texts may be long
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
