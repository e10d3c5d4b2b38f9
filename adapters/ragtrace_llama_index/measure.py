"""What a model's response tells about itself beside its text: usage, log-probabilities, why it ended."""

from __future__ import annotations

from typing import Any, NamedTuple

from ragtrace.record import first_token as candidates
from ragtrace.record.first_token import Candidates
from ragtrace_llama_index.translate import Response


class Measures(NamedTuple):
    """Read from the provider's own record, which is a dict or an object."""

    logprobs: list[float]
    input_tokens: int | None
    output_tokens: int | None
    model: str | None
    finish_reason: str | None


def measures(response: Response) -> Measures:
    """The measures of a response, or of one chunk of a stream."""
    raw, told = response.raw, response.additional_kwargs
    usage = _get(raw, "usage") or _get(told, "usage")
    choice = _choice(response)
    return Measures(
        _provider_logprobs(_get(choice, "logprobs")) or _logprobs(response.logprobs),
        _count(usage, told, "prompt_tokens", "input_tokens"),
        _count(usage, told, "completion_tokens", "output_tokens"),
        _text(_get(raw, "model")),
        _text(_get(choice, "finish_reason")) or _text(_get(raw, "stop_reason")),
    )


def first_token(response: Response) -> Candidates:
    """The candidates for the answer's first token, from the provider's record, else in LlamaIndex's own form."""
    if found := candidates.first_token(_get(_choice(response), "logprobs")):
        return found
    tops = ([(top.token, top.logprob) for top in tops] for tops in response.logprobs or ())
    return next((ranked for pairs in tops if (ranked := candidates.ranked(pairs)) and ranked[0][0].strip()), [])


def _choice(response: Response) -> Any:
    choices = _get(response.raw, "choices")
    return choices[0] if isinstance(choices, list) and choices else None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(usage: Any, told: Any, *names: str) -> int | None:
    found = (_get(where, name) for where in (usage, told) for name in names)
    return next((n for n in found if isinstance(n, int)), None)


def _provider_logprobs(found: Any) -> list[float]:
    """In OpenAI's forms, natural log. Without the end-of-text token, whose text is empty."""
    content = _get(found, "content")
    if isinstance(content, list):
        pairs = [(_get(t, "token"), _get(t, "logprob")) for t in content]
    else:
        pairs = list(zip(_get(found, "tokens") or (), _get(found, "token_logprobs") or (), strict=False))
    return [p for token, p in pairs if token != "" and isinstance(p, int | float)]


def _logprobs(found: Any) -> list[float]:
    """LlamaIndex's own form: for each token its alternatives, the likeliest first."""
    return [tops[0].logprob for tops in found or () if tops and tops[0].token != ""]
