"""How many requests at a time and a second; more are told to come again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ragtrace.collect.answers import Refused

AT_WORK = 8
"""Requests whose bodies are in memory at the same time."""
ADMITTED = 128
"""Requests at a time; those that are not at work wait, their bodies unread."""
RATE = 500.0
"""Requests a second, in the long run; for a second or two twice as many."""


class Limits:
    """Counts requests. All calls come from one event loop."""

    def __init__(
        self, rate: float = RATE, admitted: int = ADMITTED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.admitted = rate, admitted
        self._clock = clock
        self._tokens, self._filled = 2 * rate, clock()
        self._here = 0
        self._working = asyncio.Semaphore(AT_WORK)

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Holds a place while a request is read and stored.

        :raises Refused: there is none (503), or too many came in the last seconds (429).
        """
        self._count()
        if self._here >= self.admitted:
            raise Refused(503, f"{self.admitted} requests are under way; send it again later", 1)
        self._here += 1
        try:
            async with self._working:
                yield
        finally:
            self._here -= 1

    def _count(self) -> None:
        now = self._clock()
        self._tokens = min(2 * self.rate, self._tokens + (now - self._filled) * self.rate)
        self._filled = now
        if self._tokens < 1:
            wait = math.ceil((1 - self._tokens) / self.rate)
            raise Refused(429, f"more than {self.rate:g} requests a second; send larger batches, later", wait)
        self._tokens -= 1
