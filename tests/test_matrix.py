"""2 frameworks × 6 paths × 5 hooks × {changes, leaves alone, raises}: 180 cells, read from `effects` and `coverage`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import llama_pipelines as llama
import pipelines
import pytest
from pipelines import BATCHES, PATHS, STREAMS
from ragtrace_langchain import LangChainInstrumentor
from ragtrace_llama_index import LlamaIndexInstrumentor
from store_fixtures import Bench, rows

import ragtrace
from ragtrace.types import HOOKS, Document, Message

STATUS = {"changes": "changed", "leaves alone": "unchanged", "raises": "error"}


def reversed_documents(documents: list[Document]) -> list[Document]:
    return documents[::-1]


def rewritten(documents: list[Document]) -> list[Document]:
    return [Document(d.content.replace("alpha", "ALPHA"), d.id, d.score, d.metadata) for d in documents]


def more(messages: list[Message]) -> list[Message]:
    return [*messages[:-1], Message(messages[-1].role, messages[-1].content + " [more]")]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "query": str.upper,
    "retrieval": reversed_documents,
    "content": rewritten,
    "prompt": more,
    "response": lambda text: f"[masked] {text}",
}
SHOWS = {  # what the answer to "q" says where the defense has changed something
    "query": "alpha for Q",
    "retrieval": ("beta for q", "alpha for q"),
    "content": "ALPHA for q",
    "prompt": "[more]",
    "response": "[masked]",
}


def shows(hook: str, answer: str) -> bool:
    wanted = SHOWS[hook]
    if isinstance(wanted, str):
        return wanted in answer
    return 0 <= answer.find(wanted[0]) < answer.find(wanted[1])


def refuses(_: Any) -> Any:
    raise ValueError("the defense is out")


ACTS: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "changes": CHANGES.__getitem__,
    "leaves alone": lambda hook: lambda value: value,
    "raises": lambda hook: refuses,
}


def ask_langchain(path: str) -> list[Any]:
    return pipelines.call(path, pipelines.lcel(), ["q", "q"])


def ask_llama_index(path: str) -> list[Any]:
    engine = llama.query_engine(streaming=path in STREAMS)
    return llama.call(path, llama.QUERY, engine, ["q", "q"])


ASK = {"langchain": ask_langchain, "llama_index": ask_llama_index}
INSTRUMENTORS = {"langchain": LangChainInstrumentor, "llama_index": LlamaIndexInstrumentor}


@pytest.fixture
def traced(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Bench]:
    instrumentor = INSTRUMENTORS[request.getfixturevalue("framework")]()
    instrumentor.instrument(tracer_provider=bench.provider, capture="full")
    yield bench
    instrumentor.uninstrument()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("framework", ASK)
def test_cells(traced: Bench, framework: str, path: str, act: str) -> None:
    plain = ASK[framework](path)
    answers = {}
    for hook in HOOKS:
        with ragtrace.defend(named(hook, ACTS[act](hook))):
            answers[hook] = ASK[framework](path)
    requests = 2 if path in BATCHES else 1
    with traced.open() as db:
        effects = rows(db, "SELECT * FROM effects")
        coverage = rows(db, "SELECT defense, hook, path, ran FROM coverage")
    for hook in HOOKS:
        found = [e for e in effects if e["defense"] == f"at-{hook}"]
        assert [(e["hook"], e["status"], e["path"], e["framework"]) for e in found] == [
            (hook, STATUS[act], path, framework)
        ] * requests
        assert {e["buffered"] for e in found} == {hook == "response" and path in STREAMS}
        assert [c for c in coverage if c["defense"] == f"at-{hook}"] == [
            {"defense": f"at-{hook}", "hook": hook, "path": path, "ran": True}
        ] * requests
        said = answers[hook]
        if act == "changes":
            texts = ["".join(map(str, said))] if path in STREAMS else [str(a) for a in said]
            assert len(texts) == requests and all(shows(hook, text) for text in texts)
        elif path in STREAMS:
            assert "".join(map(str, said)) == "".join(map(str, plain))
        else:
            assert list(map(str, said)) == list(map(str, plain))


def named(hook: str, act: Callable[[Any], Any]) -> Any:
    made = pipelines.Hooked(hook, act)
    made.name = f"at-{hook}"
    return made
