"""LlamaIndex's own parts that may protect data: node postprocessors (PII, re-rankers, cutoffs) and query transforms."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import QueryBundle

from ragtrace.record.parts import Parts
from ragtrace.record.scope import inside_of
from ragtrace.record.spans import Recorder
from ragtrace.record.steps import recording
from ragtrace.record.wraps import Wraps
from ragtrace_llama_index import translate

_running: ContextVar[tuple[int, ...]] = ContextVar("ragtrace_running_transforms", default=())


def observe(recorder: Recorder, wraps: Wraps) -> None:
    """Puts the wraps on every class of these kinds, of now and of later."""
    parts = Parts(recorder)
    nodes = _Nodes(parts)
    methods = {}
    for name in ("postprocess_nodes", "_postprocess_nodes"):
        methods[name] = nodes.sync
    for name in ("apostprocess_nodes", "_apostprocess_nodes"):
        methods[name] = nodes.async_
    wraps.family(BaseNodePostprocessor, methods)
    wraps.family(BaseQueryTransform, {"run": _Queries(parts).run})


class _Nodes:
    """Postprocessors: nodes in, nodes out. Their methods call each other: together they are one run."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def sync(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``postprocess_nodes(nodes, query_bundle=None, query_str=None)``."""
        if inside_of(instance):
            return wrapped(*args, **kwargs)
        made: list[Any] = []

        def call() -> Any:
            made.append(wrapped(*args, **kwargs))
            return _seen(made[0])

        self.parts.documents(instance, _given(args, kwargs), call)
        return made[0]

    async def async_(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``apostprocess_nodes``."""
        if inside_of(instance):
            return await wrapped(*args, **kwargs)
        made: list[Any] = []

        async def call() -> Any:
            made.append(await wrapped(*args, **kwargs))
            return _seen(made[0])

        await self.parts.adocuments(instance, _given(args, kwargs), call)
        return made[0]


def _given(args: Any, kwargs: Any) -> Any:
    return _seen(args[0] if args else kwargs.get("nodes"))


def _seen(nodes: Any) -> Any:
    """The nodes as they are now, with the text that retrieval shows; what are no nodes is not read."""
    try:
        return translate.documents(nodes)
    except Exception:
        return None


class _Queries:
    """Query transforms: a question in, another one out."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def run(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """``run(query_bundle_or_str, metadata=None)``."""
        running = _running.get()
        before = _asked(args[0] if args else kwargs.get("query_bundle_or_str"))
        if id(instance) in running or before is None:
            return wrapped(*args, **kwargs)
        token = _running.set((*running, id(instance)))
        try:
            result = wrapped(*args, **kwargs)
        except Exception as error:
            self.parts.text(instance, "query", before, before, error)
            raise
        finally:
            _running.reset(token)
        with recording:
            if (after := _asked(result)) is not None:
                self.parts.text(instance, "query", before, after)
        return result


def _asked(query: Any) -> str | None:
    """What will be looked for: the texts to embed, where a transform has made some."""
    if isinstance(query, QueryBundle) and query.custom_embedding_strs:
        return "\n\n".join(query.custom_embedding_strs)
    return translate.query_text(query)
