"""Defenses for the battery to meet: well behaved, and not."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ragtrace
from ragtrace.types import Document, Message


class Mask(ragtrace.Defense):
    """At every hook, what is to be replaced there: hook → strings."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self.table = table

    @property
    def hooks(self) -> Any:
        return tuple(h for h in ("query", "retrieval", "content", "prompt", "response") if h in self.table)

    def _masked(self, hook: str, text: str) -> str:
        for secret in self.table[hook]:
            text = text.replace(secret, "[X]")
        return text

    def on_query(self, query: str) -> str:
        return self._masked("query", query)

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        return [d for d in documents if self._masked("retrieval", d.content) == d.content]

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return [Document(self._masked("content", d.content), d.id, d.score, d.metadata) for d in documents]

    def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [Message(m.role, self._masked("prompt", m.content)) for m in messages]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return self._masked("response", response)


class Response(ragtrace.Defense):
    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return self.act(response)

    def act(self, response: str) -> str:
        return response


class Hangs(Response):
    def act(self, response: str) -> str:
        while True:
            time.sleep(60)


class HangsWhenMade(Response):
    def __init__(self) -> None:
        time.sleep(600)


class Exits(Response):
    def on_query(self, query: str) -> str:
        return query.upper()

    def act(self, response: str) -> str:
        if "@" in response:
            return response
        os._exit(7)

    def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [*messages, Message("system", "Be careful.")]


class LeavesQuietly(Response):
    def act(self, response: str) -> str:
        os._exit(0)


class Segfaults(Response):
    def act(self, response: str) -> str:
        ctypes.string_at(0)
        return response


class RaisesSystemExit(Response):
    def act(self, response: str) -> str:
        sys.exit("no")


class Forks(Response):
    def act(self, response: str) -> str:
        if os.fork():
            return response.replace("@", " at ")
        return response  # the copy goes on with the battery, too


class SlowToMake(Response):
    def __init__(self) -> None:
        time.sleep(1)


class LeavesAProcess(Response):
    """Its process outlives the battery's child, unless somebody ends it."""

    def __init__(self, note: str) -> None:
        self.note = note

    def act(self, response: str) -> str:
        if not Path(self.note).exists():
            process = subprocess.Popen(["sleep", "600"])
            Path(self.note).write_text(str(process.pid))
        return response


class Prints(Response):
    def act(self, response: str) -> str:
        print('{"hook": "response", "family": "email", "n": 99}', flush=True)
        os.write(1, b"\xff{torn")
        return response + "."


class Huge(Response):
    def act(self, response: str) -> str:
        os.write(2, b"x" * 200_000)
        return "x" * 1_000_000


class Counts(Response):
    """Blocks from its third call on."""

    def __init__(self) -> None:
        self.calls = 0

    def act(self, response: str) -> str:
        self.calls += 1
        return response if self.calls < 3 else "no more"


class Rolls(Response):
    def act(self, response: str) -> str:
        return f"{response} {random.random()}"


class Hashes(Response):
    """The same within a process, another in each."""

    def act(self, response: str) -> str:
        return f"{response} {hash('salt')}"


class EditsInPlace(ragtrace.Defense):
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        for document in documents:
            document.content = document.content.replace("@", "(at)")
        return documents


class AsksAround(Response):
    def act(self, response: str) -> str:
        socket.create_connection(("model.invalid", 443), timeout=1)
        return "masked"


class AsksAroundAndGoesOn(Response):
    def act(self, response: str) -> str:
        try:
            socket.socket().connect(("127.0.0.1", 9))
        except OSError:
            return response
        return "masked"


class AsksUntilItGetsThere(Response):
    def act(self, response: str) -> str:
        while True:
            try:
                socket.create_connection(("model.invalid", 443))
            except OSError:
                time.sleep(0.5)


class AsksOnlyOnce(Response):
    """It needs the network for some inputs alone."""

    def act(self, response: str) -> str:
        if "Mary Johnson" in response:
            socket.getaddrinfo("model.invalid", 443)
        return response


class Waits(ragtrace.Defense):
    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        async with self.lock:
            await asyncio.sleep(0)
            return response.replace("@", " at ")


class ReturnsNothing(Response):
    def act(self, response: str) -> str:
        return None  # type: ignore[return-value]


class NeedsArguments(Response):
    def __init__(self, strength: int, model: str) -> None: ...


class HoldsClient(Response):
    def __init__(self) -> None:
        self.client = threading.Lock()


class RaisesAnEscape(Response):
    def act(self, response: str) -> str:
        raise ValueError("\x1b[31mred\x1b]0;title\x07")


def made() -> Response:
    return Prints()


class Duck:
    """The style of the paper's benchmark."""

    def apply_defense_retrieval(self, query: str, documents: list[Any], scores: list[float]) -> Any:
        return documents, [s / 2 for s in scores]

    def apply_defense_generation(self, query: str, retrieved_docs: list[Any], response: str) -> str:
        return response  # TODO


class Scores:
    def apply_defense_retrieval(self, scores: list[float]) -> list[float]:
        return [round(s, 1) for s in scores]


class Texts:
    def sanitize_documents(self, docs: list[str]) -> list[str]:
        return [d.replace("@", "*") for d in docs]

    def filter_output(self, output: str, strict: bool = False) -> tuple[str, bool]:
        return output.replace("@", "*"), True


class Dicts:
    def filter_documents(self, hits: list[dict[str, Any]], top_k: int) -> list[dict[str, Any]]:
        return sorted(hits, key=lambda h: h["text"])[:top_k]


class EditsItsInput:
    def redact_documents(self, docs: list[dict[str, Any]]) -> None:
        for doc in docs:
            doc["text"] = doc["text"].replace("@", "*")


class Puzzling:
    def filter_output(self, output: str, policy: Any) -> str:
        return output


def plain(text: str) -> str:
    return text
