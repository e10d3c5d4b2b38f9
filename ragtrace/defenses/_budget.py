"""A budget for each conversation: how often a defense may still release something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import Any, Generic, Literal, TypeVar, get_args

from ragtrace.errors import RagtraceError, UsageError
from ragtrace.record.scope import conversation_id

V = TypeVar("V")
Per = Literal["conversation", "process"]


class BudgetExhaustedError(RagtraceError):
    """A privacy budget is spent, and the defense was told to raise."""


class Recent(Generic[V]):
    """What was known last, by text: at most ``most`` values; the one untouched longest is forgotten. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[bytes, V] = {}
        self._lock = Lock()

    def get(self, key: str) -> V | None:
        """The value, if it is still known."""
        with self._lock:
            return self._kept.get(_digest(key))

    def update(self, key: str, change: Callable[[V | None], V]) -> V:
        """Makes the value from the one before (``None`` where none is known), and returns it."""
        digest = _digest(key)
        with self._lock:
            value = self._kept[digest] = change(self._kept.pop(digest, None))
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
            return value

    def __len__(self) -> int:
        return len(self._kept)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {"_most": self._most, "_kept": dict(self._kept)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()


class Meter:
    """Counts what each conversation has used of ``calls`` (``None``: any number).

    ``per="conversation"``: requests inside ``ragtrace.conversation(id)`` share one count by id, those outside of any
    share one as well, as nothing says that they come from different people. ``per="process"``: one count for all.
    """

    def __init__(self, calls: int | None, per: Per, remember: int) -> None:
        if per not in get_args(Per):
            raise UsageError(f"per={per!r}; expected one of {', '.join(get_args(Per))}")
        self.calls = sys.maxsize if calls is None else calls
        self.per = per
        self._used: Recent[int] = Recent(check_whole("remember", remember))

    def spend(self) -> bool:
        """Whether there was one left; it is used now."""
        return self._used.update(self._key(), lambda used: min((used or 0) + 1, self.calls + 1)) <= self.calls

    @property
    def used(self) -> int:
        """How many have been used in this conversation."""
        return min(self._used.get(self._key()) or 0, self.calls)

    @property
    def refused(self) -> bool:
        """Whether one was asked for in this conversation when none was left."""
        return (self._used.get(self._key()) or 0) > self.calls

    def _key(self) -> str:
        id = conversation_id() if self.per == "conversation" else None
        return "" if id is None else f"id {id}"


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """``value``, if it is an int from ``least`` up.

    :raises UsageError: for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value!r}; expected an int ≥ {least}")
    return value


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
