"""JSON that was cut: back ends and SDKs shorten long values, and what is left of them is still worth reading."""

from __future__ import annotations

import re
from typing import Any

import orjson

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*("?)|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{0,3})?$")
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 200


def salvage(text: str) -> Any:
    """The value of JSON of which the end is missing: whole members, and the cut text as far as it goes.

    None where nothing can be read.
    """
    stack: list[str] = []
    kept, closing = 0, ""  # up to where the text is JSON if it is closed so
    in_key = False
    for token in _TOKEN.finditer(text):
        word, place = token[0], token.end()
        if word[0] == '"' and not token[1]:
            if not in_key:
                string = _ESCAPE.sub("", word) if not word.endswith("\\\\") else word
                return _loads(text[: token.start()] + string + '"' + _close(stack))
            break
        if word in "{[":
            stack.append(word)
            in_key = word == "{"
            if len(stack) > _DEEPEST:
                return None
            kept, closing = place, _close(stack)
        elif word in "}]":
            if not stack or _CLOSING[stack.pop()] != word:
                break
            kept, closing = place, _close(stack)
            in_key = False
        elif word == ",":
            in_key = bool(stack) and stack[-1] == "{"
        elif word == ":":
            in_key = False
        elif not in_key:
            if word[0] != '"' and _loads(word) is None and word != "null":
                break
            if word[0] == '"' or place < len(text):  # a number at the very end may be the half of one
                kept, closing = place, _close(stack)
    return _loads(text[:kept] + closing) if kept else None


def _close(stack: list[str]) -> str:
    return "".join(_CLOSING[word] for word in reversed(stack))


def _loads(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
