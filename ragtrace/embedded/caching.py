"""Same prompt, same model, greedy: generate once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from threading import Lock
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.outputs import Generation

from ragtrace.errors import UsageError


class GenerationCache(BaseCache):
    """A LangChain cache, in memory, of the most recently used ``max_entries`` answers; may be shared by threads.

    Keyed by the messages and LangChain's ``llm_string``, which holds the model, its address and all parameters.
    What comes out is a copy, log-probabilities included: what a response defense does to an answer must not reach
    the next arm of an audit. LangChain's streaming goes round caches. Use it for greedy decoding only: sampled answers
    would be repeated as if they were deterministic. Two threads that miss the same prompt at once both generate it.

    ``hits`` and ``misses`` count look-ups; ``hits`` is the number of model calls saved.
    """

    def __init__(self, max_entries: int = 10_000) -> None:
        if max_entries < 1:
            raise UsageError(f"max_entries is {max_entries}, expected at least 1")
        self.max_entries = max_entries
        self.hits = 0
        self.misses = 0
        self._lock = Lock()
        self._answers: OrderedDict[bytes, list[Generation]] = OrderedDict()

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """A copy of the stored answer, or ``None``."""
        key = _key(prompt, llm_string)
        with self._lock:
            found = self._answers.get(key)
            if found is None:
                self.misses += 1
                return None
            self.hits += 1
            self._answers.move_to_end(key)
        return _copy(found)

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Stores a copy of an answer; drops the one unused for longest beyond ``max_entries``."""
        key, answer = _key(prompt, llm_string), _copy(return_val)
        with self._lock:
            self._answers[key] = answer
            self._answers.move_to_end(key)
            if len(self._answers) > self.max_entries:
                self._answers.popitem(last=False)

    def clear(self, **kwargs: Any) -> None:
        """Forgets the answers and the counts."""
        with self._lock:
            self._answers.clear()
            self.hits = self.misses = 0

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """As :meth:`lookup`; too short for a thread of its own."""
        return self.lookup(prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """As :meth:`update`."""
        self.update(prompt, llm_string, return_val)

    async def aclear(self, **kwargs: Any) -> None:
        """As :meth:`clear`."""
        self.clear(**kwargs)

    def __len__(self) -> int:
        return len(self._answers)

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache


def _key(prompt: str, llm_string: str) -> bytes:
    # The first length tells where the prompt ends; lone surrogates are legal in Python strings.
    return sha256(f"{len(prompt)}\0{prompt}{llm_string}".encode("utf-8", "surrogatepass")).digest()


def _copy(generations: Sequence[Generation]) -> list[Generation]:
    return [generation.model_copy(deep=True) for generation in generations]
