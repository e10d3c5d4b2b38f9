"""Same prompt, same model, greedy: generate once."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from ragtrace.errors import UsageError


class GenerationCache(BaseCache):
    """A LangChain cache, in memory, of the most recently used ``max_entries`` answers; may be shared by threads.

    Keyed by the messages and LangChain's ``llm_string``, which holds the model and all parameters (its loopback address
    is left out: the embedded server has another one each time).
    What comes out is a copy, log-probabilities included: what a response defense does to an answer must not reach
    the next arm of an audit. LangChain's streaming goes round caches. Use it for greedy decoding only: sampled answers
    would be repeated as if they were deterministic. Two threads that miss the same prompt at once both generate it.

    ``hits`` and ``misses`` count look-ups; ``hits`` is the number of model calls saved, ``kept_hits`` those among them
    that were saved by an earlier process.

    :param file: keeps the answers of chat models between processes in this SQLite file (0600), and for good; a file
        that cannot be used is as good as none.
    """

    def __init__(self, max_entries: int = 10_000, file: Path | None = None) -> None:
        if max_entries < 1:
            raise UsageError(f"max_entries is {max_entries}, expected at least 1")
        self.max_entries = max_entries
        self._kept = None if file is None else _Kept(file)
        self.kept_hits = 0
        self.hits = 0
        self.misses = 0
        self._lock = Lock()
        self._answers: OrderedDict[bytes, list[Generation]] = OrderedDict()

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """A copy of the stored answer, or ``None``."""
        key = _key(prompt, llm_string)
        with self._lock:
            found = self._answers.get(key)
            if found is None and self._kept is not None and (found := self._kept.get(key)) is not None:
                self.kept_hits += 1
                self._answers[key] = found
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
            if self._kept is not None:
                self._kept.put(key, answer)

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


class _Kept:
    """Answers of chat models in a SQLite file. Never raises: a cache that fails is a miss."""

    def __init__(self, file: Path) -> None:
        self._database: sqlite3.Connection | None = None
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._database.execute("CREATE TABLE IF NOT EXISTS answer (key BLOB PRIMARY KEY, generations TEXT)")
        except (OSError, sqlite3.Error):
            self._database = None

    def get(self, key: bytes) -> list[Generation] | None:
        try:
            if self._database is None:
                return None
            row = self._database.execute("SELECT generations FROM answer WHERE key = ?", (key,)).fetchone()
            return None if row is None else [_chat(entry) for entry in json.loads(row[0])]
        except (sqlite3.Error, ValueError, KeyError, TypeError):
            return None

    def put(self, key: bytes, generations: Sequence[Generation]) -> None:
        if self._database is None or not all(isinstance(g, ChatGeneration) for g in generations):
            return
        try:
            rows = [{"message": g.message.model_dump(mode="json"), "info": g.generation_info} for g in generations]  # type: ignore[attr-defined]
            self._database.execute("INSERT OR REPLACE INTO answer VALUES (?, ?)", (key, json.dumps(rows)))
        except (sqlite3.Error, ValueError, TypeError):
            return

    def __del__(self) -> None:
        if self._database is not None:
            self._database.close()


def _chat(entry: dict[str, Any]) -> Generation:
    return ChatGeneration(message=AIMessage.model_validate(entry["message"]), generation_info=entry["info"])


_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def _key(prompt: str, llm_string: str) -> bytes:
    # The first length tells where the prompt ends; lone surrogates are legal in Python strings.
    return sha256(f"{len(prompt)}\0{prompt}{_ADDRESS.sub('', llm_string)}".encode("utf-8", "surrogatepass")).digest()


def _copy(generations: Sequence[Generation]) -> list[Generation]:
    return [generation.model_copy(deep=True) for generation in generations]
