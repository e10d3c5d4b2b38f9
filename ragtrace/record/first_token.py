"""The model's candidates for the first token of its answer, read from OpenAI's forms of log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

Candidates = list[tuple[str, float]]
"""Each with its log-probability (natural log), most likely first."""
MOST = 20


def first_token(found: Any) -> Candidates:
    """The candidates for the first token that is not white space, at most :data:`MOST`; empty where none are told.

    :param found: a choice's ``logprobs`` as a mapping or an object: that of chat completions (``content``), or that of
        text completions (``tokens``, ``token_logprobs``, ``top_logprobs``).
    """
    content = get(found, "content")
    if isinstance(content, list):
        tokens = ((get(t, "token"), get(t, "logprob"), _pairs(get(t, "top_logprobs"))) for t in content)
        return _first(tokens)
    columns = [get(found, name) for name in ("tokens", "token_logprobs", "top_logprobs")]
    texts, logprobs, tops = (c if isinstance(c, list) else [] for c in columns)
    tops = tops or [None] * len(texts)
    return _first((text, logprob, _pairs(top)) for text, logprob, top in zip(texts, logprobs, tops, strict=False))


def get(value: Any, name: str) -> Any:
    """A mapping's item or an object's attribute; ``None`` where there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def ranked(pairs: Iterable[tuple[Any, Any]]) -> Candidates:
    """The pairs that are a text and a number, each text once, most likely first."""
    best: dict[str, float] = {}
    for text, logprob in pairs:
        if isinstance(text, str) and isinstance(logprob, int | float) and math.isfinite(logprob):
            best[text] = max(float(logprob), best.get(text, -math.inf))
    return sorted(best.items(), key=lambda pair: -pair[1])[:MOST]


def _pairs(top: Any) -> list[tuple[Any, Any]]:
    if isinstance(top, Mapping):
        return list(top.items())
    return [(get(t, "token"), get(t, "logprob")) for t in top] if isinstance(top, list) else []


def _first(tokens: Iterable[tuple[Any, Any, list[tuple[Any, Any]]]]) -> Candidates:
    for text, logprob, top in tokens:
        if isinstance(text, str) and text.strip():
            return ranked([*top, (text, logprob)])
    return []
