"""Small pipelines whose answer shows everything that went into it, and the six ways to call one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, GenerationChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

import ragtrace

PATHS = ("invoke", "ainvoke", "stream", "astream", "batch", "abatch")
STREAMS = ("stream", "astream")
BATCHES = ("batch", "abatch")


class Shelf(BaseRetriever):
    """Answers any query with documents that name it."""

    words: list[str] = ["alpha", "beta"]
    error: Any = None

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        if self.error is not None:
            raise self.error
        return [Document(page_content=f"{w} for {query}", id=w, metadata={"score": 0.5}) for w in self.words]


class Echo(BaseChatModel):
    """Says its prompt again, word by word when streamed."""

    fail_at: int | None = None
    seen: list[Any] = []
    usage: bool = False

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _words(self, messages: Any) -> list[str]:
        self.seen.append(messages)
        return ["echo:"] + [f" {w}" for m in messages for w in m.text.split(" ")]

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        words = self._words(messages)
        if self.fail_at is not None:
            self._break()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="".join(words), id="fixed"))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        for place, word in enumerate(self._words(messages)):
            if place == self.fail_at:
                self._break()
            yield ChatGenerationChunk(message=AIMessageChunk(content=word, id="fixed"))

    def _break(self) -> None:
        raise OSError("the model is out")


class TextEcho(LLM):
    """The same as a text model."""

    fail_at: int | None = None

    @property
    def _llm_type(self) -> str:
        return "text-echo"

    def _call(self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> str:
        if self.fail_at is not None:
            self._break()
        return f"echo: {prompt}"

    def _stream(self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        for place, word in enumerate(["echo:"] + [f" {w}" for w in prompt.split(" ")]):
            if place == self.fail_at:
                self._break()
            yield GenerationChunk(text=word)

    def _break(self) -> None:
        raise OSError("the model is out")


def join(documents: list[Document]) -> str:
    return " | ".join(d.page_content for d in documents)


def lcel(model: Any = None, retriever: Any = None) -> Runnable[Any, Any]:
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "{context} ? {question}")])
    inputs = {"context": (retriever or Shelf()) | RunnableLambda(join), "question": RunnablePassthrough()}
    return inputs | prompt | (model or Echo()) | StrOutputParser()


def text_chain(model: Any = None) -> Runnable[Any, Any]:
    prompt = ChatPromptTemplate.from_template("{context} ? {question}")
    inputs = {"context": Shelf() | RunnableLambda(join), "question": RunnablePassthrough()}
    return inputs | prompt | (model or TextEcho())


def retrieval_chain(model: Any = None, retriever: Any = None) -> Runnable[Any, Any]:
    from langchain_classic.chains import create_retrieval_chain
    from langchain_classic.chains.combine_documents import create_stuff_documents_chain

    prompt = ChatPromptTemplate.from_template("{context} ? {input}")
    combine = create_stuff_documents_chain(model or Echo(), prompt)
    return RunnableLambda(lambda q: {"input": q}) | create_retrieval_chain(retriever or Shelf(), combine)


def call(path: str, runnable: Any, inputs: list[Any]) -> list[Any]:
    """Calls ``runnable`` along ``path``: a batch with all inputs, else with the first. A stream gives its chunks."""

    async def chunks() -> list[Any]:
        return [c async for c in runnable.astream(inputs[0])]

    ways: dict[str, Callable[[], Any]] = {
        "invoke": lambda: [runnable.invoke(inputs[0])],
        "ainvoke": lambda: [asyncio.run(_awaited(lambda: runnable.ainvoke(inputs[0])))],
        "stream": lambda: list(runnable.stream(inputs[0])),
        "astream": lambda: asyncio.run(chunks()),
        "batch": lambda: runnable.batch(inputs),
        "abatch": lambda: asyncio.run(_awaited(lambda: runnable.abatch(inputs))),
    }
    return ways[path]()


async def _awaited(make: Callable[[], Any]) -> Any:
    return await make()


class Traces:
    """What was recorded, read as the store reads it."""

    def __init__(self, exporter: Any, tracer: Any = None) -> None:
        self._exporter = exporter
        self.tracer = tracer  # of the app's own, whose spans go where ours go

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def clear(self) -> None:
        self._exporter.clear()

    def stages(self, stage: str) -> list[Any]:
        return [s for s in self.spans if s.attributes.get("ragtrace.stage") == stage]

    def roots(self) -> list[Any]:
        return [s for s in self.spans if s.parent is None]

    def effects(self) -> list[dict[str, Any]]:
        return [e for s in self.spans for e in json.loads(s.attributes.get("ragtrace.effects", "[]"))]

    def losses(self) -> list[str]:
        return [e for s in self.spans for e in json.loads(s.attributes.get("ragtrace.losses", "[]"))]

    def documents(self, attribute: str = "gen_ai.retrieval.documents") -> list[dict[str, Any]]:
        return [d for s in self.spans for d in json.loads(s.attributes.get(attribute, "[]"))]

    def text(self) -> str:
        """Everything that any span says."""
        return "\n".join(s.to_json() for s in self.spans)


class Hooked(ragtrace.Defense):
    """A defense at one hook, that does what ``act`` does with the hook's value."""

    name = "hooked"

    def __new__(cls, hook: str, act: Callable[[Any], Any], on_error: str = "open", is_async: bool = False) -> Any:
        def method(self: Any, *args: Any) -> Any:
            return act(args[-1])

        async def amethod(self: Any, *args: Any) -> Any:
            await asyncio.sleep(0)
            return act(args[-1])

        kind = type("Hooked", (ragtrace.Defense,), {f"on_{hook}": amethod if is_async else method, "name": "hooked"})
        made = kind()
        made.on_error = on_error
        return made
