"""Functions of the app as stages: which of their arguments crosses a hook, and the streams that they make."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Literal

from opentelemetry import context as otel
from opentelemetry.context import Context

from ragtrace.errors import UsageError
from ragtrace.record.handles import (
    AsyncGenerationStage,
    GenerationStage,
    aenter,
    enter,
    leave,
    recorder,
    suspend,
)
from ragtrace.record.hooks import Request
from ragtrace.record.scope import Scope, attached, current
from ragtrace.record.steps import Steps, adrive, drive, internal_error
from ragtrace.record.streaming import astepwise, stepwise
from ragtrace.types import Path

Kind = Literal["sync", "async", "generator", "async generator"]
_KIND = "__ragtrace_kind__"  # of our wrappers around generator functions, which are plain functions


class Function:
    """A function that is decorated: ``fits`` tells which argument crosses, unless ``arg`` names it.

    :raises UsageError: for what is no function, or cannot have such an argument.
    """

    def __init__(self, what: str, function: Any, arg: str | None = None, fits: Callable[[Any], bool] | None = None):
        if not callable(function) or isinstance(function, type):
            found = f"the class {function.__name__}" if isinstance(function, type) else type(function).__name__
            raise UsageError(f"@ragtrace.{what}() got {found}, expected a function; put it directly above a def")
        self.name = getattr(function, "__name__", type(function).__name__)
        self.kind = _kind_of(function)
        self.ours = hasattr(function, _KIND)
        self._arg, self._fits = arg, fits
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):
            raise UsageError(f"@ragtrace.{what}(): {self.name} tells no signature; wrap it in a def") from None
        parameters = self._signature.parameters
        if arg is not None and arg not in parameters:
            has = ", ".join(parameters) or "none"
            raise UsageError(f"@ragtrace.{what}(arg={arg!r}): {self.name} has no such parameter; it has {has}")
        if fits is not None and not parameters:
            raise UsageError(f"@ragtrace.{what}(): {self.name} has no parameter that could cross a hook; give it one")

    def whole(self, what: str) -> None:
        """:raises UsageError: for a generator function, where a value is needed."""
        if "generator" in self.kind:
            raise UsageError(f"@ragtrace.{what}(): {self.name} is a generator function; return a value instead")

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """One call of it."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:  # the function itself says what is wrong
            return Call(args, kwargs, None, None)
        try:
            if (name := self._arg) is not None:
                bound.apply_defaults()
            elif self._fits is not None:
                name = next((n for n, v in bound.arguments.items() if self._fits(v)), None)
            return Call(args, kwargs, bound, name)
        except Exception:
            internal_error()
            return Call(args, kwargs, bound, None)


def _kind_of(function: Any) -> Kind:
    if (known := getattr(function, _KIND, None)) is not None:
        return known  # type: ignore[no-any-return]
    for one in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(one):
            return "async"
        if inspect.isgeneratorfunction(one):
            return "generator"
        if inspect.isasyncgenfunction(one):
            return "async generator"
    return "sync"


class Call:
    """The arguments of one call."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: inspect.BoundArguments | None, name: str | None
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self.bound, self._name = bound, name
        self.value = bound.arguments.get(name) if bound is not None and name is not None else None

    def sent(self, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call with, where ``value`` is what became of the one that crossed."""
        if self.bound is None or self._name is None or value is self.value:
            return self.args, self.kwargs
        self.bound.arguments[self._name] = value
        return self.bound.args, self.bound.kwargs


def marked(wrapper: Any, kind: Kind) -> Any:
    """Our plain function that stands for a generator function, known as such to a decorator above it."""
    setattr(wrapper, _KIND, kind)
    return wrapper


# requests that stream


def requested(path: Path, name: str, known: Function, make: Callable[[], Any]) -> Any:
    """The stream that ``make`` makes, as a request, unless we are in one: with the defenses of here and now."""
    is_async = known.kind == "async generator"
    try:
        if isinstance(current(), Scope):
            return make()
        by, parent = recorder(), otel.get_current()
        scope = by.scope(path)
    except Exception:
        internal_error()
        return make()

    def opened() -> Request:
        with attached(parent):
            return Request(by, scope, name)

    def heard(item: Any) -> None:
        if isinstance(item, str):
            scope.left.setdefault("", []).append(item)

    if is_async:
        return astepwise(opened, _alater(make) if known.ours else make(), heard)
    return stepwise(opened, _later(make) if known.ours else make(), heard)


def _later(make: Callable[[], Any]) -> Iterator[Any]:
    """A stage of ours looks for its request when it is called: that is then the one opened at the first step."""
    yield from make()


async def _alater(make: Callable[[], Any]) -> AsyncIterator[Any]:
    async with aclosing(make()) as stream:
        async for piece in stream:
            yield piece


# generations that stream


class Streams:
    """Makes the streams of one generator function under ``@ragtrace.generation``."""

    def __init__(self, function: Callable[..., Any], name: str, model: str | None) -> None:
        self.function = function
        self.name = name
        self.model = model

    def stream(self, call: Call) -> Iterator[Any]:
        """The stream of a call made here and now: it belongs to the request in which it was called."""
        return self._pieces(call, otel.get_current(), self._scope("stream"))

    def astream(self, call: Call) -> AsyncIterator[Any]:
        """:meth:`stream` for async generators."""
        return self._apieces(call, otel.get_current(), self._scope("astream"))

    def _scope(self, path: Path) -> Scope | None:
        try:
            here = current()
            return here if isinstance(here, Scope) else recorder().scope(path)
        except Exception:
            internal_error()
            return None

    def _pieces(self, call: Call, parent: Context, scope: Scope | None) -> Iterator[Any]:
        with attached(parent):
            stage = enter(GenerationStage("stream", self.name, self.model, call.value, scope))
            suspend(stage)
        args, kwargs = call.sent(stage.prompt)
        if stage._part is None:
            yield from self.function(*args, **kwargs)
            return
        part = _Streamed(stage)
        if not stage._part.has("response"):
            yield from stepwise(lambda: part, self.function(*args, **kwargs), part.heard)
            return
        with part.within():
            pieces = list(self.function(*args, **kwargs))
            pieces = drive(part.whole(pieces), pieces)
        yield from pieces

    async def _apieces(self, call: Call, parent: Context, scope: Scope | None) -> AsyncIterator[Any]:
        with attached(parent):
            stage = await aenter(AsyncGenerationStage("astream", self.name, self.model, call.value, scope))
            suspend(stage)
        args, kwargs = call.sent(stage.prompt)
        if stage._part is None:
            async for piece in self.function(*args, **kwargs):
                yield piece
            return
        part = _Streamed(stage)
        if not stage._part.has("response"):
            stepped: Any = astepwise(lambda: part, self.function(*args, **kwargs), part.heard)
            async with aclosing(stepped):
                async for piece in stepped:
                    yield piece
            return
        with part.within():
            pieces = [piece async for piece in self.function(*args, **kwargs)]
            pieces = await adrive(part.whole(pieces), pieces)
        for piece in pieces:
            yield piece


class _Streamed:
    """The generation stage of a stream: what passes is noted, never held back, unless a defense must read it first."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.context = stage._part.context
        self.texts: list[str] = []
        self.odd: str | None = None
        self.ended = False
        stage._part.scope.streaming.append(self)

    def heard(self, piece: Any) -> None:
        """Notes what passes."""
        if isinstance(piece, str):
            self.texts.append(piece)
        else:
            self.odd = type(piece).__name__

    def whole(self, pieces: list[Any]) -> Steps[list[Any]]:
        """The stream as one piece, after the ``response`` hook."""
        for piece in pieces:
            self.heard(piece)
        if self.odd is not None:
            return pieces
        answer = yield from self.stage._answered("".join(pieces))
        self.texts = [answer]
        return [answer] if pieces or answer else []

    @contextmanager
    def within(self) -> Iterator[None]:
        """The stage while it is read to its end."""
        try:
            with attached(self.context):
                yield
        except BaseException as error:
            self.texts = []  # of what failed here nothing was delivered
            self.end(error)
            raise
        self.end(None)

    def end(self, error: BaseException | None) -> None:
        """Ends the stage, once, with what was delivered."""
        if self.ended:
            return
        self.ended = True
        self.stage._part.scope.streaming.remove(self)
        if self.odd is not None:
            self.stage._lose(f"the stream's pieces are {self.odd}, expected str; they are not recorded")
        self.stage._calls, self.stage._texts = 1, ["".join(self.texts)]
        leave(self.stage, error)

    stop = end
