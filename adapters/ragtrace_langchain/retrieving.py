"""Retrievers: the query, retrieval and content hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from ragtrace.record.hooks import Recorder, Retrieval
from ragtrace.record.scope import current, inside_of, put_back
from ragtrace.record.steps import Steps, adrive, drive, internal_error, recording
from ragtrace.record.wraps import Wrapper
from ragtrace_langchain import translate

_pairs: ContextVar[list[Any] | None] = ContextVar("ragtrace_scores", default=None)
_SYNC = (
    "similarity_search_with_score",
    "similarity_search_with_score_by_vector",
    "similarity_search_with_relevance_scores",
    "max_marginal_relevance_search_with_score_by_vector",
)
_SCORED = (
    *_SYNC,
    *(f"a{name}" for name in _SYNC),
    "_similarity_search_with_score_by_vector",  # where the in-memory store has what its mmr drops
)


class Scores:
    """Hears the scores that vector stores compute and LangChain's retriever drops.

    The store's own methods are wrapped on its class when it is first met, so the app's results stay those of
    the app's own call: nothing is searched twice or in another way.
    """

    def __init__(self, wrap: Callable[[type, str, Wrapper], None]) -> None:
        self._wrap = wrap
        self._known: WeakSet[type] = WeakSet()

    def hear(self, retriever: Any) -> None:
        """Wraps the classes of the vector stores that ``retriever`` holds."""
        for value in vars(retriever).values():
            if isinstance(value, VectorStore) and type(value) not in self._known:
                for owner in type(value).__mro__:
                    if owner not in self._known and isinstance(owner, type) and issubclass(owner, VectorStore):
                        self._known.add(owner)
                        for name in _SCORED:
                            if callable(vars(owner).get(name)):
                                self._wrap(owner, name, self._heard)

    def _heard(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        return self._awaited(result) if inspect.iscoroutine(result) else self._keep(result)

    async def _awaited(self, result: Any) -> Any:
        return self._keep(await result)

    def _keep(self, result: Any) -> Any:
        pairs = _pairs.get()
        if pairs is not None and isinstance(result, list):
            pairs.extend(p for p in result if isinstance(p, tuple) and len(p) > 1)
        return result


class Retrieving:
    """Runs one retriever call as the retrieval stage."""

    def __init__(self, recorder: Recorder, oversample: int, wrap: Callable[[type, str, Wrapper], None]) -> None:
        self.recorder = recorder
        self.oversample = oversample
        self._scores = Scores(wrap)

    def invoke(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``invoke(input, config=None, **kwargs)`` inside a request."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call.stage, call:
            query = drive(call.stage.query(call.query), call.query)
            found = call.method(wrapped)(query, *args[1:], **call.kwargs)
            return drive(call.after(found), call.cut(found))

    async def ainvoke(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``ainvoke(input, config=None, **kwargs)`` inside a request."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call.stage, call:
            query = await adrive(call.stage.query(call.query), call.query)
            found = await call.method(wrapped)(query, *args[1:], **call.kwargs)
            return await adrive(call.after(found), call.cut(found))

    def _call(self, instance: Any, args: Any, kwargs: Any) -> _Call | None:
        try:
            scope = current()
            query = args[0] if args else kwargs.get("input")
            if scope is None or not isinstance(query, str) or inside_of(instance):
                return None
            with recording:
                self._scores.hear(instance)
            stage = Retrieval(self.recorder, scope, type(instance).__name__, instance)
            rest = {k: v for k, v in kwargs.items() if k != "input"}
            return _Call(stage, instance, query, rest, self.oversample)
        except Exception:
            internal_error()
            return None


class _Call:
    """One call of one retriever."""

    def __init__(self, stage: Retrieval, instance: Any, query: str, kwargs: dict[str, Any], oversample: int) -> None:
        self.stage = stage
        self.query = query
        self.kwargs = kwargs
        self.retriever = instance
        outer = _pairs.get()  # of the retriever that asks this one: it hands on the same documents
        self.pairs: list[Any] = [] if outer is None else outer
        self.k: int | None = None
        if oversample > 1 and isinstance(instance, VectorStoreRetriever) and stage.has("retrieval"):
            with recording:
                self._widen(oversample)

    def _widen(self, factor: int) -> None:
        """A candidate pool larger than k, for defenses that re-rank; the app still gets k."""
        search = self.retriever.search_kwargs
        k = self.kwargs.get("k", search.get("k"))
        if k is None:
            k = inspect.signature(self.retriever.vectorstore.similarity_search).parameters["k"].default
        if not isinstance(k, int) or k < 1:
            return
        wider = search | {"k": k * factor}
        if self.retriever.search_type == "mmr":
            wider["fetch_k"] = max(search.get("fetch_k", 20), k * factor)
        self.retriever = self.retriever.model_copy(update={"search_kwargs": wider})
        if "k" in self.kwargs:
            self.kwargs = self.kwargs | {"k": k * factor}
        self.k = k

    def method(self, wrapped: Any) -> Any:
        """The framework's own method, on the retriever that fetches the pool."""
        return wrapped if self.k is None else wrapped.__func__.__get__(self.retriever)

    def after(self, found: Any) -> Steps[Any]:
        """The documents for the app."""
        key = self.stage.recorder.capture.key
        try:
            ours = translate.documents(found, self.pairs, key)
        except TypeError as odd:
            self.stage.losses.append(str(odd))
            return self.cut(found)
        kept = yield from self.stage.documents(ours, self.k)
        if kept is ours:
            return found
        return translate.documents_back(found, translate.documents(found, self.pairs, key), kept)

    def cut(self, found: Any) -> Any:
        """What the app would have got without us."""
        return found[: self.k] if self.k is not None and isinstance(found, list) else found

    def __enter__(self) -> None:
        self._token = _pairs.set(self.pairs)

    def __exit__(self, *_: Any) -> None:
        put_back(self._token)
