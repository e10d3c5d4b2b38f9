"""Which of a framework's messages each message that the defenses left was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ragtrace.types import Message

T = TypeVar("T")


def origins(theirs: Sequence[T], ours: Sequence[Message], kept: Sequence[Message]) -> list[tuple[T, Message] | None]:
    """For each of ``kept`` one of ``theirs``, with its translation in ``ours``, or ``None`` where a defense brought it.

    The one with the same role and text, or else the first with its role; each of ``theirs`` is used once.
    """
    left = list(zip(theirs, ours, strict=True))

    def claimed(fits: Callable[[Message], bool]) -> tuple[T, Message] | None:
        place = next((i for i, (_, our) in enumerate(left) if fits(our)), None)
        return None if place is None else left.pop(place)

    found = [claimed(lambda our, m=message: our == m) for message in kept]  # type: ignore[misc]
    for place, message in enumerate(kept):
        if found[place] is None:
            found[place] = claimed(lambda our, role=message.role: our.role == role)  # type: ignore[misc]
    return found


def rebuilt(
    theirs: Sequence[T],
    ours: Sequence[Message],
    kept: Sequence[Message],
    with_text: Callable[[T, str], T],
    made: Callable[[Message], T],
) -> list[T]:
    """The framework's messages again: the very ones where the text is, copies where it is another, or new ones."""
    out = []
    for message, origin in zip(kept, origins(theirs, ours, kept), strict=True):
        if origin is None:
            out.append(made(message))
        else:
            their, our = origin
            out.append(their if our.content == message.content else with_text(their, message.content))
    return out
