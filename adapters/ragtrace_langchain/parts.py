"""LangChain's own parts that may protect data: document compressors and transformers, re-rankers, agent middleware."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.documents import BaseDocumentTransformer
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, convert_to_messages

from ragtrace.record import pictures
from ragtrace.record.parts import Parts
from ragtrace.record.scope import put_back
from ragtrace.record.spans import Recorder
from ragtrace.record.steps import recording
from ragtrace.record.wraps import Wraps
from ragtrace.types import Hook

_CONTAINERS = ("DocumentCompressorPipeline", "TextSplitter")  # they run other parts, or cut texts for an index
_NODES: dict[str, Hook] = {
    "before_agent": "prompt", "before_model": "prompt", "after_model": "response", "after_agent": "response",
}  # fmt: skip
_FLAGS = {  # middleware that has a method for each hook, and flags that say which are on
    ("PIIMiddleware", "prompt"): ("apply_to_input", "apply_to_tool_results"),
    ("PIIMiddleware", "response"): ("apply_to_output",),
}

_running: ContextVar[tuple[tuple[int, str], ...]] = ContextVar("ragtrace_running_parts", default=())


def observe(recorder: Recorder, wraps: Wraps) -> None:
    """Puts the wraps on every class of these kinds, of now and of later."""
    parts = Parts(recorder)
    documents = _Documents(parts)
    for base, name in (
        (BaseDocumentCompressor, "compress_documents"),
        (BaseDocumentTransformer, "transform_documents"),
    ):
        wraps.family(base, {name: documents.sync, f"a{name}": documents.async_})
    middleware = _Middleware(parts)
    methods = {"wrap_model_call": middleware.model, "awrap_model_call": middleware.amodel}
    methods |= {"wrap_tool_call": middleware.tool, "awrap_tool_call": middleware.atool}
    for name, hook in _NODES.items():
        methods |= {name: middleware.node(hook), f"a{name}": middleware.anode(hook)}
    # LangChain compares a class's method with the base's own, by identity: the base keeps it
    wraps.late(
        "langchain.agents.middleware.types", lambda m: wraps.family(m.AgentMiddleware, methods, descendants_only=True)
    )


class _Documents:
    """Compressors and transformers: documents in, documents out."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def sync(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``compress_documents(documents, query, callbacks=None)``, ``transform_documents(documents, **kwargs)``."""
        return self.parts.documents(instance, _given(instance, args, kwargs), lambda: wrapped(*args, **kwargs))

    async def async_(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """Their async forms."""
        return await self.parts.adocuments(instance, _given(instance, args, kwargs), lambda: wrapped(*args, **kwargs))


def _given(instance: Any, args: Any, kwargs: Any) -> Any:
    if any(kind.__name__ in _CONTAINERS for kind in type(instance).__mro__):
        return None
    return args[0] if args else kwargs.get("documents")


class _Middleware:
    """Agent middleware: messages in, messages out, round the model and round the tools."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def node(self, hook: Hook) -> Callable[..., Any]:
        """``before_model(state, runtime)`` and the like: a node of the graph, which gives an update of the state."""

        def run(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            with _once(instance, hook) as first, _Node(self.parts, instance, hook, args, kwargs, first) as node:
                return node.done(wrapped(*args, **kwargs))

        return run

    def anode(self, hook: Hook) -> Callable[..., Any]:
        """Their async forms."""

        async def run(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            with _once(instance, hook) as first, _Node(self.parts, instance, hook, args, kwargs, first) as node:
                return node.done(await wrapped(*args, **kwargs))

        return run

    def model(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``wrap_model_call(request, handler)``: what it hands on to the model, and what it makes of the answer."""
        with _once(instance, "model") as first:
            if not first or len(args) != 2:
                return wrapped(*args, **kwargs)
            call = _Call(self.parts, instance, args[0])

            def handler(request: Any) -> Any:
                call.sent(request)
                return call.heard(args[1](request))

            return call.done(wrapped(args[0], handler, **kwargs))

    async def amodel(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``awrap_model_call``."""
        with _once(instance, "model") as first:
            if not first or len(args) != 2:
                return await wrapped(*args, **kwargs)
            call = _Call(self.parts, instance, args[0])

            async def handler(request: Any) -> Any:
                call.sent(request)
                return call.heard(await args[1](request))

            return call.done(await wrapped(args[0], handler, **kwargs))

    def tool(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``wrap_tool_call(request, handler)``: what it makes of a tool's result, which goes into the prompt."""
        with _once(instance, "tool") as first:
            if not first or len(args) != 2:
                return wrapped(*args, **kwargs)
            results: list[Any] = []

            def handler(request: Any) -> Any:
                results.append(pictures.text(result := args[1](request)))
                return result

            return self._tooled(instance, results, wrapped(args[0], handler, **kwargs))

    async def atool(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``awrap_tool_call``."""
        with _once(instance, "tool") as first:
            if not first or len(args) != 2:
                return await wrapped(*args, **kwargs)
            results: list[Any] = []

            async def handler(request: Any) -> Any:
                results.append(pictures.text(result := await args[1](request)))
                return result

            return self._tooled(instance, results, await wrapped(args[0], handler, **kwargs))

    def _tooled(self, instance: Any, results: list[Any], result: Any) -> Any:
        with recording:
            if results and results[-1] is not None and (after := pictures.text(result)) is not None:
                self.parts.text(instance, "prompt", results[-1], after)
        return result


@contextmanager
def _once(instance: Any, what: str) -> Iterator[bool]:
    """Whether this is the outermost run of this instance here: an async method may call its sync form."""
    running, key = _running.get(), (id(instance), what)
    token = _running.set((*running, key))
    try:
        yield key not in running
    finally:
        put_back(token)


class _Node:
    """One run of a middleware's node."""

    def __init__(self, parts: Parts, instance: Any, hook: Hook, args: Any, kwargs: Any, first: bool) -> None:
        self.parts, self.instance, self.hook = parts, instance, hook
        self.state: Any = None
        self.before: Any = None
        flags = _FLAGS.get((type(instance).__name__, hook), ())
        if first and (not flags or any(getattr(instance, flag, True) for flag in flags)):
            self.state = args[0] if args else kwargs.get("state")

    def __enter__(self) -> _Node:
        with recording:
            self.before = self._picture(_messages(self.state))
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception) and not any(k.__name__ == "GraphBubbleUp" for k in type(error).__mro__):
            self.parts.text(self.instance, self.hook, self.before, self.before, error)

    def done(self, update: Any) -> Any:
        """Records what the node made of the messages; returns ``update``."""
        with recording:
            if self.before is not None:
                changes = update if isinstance(update, dict) else getattr(update, "update", None)
                after = self._picture(_merged(_messages(self.state) or [], _messages(changes) or []))
                self.parts.text(self.instance, self.hook, self.before, after if after is not None else "")
        return update

    def _picture(self, messages: list[BaseMessage] | None) -> Any:
        if messages is None:
            return None
        return pictures.pairs(messages) if self.hook == "prompt" else _answer(messages)


class _Call:
    """One run of a middleware's ``wrap_model_call``."""

    def __init__(self, parts: Parts, instance: Any, request: Any) -> None:
        self.parts, self.instance = parts, instance
        self.before: Any = None
        self.answer: str | None = None
        with recording:
            self.before = _asked(request)

    def sent(self, request: Any) -> None:
        """The middleware hands ``request`` on."""
        with recording:
            self.parts.text(self.instance, "prompt", self.before, _asked(request))

    def heard(self, response: Any) -> Any:
        """What the middleware gets."""
        with recording:
            self.answer = _answer(_result(response))
        return response

    def done(self, response: Any) -> Any:
        """What the middleware makes of it."""
        with recording:
            after = _answer(_result(response))
            if self.answer is not None and after is not None:
                self.parts.text(self.instance, "response", self.answer, after)
        return response


def _asked(request: Any) -> list[tuple[str, str]]:
    system = [request.system_message] if request.system_message is not None else []
    return pictures.pairs([*system, *request.messages])


def _result(response: Any) -> list[Any]:
    if isinstance(response, AIMessage):
        return [response]
    response = getattr(response, "model_response", response)
    return list(getattr(response, "result", ()))


def _messages(state: Any) -> list[BaseMessage] | None:
    found = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    if found is None:
        return None
    found = getattr(found, "value", found)  # of an update that overwrites
    found = found if isinstance(found, list | tuple) else [found]
    return list(found) if all(isinstance(m, BaseMessage) for m in found) else convert_to_messages(found)


def _answer(messages: list[Any]) -> str | None:
    """The text of the latest answer among ``messages``."""
    latest = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
    return None if latest is None else str(latest.text)


def _merged(messages: list[BaseMessage], update: list[BaseMessage]) -> list[BaseMessage]:
    """The messages after an update: one with a known id takes its place, others follow."""
    out = list(messages)
    for message in update:
        if isinstance(message, RemoveMessage):
            out = [] if message.id == "__remove_all__" else [m for m in out if m.id != message.id]
            continue
        place = next((i for i, m in enumerate(out) if m is message or (m.id is not None and m.id == message.id)), None)
        if place is None:
            out.append(message)
        else:
            out[place] = message
    return out
