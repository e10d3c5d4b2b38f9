# ruff: noqa: RET504 (specimens are written as people write them)
"""Defenses that act on text, or do not, in the styles people write. ``TRUTH`` is checked by running them."""

from __future__ import annotations

import copy
import functools
import logging
import re

import ragtrace
from ragtrace import Defense
from ragtrace.types import Document

log = logging.getLogger(__name__)
EMAIL = re.compile(r"[\w.]+@[\w.]+\w")
DEBUG = False
WORDS: tuple[str, ...] = ()


def scrub(text: str) -> str:
    return EMAIL.sub("[EMAIL]", text)


def untouched(text: str) -> str:
    copied = text
    return copied


class PlainMask(Defense):
    def on_response(self, query, documents, response):
        return re.sub(r"\S+@\S+", "[EMAIL]", response)


class TodoThatActs(Defense):
    def on_response(self, query, documents, response):
        # TODO: handle telephone numbers too; for now a placeholder for addresses
        return scrub(response)


class TodoStub(Defense):
    def on_response(self, query, documents, response):
        # TODO: implement
        return response


class DocstringStub(Defense):
    def on_query(self, query):
        """Not implemented yet."""
        return query


class SilentStub(Defense):
    def on_response(self, query, documents, response):
        return response


class Aliased(Defense):
    def on_response(self, query, documents, response):
        answer = text = response
        result: str = text
        log.info("answer of %d characters", len(answer))
        return f"{result}"


class EmptyBody(Defense):
    def on_response(self, query, documents, response):
        """Masks the response."""


class NotThere(Defense):
    def on_response(self, query, documents, response):
        raise NotImplementedError("later")


class Ellipsed(Defense):
    def on_query(self, query): ...


class EarlyReturn(Defense):
    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def on_response(self, query, documents, response):
        if not self.enabled:
            return response
        return scrub(response)


class OnMatch(Defense):
    def on_response(self, query, documents, response):
        if EMAIL.search(response):
            response = EMAIL.sub("[EMAIL]", response)
        return response


class GuardsEmptyText(Defense):
    def on_response(self, query, documents, response):
        if not response.strip():
            return response
        return scrub(response)


class Lost(Defense):
    def on_response(self, query, documents, response):
        masked = scrub(response)
        log.debug("masked %d characters", len(masked))
        return response


class ResultDiscarded(Defense):
    def on_response(self, query, documents, response):
        response.replace("@", " at ")
        return response


class SwitchedOff(Defense):
    enabled = False

    def on_response(self, query, documents, response):
        if self.enabled:
            response = scrub(response)
        return response


class DebugOnly(Defense):
    def on_response(self, query, documents, response):
        return scrub(response) if DEBUG else response


class Unreachable(Defense):
    def on_response(self, query, documents, response):
        return response
        return scrub(response)


class NothingToLookFor(Defense):
    def on_response(self, query, documents, response):
        for word in WORDS:
            response = response.replace(word, "*")
        return response


class ForgetsToReturn(Defense):
    def on_response(self, query, documents, response):
        response = scrub(response)


class Helpers(Defense):
    def on_response(self, query, documents, response):
        return self._finish(self._mask(response))

    def _mask(self, text: str) -> str:
        return text.replace("@", " at ")

    @staticmethod
    def _finish(text: str) -> str:
        return text


class IdleHelpers(Defense):
    def on_response(self, query, documents, response):
        return self._finish(untouched(response))

    def _finish(self, text: str) -> str:
        return text if text else ""


class StubHelper(Defense):
    def on_response(self, query, documents, response):
        return self._mask(response)

    def _mask(self, text: str) -> str:
        # FIXME no masking so far
        return text


class Asynchronous(Defense):
    async def on_response(self, query, documents, response):
        return await self._mask(response)

    async def _mask(self, text: str) -> str:
        return scrub(text)


class AsynchronousIdle(Defense):
    async def on_query(self, query):
        return query


class Base(ragtrace.Defense):
    def on_response(self, query, documents, response):
        return self.mask(response)

    def mask(self, text: str) -> str:
        return text


class Inherits(Base):
    """Has nothing of its own."""


class FillsIn(Base):
    def mask(self, text: str) -> str:
        return text.upper()


class CallsSuper(FillsIn):
    def on_response(self, query, documents, response):
        return super().on_response(query, documents, response)


class CallsRoot(Defense):
    def on_response(self, query, documents, response):
        return super().on_response(query, documents, response)


class FailsOpen(Defense):
    def on_response(self, query, documents, response):
        try:
            return scrub(response)
        except ValueError:
            log.exception("no mask")
            return response


class SplitAndJoined(Defense):
    def on_response(self, query, documents, response):
        return " ".join(response.split(" "))


class WordByWord(Defense):
    def on_response(self, query, documents, response):
        return " ".join("*" if "@" in word else word for word in response.split(" "))


class Refuses(Defense):
    def on_response(self, query, documents, response):
        return "I cannot answer that." if "@" in response else response


class Blocks(Defense):
    def on_response(self, query, documents, response):
        return "[withheld]"


class Injected(Defense):
    def __init__(self, mask=scrub) -> None:
        self.mask = mask

    def on_response(self, query, documents, response):
        return self.mask(response)


class Wrapped(Defense):
    @functools.partial(lambda f: f)
    def on_response(self, query, documents, response):
        return response


class RoundTrip(Defense):
    def on_query(self, query):
        return query.encode().decode()


class Loops(Defense):
    patterns = [EMAIL]

    def on_response(self, query, documents, response):
        out = response
        for pattern in self.patterns:
            out = pattern.sub("", out)
        return out


class Closure(Defense):
    def on_response(self, query, documents, response):
        def mask(match: re.Match[str]) -> str:
            return "*" * len(match[0])

        return EMAIL.sub(mask, response)


class SkipsFirst(Defense):
    """A flag that changes inside a loop: following the first round alone would call it inert."""

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        first = True
        for document in documents:
            if first:
                first = False
                continue
            document.content = scrub(document.content)
        return documents


class EditsACopy(Defense):
    def on_content(self, query, documents):
        for document in documents:
            mine = copy.copy(document)
            mine.content = scrub(mine.content)
        return documents


TRUTH = {
    "PlainMask": {"response": "active"},
    "TodoThatActs": {"response": "active"},
    "TodoStub": {"response": "stub"},
    "DocstringStub": {"query": "stub"},
    "SilentStub": {"response": "pass_through"},
    "Aliased": {"response": "pass_through"},
    "EmptyBody": {"response": "stub"},
    "NotThere": {"response": "stub"},
    "Ellipsed": {"query": "stub"},
    "EarlyReturn": {"response": "conditional"},
    "OnMatch": {"response": "conditional"},
    "GuardsEmptyText": {"response": "active"},
    "Lost": {"response": "dead"},
    "ResultDiscarded": {"response": "dead"},
    "SwitchedOff": {"response": "dead"},
    "DebugOnly": {"response": "dead"},
    "Unreachable": {"response": "dead"},
    "NothingToLookFor": {"response": "dead"},
    "ForgetsToReturn": {"response": "dead"},
    "Helpers": {"response": "active"},
    "IdleHelpers": {"response": "pass_through"},
    "StubHelper": {"response": "stub"},
    "Asynchronous": {"response": "active"},
    "AsynchronousIdle": {"query": "pass_through"},
    "Base": {"response": "pass_through"},
    "Inherits": {"response": "pass_through"},
    "FillsIn": {"response": "active"},
    "CallsSuper": {"response": "active"},
    "CallsRoot": {"response": "pass_through"},
    "FailsOpen": {"response": "active"},
    "SplitAndJoined": {"response": "pass_through"},
    "WordByWord": {"response": "active"},
    "Refuses": {"response": "conditional"},
    "Blocks": {"response": "active"},
    "Injected": {"response": "active"},
    "Wrapped": {"response": "unknown"},
    "RoundTrip": {"query": "pass_through"},
    "Loops": {"response": "active"},
    "Closure": {"response": "active"},
    "SkipsFirst": {"content": "conditional"},
    "EditsACopy": {"content": "dead"},
}
