"""What a stream gives to the app, noted where a response defense may yet change it: then the change came too late."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk

from ragtrace import defense
from ragtrace.record.scope import Scope
from ragtrace.record.steps import recording
from ragtrace.record.streaming import Heard

_DEEP = 5  # a graph's state, by stream mode and node
_MANY = 1_000  # messages noted of one request


def listener(scope: Scope, instance: Any) -> Heard | None:
    """Notes the texts that leave on the request's stream; ``None`` where nobody can act on them later.

    A graph's nodes run one after another, so an agent's middleware sees an answer that has left already. Elsewhere
    only a declared response defense is worth the noting.
    """
    ours = {d.name for d in scope.defenses}
    others = any("response" in hooks and name not in ours for name, hooks in defense.declared().items())
    graph = sys.modules.get("langgraph.pregel.main")
    if not others and (graph is None or not isinstance(instance, graph.Pregel)):
        return None

    def heard(item: Any) -> None:
        if not scope.span.is_recording():
            return
        with recording:
            for key, text, whole in _texts(item, ""):
                pieces = scope.left.get(key)
                if pieces is None:
                    if len(scope.left) == _MANY:
                        return
                    pieces = scope.left[key] = []
                if not whole or text not in pieces:  # a state is given again after each of its nodes
                    pieces.append(text)

    return heard


def _texts(item: Any, at: str, depth: int = 0) -> Iterator[tuple[str, str, bool]]:
    """The texts in an item of a stream: which message or place they are of, and whether each is all of it."""
    if isinstance(item, str):
        yield at, item, depth > 1  # a graph's state, by node or mode; a chain's dict gives pieces
    elif isinstance(item, AIMessage):
        if text := str(item.text):
            yield item.id or at, text, not isinstance(item, AIMessageChunk)
    elif depth < _DEEP and isinstance(item, dict):
        for key, inner in item.items():
            yield from _texts(inner, f"{at}.{key}", depth + 1)
    elif depth < _DEEP and isinstance(item, list | tuple):
        for inner in item:
            yield from _texts(inner, at, depth + 1)
