"""Retrievers: the query, retrieval and content hooks."""

from __future__ import annotations

from copy import copy
from typing import Any

from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from ragtrace.record.hooks import Recorder, Retrieval
from ragtrace.record.scope import Scope, current, inside_of
from ragtrace.record.steps import Steps, adrive, drive, internal_error, recording
from ragtrace_llama_index import translate
from ragtrace_llama_index.contexts import cause, within

_FUSED = (
    VectorStoreQueryMode.SPARSE,
    VectorStoreQueryMode.HYBRID,
    VectorStoreQueryMode.SEMANTIC_HYBRID,
)  # as many as the store thinks fit, by more than one k


class Retrieving:
    """Runs one retriever call as the retrieval stage."""

    def __init__(self, recorder: Recorder, oversample: int) -> None:
        self.recorder = recorder
        self.oversample = oversample

    def retrieve(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``retrieve(str_or_query_bundle)`` inside a request."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return wrapped(*args, **kwargs)
        with call:
            query = drive(call.stage.query(call.query), call.query)
            found = call.method(wrapped, "retrieve")(*call.with_query(query), **call.kwargs)
            return drive(call.after(found), call.cut(found))

    async def aretrieve(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``aretrieve(str_or_query_bundle)`` inside a request."""
        call = self._call(instance, args, kwargs)
        if call is None:
            return await wrapped(*args, **kwargs)
        with call:
            query = await adrive(call.stage.query(call.query), call.query)
            found = await call.method(wrapped, "aretrieve")(*call.with_query(query), **call.kwargs)
            return await adrive(call.after(found), call.cut(found))

    def _call(self, instance: Any, args: Any, kwargs: Any) -> _Call | None:
        try:
            scope = current()
            asked = args[0] if args else kwargs.get("str_or_query_bundle")
            query = translate.query_text(asked)
            if not isinstance(scope, Scope) or query is None or inside_of(instance):
                return None
            stage = Retrieval(self.recorder, scope, type(instance).__name__, instance)
            return _Call(stage, instance, asked, query, args, kwargs, self.oversample)
        except Exception:
            internal_error()
            return None


class _Call:
    """One call of one retriever."""

    def __init__(
        self, stage: Retrieval, instance: Any, asked: Any, query: str, args: Any, kwargs: Any, oversample: int
    ) -> None:
        self.stage = stage
        self.asked, self.query = asked, query
        self.rest = args[1:]
        self.kwargs = {k: v for k, v in kwargs.items() if k != "str_or_query_bundle"}
        self.retriever = instance
        self.k: int | None = None
        self._within = within(stage.context)
        if oversample > 1 and isinstance(instance, VectorIndexRetriever) and stage.has("retrieval"):
            with recording:
                self._widen(oversample)

    def _widen(self, factor: int) -> None:
        """A candidate pool larger than k, for defenses that re-rank; the app still gets k.

        Not where a node may stand for others, which are fetched after it, so that k says nothing about the result.
        """
        k = self.retriever.similarity_top_k
        if not isinstance(k, int) or k < 1 or self.retriever.object_map:
            return
        if self.retriever._vector_store_query_mode in _FUSED:
            return
        wider = copy(self.retriever)
        wider.similarity_top_k = k * factor
        self.retriever = self.stage.subject = wider  # its methods are one call, as those of the app's own
        self.k = k

    def method(self, wrapped: Any, name: str) -> Any:
        """The framework's own method, on the retriever that fetches the pool."""
        return wrapped if self.k is None else getattr(self.retriever, name)

    def with_query(self, query: str) -> tuple[Any, ...]:
        """The arguments for the framework."""
        return (translate.query_back(self.asked, query), *self.rest)

    def after(self, found: Any) -> Steps[Any]:
        """The nodes for the app."""
        try:
            ours = translate.documents(found)
        except TypeError as odd:
            self.stage.losses.append(str(odd))
            return self.cut(found)
        kept = yield from self.stage.documents(ours, self.k)
        return found if kept is ours else translate.documents_back(found, translate.documents(found), kept)

    def cut(self, found: Any) -> Any:
        """What the app would have got without us."""
        return found[: self.k] if self.k is not None and isinstance(found, list) else found

    def __enter__(self) -> None:
        self._within.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._within.__exit__(kind, error, traceback)
        self.stage.end(error and cause(error))
