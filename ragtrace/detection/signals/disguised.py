"""Queries written so that a filter does not read them: encoded, in look-alike letters, letter by letter.

What it cannot tell: a word written wrongly on purpose from one written wrongly, and other encodings. Who works with
encoded text asks with it too.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata

from ragtrace.detection.lexicon import LIMIT
from ragtrace.detection.session import Habits, Session

INVISIBLE = 4
"""Invisible characters between letters, from which they are there on purpose."""
_ENCODED = re.compile(r"(?<![\w/+.])[A-Za-z0-9+/]{20,}={0,2}(?![\w/+])")
_HEX = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{2}[ :]?){12,}(?!\w)")
_APART = re.compile(r"(?<!\w)(?:[^\W\d_][ .*\-]){5,}[^\W\d_](?!\w)")
_MIXED = re.compile(r"[a-z][\u0430-\u044f\u0456\u0458\u04bb]|[\u0430-\u044f\u0456\u0458\u04bb][a-z]", re.IGNORECASE)
_SPELT = re.compile(r"[a-z]{2,} [a-z]{2,}", re.IGNORECASE)


class Disguised:
    """By decoding, and by the characters of a word."""

    name = "disguised"
    weight = 0.2
    says = "are written in disguise (encoded, in look-alike letters, letter by letter)"

    def strengths(self, session: Session, habits: Habits) -> list[float] | None:
        """1 for such a query; nothing is read where no query has text."""
        if all(request.query is None for request in session.requests):
            return None
        return [float(disguised(habits.users(request.query or "")[:LIMIT])) for request in session.requests]


def disguised(text: str) -> bool:
    """Whether any of it is."""
    return (
        any(_reads(_from_base64(match[0])) for match in _ENCODED.finditer(text))
        or any(_reads(bytes.fromhex(re.sub(r"[ :]", "", match[0]))) for match in _HEX.finditer(text))
        or bool(_APART.search(text) or _MIXED.search(text))
        or sum(c in "\u200b\u200c\u2060\ufeff" or "\U000e0000" <= c <= "\U000e007f" for c in text) >= INVISIBLE
    )


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""


def _reads(data: bytes) -> bool:
    """Whether these bytes are words."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return bool(_SPELT.search(text)) and not any(unicodedata.category(c) == "Cc" and c not in "\n\r\t" for c in text)


SIGNAL = Disguised()
