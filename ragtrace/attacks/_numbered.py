"""Answers to numbered blanks, in the formats in which models give them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

_MASK = re.compile(r"[\[({<*_`\"']*\bmask(?:ed)?(?:\s+word)?[\s_#-]*(\d+)\b[\])}>*_`\"']*", re.I)
_SEPARATOR = re.compile(r"\s*(?:[:=|]|->|=>|→|–|—|-(?=\s)|\b(?:is|was|stands for)\b)[\s|]*", re.I)
_LINE = re.compile(r"^\s*(?:[-*•]\s+)?[\[(]?(\d+)(?:[\])]+[.:]?|[.:=|-]|\s+-)\s+(\S.*)$", re.M)
_COMMENT = re.compile(r"(?:\s+\(|\s+[-–—]\s|[.;,]\s).*$", re.S)
_ROW = re.compile(r"^\s*\|\s*(\d+)\s*\|", re.M)
_EDGE = re.compile(r"^[\W_]+|[\W_]+$")


def numbered(text: str, count: int) -> dict[int, str]:
    """What the text gives for the blanks 1 to ``count``; the first answer counts where it gives several.

    Read are JSON (an object or a list), ``[Mask_1]: word`` with its variants (also several in one line), numbered lines
    and tables, and as many plain lines as there are blanks.
    """
    for reading in (_json, _marked, _lines):
        found: dict[int, str] = {}
        for number, value in reading(text):
            if 1 <= number <= count and (cleaned := _COMMENT.sub("", value).strip()):
                found.setdefault(number, cleaned)
        if found:
            return found
    plain = [line for line in text.splitlines() if line.strip()]
    return dict(enumerate((_COMMENT.sub("", line).strip() for line in plain), 1)) if len(plain) == count else {}


def same(answer: str, expected: str) -> bool:
    """Whether two words are the same but for case, width and what stands round them."""
    return _normal(answer) == _normal(expected) != ""


def _normal(text: str) -> str:
    return " ".join(_EDGE.sub("", unicodedata.normalize("NFKC", text).replace("’", "'")).casefold().split())


def _json(text: str) -> Iterator[tuple[int, str]]:
    start = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=None)
    if start is None:
        return
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and len(value) == 1 and isinstance(inner := next(iter(value.values())), dict | list):
        value = inner
    if isinstance(value, dict):
        for key, item in value.items():
            if number := re.search(r"\d+", str(key)):
                yield int(number[0]), _plain(item)
    elif isinstance(value, list) and text[start:].lstrip("[ \n").startswith(('"', "{")):
        for place, item in enumerate(value, 1):
            yield place, _plain(item)


def _plain(item: Any) -> str:
    if isinstance(item, dict):
        said = [v for k, v in item.items() if not re.search(r"mask|number|id|index", str(k), re.I)]
        item = said[0] if said else ""
    return str(item) if isinstance(item, str | int | float) else ""


def _marked(text: str) -> Iterator[tuple[int, str]]:
    marks = list(_MASK.finditer(text))
    ends = [m.start() for m in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=False):
        if separator := _SEPARATOR.match(text, mark.end()):
            value = text[separator.end() : end].strip().split("\n", 1)[0].split("|", 1)[0]
            yield int(mark[1]), value.strip(" \t,;*")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for line in _LINE.finditer(_ROW.sub(r"\1. ", text)):
        yield int(line[1]), line[2]
