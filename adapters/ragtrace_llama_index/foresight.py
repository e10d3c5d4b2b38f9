"""Whether a query engine will answer with a stream: its spans say so from their beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer

_MOST = 64  # engines looked at: a router may hold many


def streams(asked: Any) -> bool:
    """Looks at a query engine or synthesizer, and at the engines that it hands the question on to."""
    seen: set[int] = set()
    waiting = [asked]
    while waiting and len(seen) < _MOST:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        own = _own(part)
        if own is True:
            return True
        if own is None:
            waiting += _inner(part)
    return False


def _own(part: Any) -> bool | None:
    """What the part itself says: that of its synthesizer, through which all goes, or its own flag."""
    held = _attributes(part)
    synthesizer = held.get("_response_synthesizer")
    if isinstance(synthesizer, BaseSynthesizer):
        held = _attributes(synthesizer)
    flag = held.get("_streaming")
    return flag if isinstance(flag, bool) else None


def _inner(part: Any) -> Iterator[Any]:
    for value in _attributes(part).values():
        if isinstance(value, Mapping):
            value = value.values()
        elif isinstance(value, str | bytes) or not isinstance(value, list | tuple):
            value = (value,)
        yield from _engines(value)


def _engines(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        engine = getattr(value, "query_engine", value) if type(value).__name__.endswith("Tool") else value
        if isinstance(engine, BaseQueryEngine | BaseSynthesizer):
            yield engine


def _attributes(part: Any) -> dict[str, Any]:
    return getattr(part, "__dict__", {})
