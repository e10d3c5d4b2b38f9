"""Yes, no or neither: what an answer in a model's own words says, and what its first token's probabilities say."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Literal

Verdict = Literal["yes", "no", "unknown"]

_YES = r"yes|yeah|yep|yup|correct|true|affirmative"  # not "absolutely", which "not" may follow
_NO = r"no|nope|nah|false|incorrect|negative"
_FENCE = re.compile(r"^```\w*\s*|\s*```$")
_DRESS = re.compile(r"[*_`\"“”‘’«»()\[\]#>]+|^\s*[-•]\s+")
_LABEL = re.compile(
    r"^(?:(?:final|short|my|the)\s+)?(?:answer|response|assistant|result|verdict|a)(?:\s+is)?\s*[:=-]\s*", re.I
)
_BOTH = re.compile(r"\byes\b\s*(?:and|or|/|\|)\s*no\b|\bno\b\s*(?:and|or|/|\|)\s*yes\b", re.I)
# "No doubt" is a yes, and "no information" says nothing; "no such text" and "no mention" are a plain no
_NO_MATTER = (
    r"\s+(?:information|info|idea|clue|answer|context|data|details?|documents?|way|knowledge|source|doubt|question|"
    r"problem)\b"
)
_HEAD = re.compile(rf"(?P<yes>(?:{_YES})\b)|(?P<no>(?:{_NO})\b(?!{_NO_MATTER}))", re.I)
_STATED = re.compile(
    rf"\b(?:answer|response|verdict)(?:\s+\w+){{0,3}}?\s*(?:is|would be|[:=])\s*(?:a\s+)?(?P<said>{_YES}|{_NO})\b", re.I
)
_UNSURE = re.compile(
    r"\b(?:unknown|unclear|unsure|uncertain|insufficient|sorry|unable|undetermined|might|maybe|perhaps|possibly)\b"
    r"|\bnot\s+(?:sure|certain|clear|know|able|enough|possible|applicable|provided|specified|stated|given)\b"
    r"|\b(?:can|could|do|did|does|would|am|is|are|was|were)(?:\s*not|n't)\s+(?:\w+\s+)?"
    r"(?:know|tell|say|answer|determine|confirm|verify|help|assist|access|provide|sure|able|have|see|find)\b"
    r"|\b(?:no|without)\s+(?:more\s+)?(?:information|info|idea|clue|context|data|details?|knowledge|way)\b",
    re.I,
)  # fmt: skip
_VERB = (
    r"(?:appears?|exists?|occurs?|contains?|includes?|match(?:es)?|mentions?|found|present|included|contained|mentioned|"
    r"there|true|correct|right|the case|part of|in the (?:context|text|documents?|passages?|provided))"
)
_DENIED = re.compile(
    rf"\b(?:(?:does|do|did|is|are|was|were|has|have|can|could|be|been)(?:\s*not|n't)|never|nowhere|not)\s+"
    rf"(?:\w+\s+){{0,3}}?{_VERB}\b[^.,;]*|\b(?:absent|missing)\b"
    rf"|\b(?:it|they|that)\s+(?:does|do|is|are)(?:\s*not|n't)\b[^.,;]*"
    rf"|\bno\s+(?:such|mention|trace|sign|evidence|match\w*|occurrence\w*)\b[^.,;]*",
    re.I,
)  # fmt: skip
_AFFIRMED = re.compile(
    rf"\b(?:is|are|was|were|does|do|be|indeed|text|sentence|passage|statement|it|context|document)\s+(?:\w+\s+)?{_VERB}\b"
    r"|\bit\s+(?:does|is)(?=\s*(?:[.,;!]|$))",
    re.I,
)  # fmt: skip


def recognise(text: str | None) -> Verdict:
    """What the answer says; ``unknown`` where it refuses, does not know, says both, or neither.

    Its first word decides if that is a yes or no. Else what it states as its answer (``… so the answer is no``), else
    plain statements (``the text does not appear``), and none of these where it says that it is not sure.
    """
    said = _FENCE.sub("", (text or "").strip().replace("’", "'")).strip()
    if said[:1] in ("{", "["):
        try:
            return _of_json(json.loads(said))
        except (ValueError, RecursionError):
            pass
    said = _LABEL.sub("", " ".join(_DRESS.sub(" ", said).split()))
    if _BOTH.search(said):
        return "unknown"
    if head := _HEAD.match(said):
        return "yes" if head["yes"] else "no"
    if stated := [_HEAD.match(m["said"]) for m in _STATED.finditer(said)]:
        last = stated[-1]
        return "unknown" if last is None else "yes" if last["yes"] else "no"
    if _UNSURE.search(said):
        return "unknown"
    denied = _DENIED.search(said) is not None or re.search(r"[,:;]\s*no[.!]?$", said, re.I) is not None
    rest = _DENIED.sub(" ", said)
    bare = {word.casefold() for word in re.findall(r"\b(?:yes|no)\b", rest, re.I)}
    affirmed = _AFFIRMED.search(rest) is not None or bare == {"yes"}
    if denied == affirmed:
        return "unknown"
    return "no" if denied else "yes"


def refuses(text: str) -> bool:
    """Whether the answer is a refusal or a plea of ignorance: it says so in its first sentence."""
    first = re.split(r"(?<=[.!?])\s", text.strip().replace("’", "'"), maxsplit=1)[0]
    return _UNSURE.search(first) is not None


def _of_json(value: Any) -> Verdict:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return recognise(value)
    if isinstance(value, dict):
        named = [v for k, v in value.items() if "answer" in str(k).casefold()]
        inner = named or list(value.values())
    else:
        inner = value if isinstance(value, list) else []
    said = {_of_json(v) for v in inner} - {"unknown"}
    return said.pop() if len(said) == 1 else "unknown"


def probabilities(first_token: Iterable[tuple[str, float]]) -> tuple[float, float]:
    """(p(yes), p(no)) of a first token, summed over the variants of case and space (``Yes``, `` yes``, ``YES,``).

    What is not among the candidates counts as 0.
    """
    yes = no = 0.0
    for token, logprob in first_token:
        word = re.sub(r"[\W_ĠĊ]+", "", token).casefold()
        yes += math.exp(logprob) * (word == "yes")
        no += math.exp(logprob) * (word == "no")
    return min(yes, 1.0), min(no, 1.0)
