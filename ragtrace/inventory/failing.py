"""For ``ragtrace inventory --fail-on``: the hooks that stop a commit."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import get_args

from ragtrace.errors import UsageError
from ragtrace.inventory.source import DefenseFinding, Status


def statuses(given: str | None) -> frozenset[str]:
    """The statuses in a list like ``stub,dead``; none where nothing is given.

    :raises UsageError: one that no hook can have.
    """
    known = get_args(Status)
    found = [word.strip() for word in given.split(",") if word.strip()] if given is not None else []
    for word in found:
        if word not in known:
            near = get_close_matches(word, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(known)}"
            raise UsageError(f"--fail-on: no hook has the status {word!r}; {hint}")
    if given is not None and not found:
        raise UsageError(f"--fail-on is empty; expected some of {', '.join(known)}")
    return frozenset(found)


def hooks(found: Iterable[DefenseFinding], unwanted: frozenset[str]) -> list[str]:
    """One line for each hook of an unwanted status: what it is, where, why."""
    return [
        f"{h.where}: {d.defense}, hook {h.hook}: {h.status}: {h.reason}"
        for d in found
        for h in d.hooks
        if h.status in unwanted
    ]
