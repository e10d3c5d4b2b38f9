"""The same small pipeline in both frameworks, along all six paths: documents and an answer as the test gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llama_pipelines
import pipelines
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever as LCRetriever
from langchain_core.runnables import RunnableLambda
from llama_index.core.retrievers import BaseRetriever as LIRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from ragtrace_langchain import LangChainInstrumentor
from ragtrace_llama_index import LlamaIndexInstrumentor

FRAMEWORKS = ("langchain", "llama_index")
PATHS = pipelines.PATHS
STREAMS = pipelines.STREAMS
_INSTRUMENTORS: dict[str, Any] = {"langchain": LangChainInstrumentor, "llama_index": LlamaIndexInstrumentor}


def _pieces(answer: str) -> list[str]:
    return re.split(r"(?= )", answer)


class LCSays(pipelines.Echo):
    """Says ``answer``, word by word when streamed; without one, its prompt."""

    answer: str | None = None

    def _words(self, messages: Any) -> list[str]:
        return super()._words(messages) if self.answer is None else _pieces(self.answer)

    def _break(self) -> None:
        raise OSError(f"the model is out: {self.answer}")


class LISays(llama_pipelines.ChatEcho):
    """The same in LlamaIndex."""

    answer: str | None = None

    def _words(self, messages: Any) -> list[str]:
        return super()._words(messages) if self.answer is None else _pieces(self.answer)

    def _break(self) -> None:
        raise OSError(f"the model is out: {self.answer}")


class LCFiles(LCRetriever):
    """Gives all its documents, whatever is asked."""

    documents: dict[str, str]
    more: dict[str, Any] = {}
    error: Any = None

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        if self.error is not None:
            raise self.error
        return [Document(page_content=t, id=i, metadata={"score": 0.5} | self.more) for i, t in self.documents.items()]


class LIFiles(LIRetriever):
    """The same in LlamaIndex."""

    def __init__(self, documents: dict[str, str], more: dict[str, Any], error: Any = None) -> None:
        super().__init__()
        self.documents, self.more, self.error = documents, more, error

    def _retrieve(self, query_bundle: Any) -> Any:
        if self.error is not None:
            raise self.error
        return [
            NodeWithScore(node=TextNode(text=t, id_=i, metadata=self.more), score=0.5)
            for i, t in self.documents.items()
        ]


def ask(
    framework: str,
    path: str,
    documents: dict[str, str],
    answer: str | None = None,
    questions: tuple[str, ...] = ("why", "who"),
    *,
    metadata: dict[str, Any] | None = None,
    retriever_error: Exception | None = None,
    fail_at: int | None = None,
    config: Any = None,
    after: Any = None,
) -> list[Any]:
    """Asks along ``path``: a batch with all questions, else the first. ``after`` is what the app does to the answer."""
    if framework == "langchain":
        files = LCFiles(documents=documents, more=metadata or {}, error=retriever_error)
        chain: Any = pipelines.lcel(LCSays(answer=answer, fail_at=fail_at), files)
        if after is not None:
            chain = chain | RunnableLambda(after)
        return pipelines.call(path, chain.with_config(config) if config else chain, list(questions))
    model = LISays(answer=answer, fail_at=fail_at)
    shelf = LIFiles(documents, metadata or {}, retriever_error)
    engine = llama_pipelines.query_engine(model, shelf, streaming=path in STREAMS)
    said = llama_pipelines.call(path, llama_pipelines.QUERY, engine, list(questions))
    if after is None:
        return said
    return [after("".join(map(str, said)))] if path in STREAMS else [after(str(one)) for one in said]


@contextmanager
def instrumented(provider: Any, **options: Any) -> Iterator[None]:
    """Both frameworks, recording to ``provider``."""
    on = [kind() for kind in _INSTRUMENTORS.values()]
    for instrumentor in on:
        instrumentor.instrument(tracer_provider=provider, **options)
    try:
        yield
    finally:
        for instrumentor in on:
            instrumentor.uninstrument()
