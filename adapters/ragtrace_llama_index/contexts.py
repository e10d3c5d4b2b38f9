"""A context made current around code that may be left in another task or thread than it was entered in."""

from __future__ import annotations

from typing import Any

from opentelemetry import context as otel
from opentelemetry.context import Context

from ragtrace.record.scope import put_back


class within:  # noqa: N801
    """Makes ``context`` current. A coroutine that nobody waits for any more is closed by the garbage collector, in
    whatever context is current there: nothing of ours is current then, and there is nothing to take away."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = otel.attach(self._context)

    def __exit__(self, *_: Any) -> None:
        put_back(self._token)


def cause(error: BaseException) -> BaseException:
    """What ended a call. LlamaIndex's spans answer such a close with an error of their own."""
    return error.__context__ if isinstance(error.__context__, GeneratorExit) else error
