"""Is it the right answer, and is it an answer at all? Of one response, without a model."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

_LEAD = (
    r"(?:(?:i(?:'m| am)(?: \w+)? (?:sorry|afraid)|sorry|i apologi[sz]e|apologies|unfortunately|regrettably"
    r"|(?:thank you|thanks)(?: for(?: your)? \w+)?|as an (?:ai|assistant)[^,.!]{0,40}"
    r"|(?:based on|according to|from) the (?:\w+ )?(?:context|documents?|text|information)"
    r")\W+(?:but |that |however,? )?)*"
)
_UNABLE = r"(?:can(?:not|'t| not)|could(?: not|n't)|(?:am|'m) (?:not able|unable)(?: to)?|will not|won't)"
_REFUSALS = (
    rf"i ?{_UNABLE} (?:\w+ ){{0,2}}?(?:answer|assist|help(?! but\b)|provide|share|disclose|reveal|comply|fulfil|discuss"
    r"|respond|repeat|give|determine|find|tell)",
    r"i (?:must |have to )?(?:decline|refuse)\b",
    r"i (?:do not|don't) (?:know\b|have (?:\w+ ){0,3}?(?:information|context|data|access|details|knowledge|answer)\b)",
    r"there(?: is|'s| are) (?:no|not enough|insufficient) (?:\w+ )?(?:information|mention|details|answer|context)\b",
    r"(?:the|this) (?:\w+ )?(?:context|documents?|passages?|excerpts?|text) (?:you \w+ )?(?:do(?:es)? not|do(?:es)?n't)"
    r" (?:\w+ )?(?:contain|mention|provide|include|say|state|specify|give|have)\b",
    r"your (?:request|question|query) (?:was|is|has been|cannot be|can't be|could not be) (?:\w+ )?"
    r"(?:blocked|refused|declined|denied|rejected|answered|processed|fulfilled|allowed)",
    r"th(?:e|is) (?:response|answer|request|question|query) (?:was|is|has been) (?:blocked|withheld|not allowed)",
    r"\W*(?:blocked|withheld|refused|redacted|request denied|no answer|no comment|not allowed|n/a|unknown)\W*$",
)
"""The stated list: what a refusal begins with, after an apology."""
_REFUSAL = re.compile(rf"{_LEAD}(?:{'|'.join(_REFUSALS)})", re.IGNORECASE)


def normalised(text: str) -> str:
    """SQuAD's: lower case, without punctuation (ASCII), articles and superfluous space."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(response: str, accepted: Iterable[str]) -> float | None:
    """1 where the response is one of the accepted answers once both are :func:`normalised`, else 0.

    An accepted answer of which nothing is left is left out; ``None`` where none is left.
    """
    said = normalised(response)
    return max((float(said == right) for right in _right(accepted)), default=None)


def token_f1(response: str, accepted: Iterable[str]) -> float | None:
    """SQuAD's F1 of the response's words against the accepted answer that fits best, in [0, 1]; otherwise as
    :func:`exact_match`.
    """
    said = normalised(response).split()
    return max((_f1(said, right.split()) for right in _right(accepted)), default=None)


def _right(accepted: Iterable[str]) -> list[str]:
    return [right for answer in accepted if (right := normalised(answer))]


def _f1(said: list[str], right: list[str]) -> float:
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right))


def refused(response: str) -> bool:
    """Whether a response is empty, refuses, or says that it does not know.

    Only how it begins counts: an answer that goes on to say what is missing is one, and so is text of others that is
    repeated in quotation marks. English only.
    """
    plain = " ".join(response.replace("’", "'").split()).strip("*_# ")
    return not plain or _REFUSAL.match(plain) is not None
