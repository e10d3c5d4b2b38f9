"""Questions that a language model of the user's writes about a target."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ragtrace.errors import UsageError

Write = Callable[[str], str]
"""A language model: prompt → text."""

_BULLET = re.compile(r"^\s*(?:[-*•]|[\[(]?\w{0,9}\s?\d+[\])]?\s*[.):]|[\[(]\d+[\])])\s*")


def check_write(attack: str, write: Any) -> Write | None:
    """The model, or ``None``.

    :raises UsageError: it cannot be called.
    """
    if write is not None and not callable(write):
        raise UsageError(f"{attack}(write={write!r}); expected a function from a prompt to a language model's text")
    return write  # type: ignore[no-any-return]


def lines(attack: str, write: Write, prompt: str) -> list[str]:
    """What the model writes, a line each, without numbers and bullets.

    :raises UsageError: the model returned something else than text.
    """
    said = write(prompt)
    if not isinstance(said, str):
        raise UsageError(
            f"{attack}: write returned {type(said).__name__}, expected a str; return the model's text "
            "(for a chat model, its message's content)"
        )
    return [line for raw in said.splitlines() if (line := _BULLET.sub("", raw).strip(" \t*_"))]
