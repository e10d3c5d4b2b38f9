"""Runs one defense at one hook, the same code for sync and async paths.

A join point is a generator that yields whatever a hook returned and is sent the value: :func:`drive` sends it
back at once, :func:`adrive` awaits it first. Whatever goes wrong in *our* code ends here, in the log and not in
the app.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from opentelemetry import context as otel

from ragtrace.defense import Defense
from ragtrace.errors import DefenseTypeError
from ragtrace.record.effects import Effect
from ragtrace.record.scope import IN_DEFENSE, STAGE_KEY, DefenseFailedError, attached
from ragtrace.record.trails import warn
from ragtrace.types import Document, Hook, Message

T = TypeVar("T")
Steps = Generator[Any, Any, T]
_OURS = "ragtrace could not record a stage; the app is not affected"

_EXPECTED: dict[Hook, str] = {
    "query": "a str",
    "retrieval": "a list of ragtrace.Document",
    "content": "a list of ragtrace.Document",
    "prompt": "a list of ragtrace.Message",
    "response": "a str",
}


def drive(steps: Steps[T], fallback: T) -> T:
    """Runs a join point on a sync path."""
    try:
        value = next(steps)
        while True:
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                value = steps.throw(DefenseTypeError("an async hook was met on a sync path; call the app's async form"))
            else:
                value = steps.send(value)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except DefenseFailedError as failed:
        wanted = failed.error
    except Exception:
        internal_error()
        return fallback
    raise wanted


async def adrive(steps: Steps[T], fallback: T) -> T:
    """Runs a join point on an async path."""
    try:
        value = next(steps)
        while True:
            if inspect.isawaitable(value):
                try:
                    with in_defense():
                        value = await value
                except Exception as error:
                    value = steps.throw(error)
                    continue
            value = steps.send(value)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except DefenseFailedError as failed:
        wanted = failed.error
    except Exception:
        internal_error()
        return fallback
    raise wanted


def in_defense() -> AbstractContextManager[None]:
    """Where a defense's hook runs: the pipeline's own parts, called from here, meet no defense."""
    return attached(otel.set_value(STAGE_KEY, IN_DEFENSE))


def internal_error() -> None:
    """Our own failure: it is logged, and the app goes on. Call it from an ``except`` block."""
    if (error := sys.exception()) is not None:
        warn(_OURS, error)


class _Recording:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: Any, traceback: Any) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        warn(_OURS, error)
        return True


recording = _Recording()
"""``with recording:`` around what only records: its failure is logged and undoes nothing that a defense did."""


def run_hook(
    defense: Defense,
    hook: Hook,
    call: Callable[[], Any],
    compare: Callable[[Any], Effect],
    restore: Callable[[], T],
    blocked: Callable[[str], T],
) -> Generator[Any, Any, tuple[T, Effect]]:
    """Runs one hook. ``restore`` gives the value from before it, ``blocked`` the withheld one."""
    started = time.perf_counter_ns()
    try:
        with in_defense():
            returned = call()
        if inspect.isawaitable(returned):
            returned = yield returned
        _check(defense, hook, returned)
        effect = compare(returned)
        value = returned
    except Exception as error:
        warn("defense %r failed at hook %r (on_error=%r)", error, defense.name, hook, defense.on_error)
        value = restore() if defense.on_error != "block" else blocked(defense.name)
        effect = compare(value)
        effect.status = "error"
        effect.error = type(error).__name__ if not isinstance(error, DefenseTypeError) else str(error)
        if defense.on_error == "raise":
            raise DefenseFailedError(effect, error) from error
    effect.duration_us = (time.perf_counter_ns() - started) // 1_000
    return value, effect


def _check(defense: Defense, hook: Hook, value: Any) -> None:
    if hook in ("query", "response"):
        if isinstance(value, str):
            return
        found = type(value).__name__
    else:
        kind = Message if hook == "prompt" else Document
        if not isinstance(value, list):
            found = type(value).__name__
        elif others := {type(v).__name__ for v in value if not isinstance(v, kind)}:
            found = f"a list of {', '.join(sorted(others))}"
        elif others := {type(v.content).__name__ for v in value if not isinstance(v.content, str)}:
            found = f"a {kind.__name__} whose content is a {', '.join(sorted(others))}"
        else:
            return
    raise DefenseTypeError(
        f"defense {defense.name!r}: on_{hook} returned {found}, expected {_EXPECTED[hook]}; "
        "return the changed value (or the one it was given)"
    )


def withheld(name: str) -> str:
    """What stands for a text that a failing defense with ``on_error="block"`` withheld."""
    return f"[withheld by ragtrace: defense {name} failed]"
