"""Pipelines without a framework: a request and its stages, as context managers and decorators, sync and async.

::

    with ragtrace.pipeline("my-rag"):
        with ragtrace.retrieval("who signs?") as stage:
            found = stage.documents(search(stage.query))
        with ragtrace.generation(prompt_of(found), model="m") as stage:
            answer = stage.response(llm(stage.prompt))

``async with`` gives stages whose ``documents()`` and ``response()`` are awaited. A stage outside any request opens
one of its own; inside a framework's, it belongs to that.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, get_args, overload

from ragtrace.errors import UsageError
from ragtrace.record import duck
from ragtrace.record.decorating import Function, Streams, marked, requested
from ragtrace.record.handles import (
    AsyncGenerationStage,
    AsyncRetrievalStage,
    ContextStage,
    GenerationStage,
    Given,
    Handle,
    RetrievalStage,
    aenter,
    enter,
    leave,
)
from ragtrace.types import Path

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Handle[Any])
A = TypeVar("A", bound=Handle[Any])


def pipeline(name: str | None = None, *, path: Path | None = None) -> Pipeline:
    """One request of the app: the root span of the stages inside. Inside another request it changes nothing.

    As a decorator it takes functions and coroutine functions, and generator functions of both kinds as streams.

    :param name: the pipeline's name; default: the function's.
    :param path: how it was called; default: ``invoke``, ``ainvoke``, ``stream`` or ``astream``.
    :raises UsageError: for an unknown ``path``, or where it decorates something else than a function.
    """
    _called("pipeline", name)
    if path is not None and path not in get_args(Path):
        raise UsageError(f"pipeline(path={path!r}); expected one of {', '.join(get_args(Path))}")
    return Pipeline(name, path)


def retrieval(query: str | None = None, *, name: str | None = None, arg: str | None = None) -> Retrieving:
    """The retrieval stage: ``stage.query`` is the query to search with, ``stage.documents(found)`` what to go on with.

    Documents are strings, :class:`ragtrace.Document`, dicts or objects with ``content``, ``text`` or ``page_content``
    (and ``id``, ``score``, ``metadata``). What no defense changed is given back as the very object.

    As a decorator (without ``query``) it takes a function that returns documents; the query is the argument named
    ``arg``, by default the first ``str`` that the function is called with.

    :param name: what the stage is called in the span's name; default: the function's name.
    :raises UsageError: where it decorates something else than such a function.
    """
    _called("retrieval", query)
    return Retrieving(query, name, arg)


def context(*, name: str | None = None) -> Assembling:
    """The assembly of retrieved text into the prompt: the context stage's span begins here, not after the retrieval.

    What of the documents really stood in the prompt is read from the messages of the generation that follows. As a
    decorator it takes functions and coroutine functions.

    :param name: what the stage is called in the span's name; default: the function's name.
    :raises UsageError: where it decorates something else than a function.
    """
    _called("context", name)
    return Assembling(name)


@overload
def generation(*, model: str | None = None, name: str | None = None, arg: str | None = None) -> Generating[Any]: ...
@overload
def generation(
    prompt: Given, *, model: str | None = None, name: str | None = None, arg: str | None = None
) -> Generating[Given]: ...
def generation(
    prompt: Any = None, *, model: str | None = None, name: str | None = None, arg: str | None = None
) -> Generating[Any]:
    """The generation stage: ``stage.prompt`` (or ``stage.messages``) is for the model, ``stage.response(answer)`` for
    the app.

    A prompt is a string, or a list of messages: :class:`ragtrace.Message`, dicts or objects with ``role`` and
    ``content``, or (role, content). What no defense changed is given back as the very object.

    As a decorator (without ``prompt``) it takes a function that returns the model's text; the prompt is the argument
    named ``arg``, by default the first that is a ``str`` or a list of messages. A generator function is a stream: what
    it yields passes at once, unless a ``response`` defense is on, which reads all of it first; then it is one piece.

    :param model: the model's name. :param name: what the stage is called where no model is named; default: the
        function's name.
    :raises UsageError: where it decorates something else than such a function.
    """
    _called("generation", prompt)
    return Generating(prompt, model, name, arg)


def _called(what: str, given: Any) -> None:
    if inspect.isroutine(given):
        raise UsageError(f"ragtrace.{what} got a function; as a decorator it is called: @ragtrace.{what}()")


class _With(ABC, Generic[S, A]):
    """A context manager of both kinds."""

    def __init__(self) -> None:
        self._open: list[Handle[Any]] = []

    @abstractmethod
    def _sync(self) -> S: ...

    @abstractmethod
    def _async(self) -> A: ...

    def __enter__(self) -> S:
        stage = enter(self._sync())
        self._open.append(stage)
        return stage

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        leave(self._open.pop(), error)

    async def __aenter__(self) -> A:
        stage = await aenter(self._async())
        self._open.append(stage)
        return stage

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        leave(self._open.pop(), error)


class Pipeline(_With[Handle[Any], Handle[Any]]):
    """What :func:`pipeline` returns."""

    def __init__(self, name: str | None, path: Path | None) -> None:
        super().__init__()
        self._name, self._path = name, path

    def _sync(self) -> Handle[Any]:
        return Handle(self._path or "invoke", self._name or "app")

    def _async(self) -> Handle[Any]:
        return Handle(self._path or "ainvoke", self._name or "app")

    def __call__(self, function: F) -> F:
        """Makes each call of ``function`` a request."""
        known = Function("pipeline", function)
        name, path = self._name or known.name, self._path
        if known.kind == "sync" or known.kind == "async":
            return _around(function, known, lambda: Pipeline(name, path))
        way: Path = path or ("astream" if known.kind == "async generator" else "stream")

        @functools.wraps(function)
        def stream(*args: Any, **kwargs: Any) -> Any:
            make = functools.partial(function, *args, **kwargs)
            return make() if known.call(args, kwargs).bound is None else requested(way, name, known, make)

        return cast("F", marked(stream, known.kind))


class Retrieving(_With[RetrievalStage, AsyncRetrievalStage]):
    """What :func:`retrieval` returns."""

    def __init__(self, query: Any, name: str | None, arg: str | None) -> None:
        super().__init__()
        self._query, self._name, self._arg = query, name, arg

    def _sync(self) -> RetrievalStage:
        return RetrievalStage("invoke", self._name or "retrieval", self._query)

    def _async(self) -> AsyncRetrievalStage:
        return AsyncRetrievalStage("ainvoke", self._name or "retrieval", self._query)

    def __call__(self, function: F) -> F:
        """Makes each call of ``function`` a retrieval."""
        _bare("retrieval", self._query)
        known = Function("retrieval", function, self._arg, lambda value: isinstance(value, str))
        known.whole("retrieval")
        name = self._name or known.name
        if known.kind == "async":

            @functools.wraps(function)
            async def asearch(*args: Any, **kwargs: Any) -> Any:
                call = known.call(args, kwargs)
                async with Retrieving(call.value, name, None) as stage:
                    args, kwargs = call.sent(stage.query)
                    return await stage.documents(await function(*args, **kwargs))

            return cast("F", asearch)

        @functools.wraps(function)
        def search(*args: Any, **kwargs: Any) -> Any:
            call = known.call(args, kwargs)
            with Retrieving(call.value, name, None) as stage:
                args, kwargs = call.sent(stage.query)
                return stage.documents(function(*args, **kwargs))

        return cast("F", search)


class Assembling(_With[ContextStage, ContextStage]):
    """What :func:`context` returns."""

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self._name = name

    def _sync(self) -> ContextStage:
        return ContextStage("invoke", self._name or "context")

    def _async(self) -> ContextStage:
        return ContextStage("ainvoke", self._name or "context")

    def __call__(self, function: F) -> F:
        """Makes each call of ``function`` an assembly of the prompt."""
        known = Function("context", function)
        known.whole("context")
        return _around(function, known, lambda: Assembling(self._name or known.name))


class Generating(_With[GenerationStage[Given], AsyncGenerationStage[Given]]):
    """What :func:`generation` returns."""

    def __init__(self, prompt: Given, model: str | None, name: str | None, arg: str | None) -> None:
        super().__init__()
        self._prompt, self._model, self._name, self._arg = prompt, model, name, arg

    def _sync(self) -> GenerationStage[Given]:
        return GenerationStage("invoke", self._name or "generation", self._model, self._prompt)

    def _async(self) -> AsyncGenerationStage[Given]:
        return AsyncGenerationStage("ainvoke", self._name or "generation", self._model, self._prompt)

    def __call__(self, function: F) -> F:
        """Makes each call of ``function`` a generation."""
        _bare("generation", self._prompt)
        known = Function("generation", function, self._arg, lambda v: isinstance(v, str) or duck.are_messages(v))
        name, model = self._name or known.name, self._model
        if known.kind == "async":

            @functools.wraps(function)
            async def aanswer(*args: Any, **kwargs: Any) -> Any:
                call = known.call(args, kwargs)
                async with Generating(call.value, model, name, None) as stage:
                    args, kwargs = call.sent(stage.prompt)
                    return await stage.response(await function(*args, **kwargs))

            return cast("F", aanswer)
        if known.kind == "sync":

            @functools.wraps(function)
            def answer(*args: Any, **kwargs: Any) -> Any:
                call = known.call(args, kwargs)
                with Generating(call.value, model, name, None) as stage:
                    args, kwargs = call.sent(stage.prompt)
                    return stage.response(function(*args, **kwargs))

            return cast("F", answer)
        streams = Streams(function, name, model)
        made = streams.astream if known.kind == "async generator" else streams.stream

        @functools.wraps(function)
        def stream(*args: Any, **kwargs: Any) -> Any:
            call = known.call(args, kwargs)
            return function(*args, **kwargs) if call.bound is None else made(call)

        return cast("F", marked(stream, known.kind))


def _bare(what: str, given: Any) -> None:
    if given is not None:
        raise UsageError(f"@ragtrace.{what}() takes no {type(given).__name__}; name=… names it, arg=… the parameter")


def _around(function: F, known: Function, make: Callable[[], _With[Any, Any]]) -> F:
    """``function`` inside a context manager of its own for each call."""
    if known.kind == "async":

        @functools.wraps(function)
        async def awrapper(*args: Any, **kwargs: Any) -> Any:
            async with make():
                return await function(*args, **kwargs)

        return cast("F", awrapper)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return cast("F", wrapper)
