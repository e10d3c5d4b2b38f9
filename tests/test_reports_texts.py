"""Real reports (see test_reports.py) about what a span says: roles, masked texts, odd values, huge ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from pipelines import PATHS, Echo, Hooked, call, join

import ragtrace

ASYNC = ("ainvoke", "astream", "abatch")


@pytest.mark.parametrize("path", PATHS)
def test_openinference_2426_raw_dicts_and_messages_without_id_keep_their_roles(traces: Any, path: str) -> None:
    given = [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "1", "type": "tool_call"}]},
        {"role": "tool", "content": "found", "tool_call_id": "1"},
        ("human", "more"),
        HumanMessage("last", id=None),
    ]
    wanted = [
        ("system", "be"),
        ("user", "hi"),
        ("assistant", ""),
        ("tool", "found"),
        ("user", "more"),
        ("user", "last"),
    ]
    call(path, Echo(), [given])
    [generation] = traces.stages("generation")
    rows = json.loads(generation.attributes["gen_ai.input.messages"])
    assert [(r["role"], r["parts"][0]["content"]) for r in rows] == wanted
    [answer] = json.loads(generation.attributes["gen_ai.output.messages"])
    assert answer["role"] == "assistant"


def test_openinference_2426_chunks_and_functions_keep_their_roles(traces: Any) -> None:
    from langchain_core.messages import (
        AIMessageChunk,
        ChatMessage,
        FunctionMessage,
        HumanMessageChunk,
        SystemMessageChunk,
        ToolMessageChunk,
    )

    given = [
        SystemMessageChunk("s"), HumanMessageChunk("h"), AIMessageChunk("a"), ToolMessageChunk("t", tool_call_id="1"),
        FunctionMessage("f", name="f"), ChatMessage("c", role="critic"),
    ]  # fmt: skip
    Echo().invoke(given)
    rows = json.loads(traces.stages("generation")[0].attributes["gen_ai.input.messages"])
    assert [r["role"] for r in rows] == ["system", "user", "assistant", "tool", "tool", "critic"]


SECRET = "zoltan.quibble@hidden-corp.com"
TELLTALE = "Zoltan"


class Talkative(Echo):
    """Says the secret wherever a provider may."""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        message = AIMessage(
            SECRET,
            tool_calls=[{"name": "mail", "args": {"to": SECRET}, "id": "1"}],
            additional_kwargs={"refusal": SECRET, SECRET: SECRET},
            response_metadata={
                "system_fingerprint": SECRET,
                "logprobs": {"content": [{"token": SECRET, "logprob": -1.0}]},
            },
        )
        return ChatResult(generations=[ChatGeneration(message=message, generation_info={"note": SECRET})])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        raise NotImplementedError


Talkative._stream = Echo.__mro__[1]._stream  # type: ignore[attr-defined,method-assign] # it does not stream


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", ["masked", "digest", "none"])
def test_openinference_2550_3203_what_is_masked_is_in_no_attribute(instrumented: Any, mode: str, path: str) -> None:
    traces = instrumented(capture=mode)

    class Confidential(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            metadata = {"author": SECRET, SECRET: "key", "nested": {"to": [SECRET]}, "client": object()}
            return [Document(page_content=f"write to {SECRET}", metadata=metadata)]

    @ragtrace.observe(hook="response", name="house")
    def house(text: str) -> str:
        return text.upper()

    def messages(found: Any) -> Any:
        return [
            SystemMessage(f"the context: {join(found)}", additional_kwargs={"hidden": SECRET}),
            HumanMessage([{"type": "text", "text": SECRET}, {"type": "image_url", "image_url": {"url": SECRET}}]),
            AIMessage("", tool_calls=[{"name": "f", "args": {"to": SECRET}, "id": "1"}]),
            ToolMessage(SECRET, tool_call_id="1", artifact={"raw": SECRET}),
        ]

    def fail(text: str) -> str:
        raise ValueError(f"no mail to {SECRET}")

    chain = Confidential() | RunnableLambda(messages) | Talkative() | RunnableLambda(lambda m: house(m.text))
    chain = chain.with_config(tags=[SECRET], metadata={"note": SECRET, SECRET: 1}, run_name=SECRET)
    with ragtrace.defend(Hooked("prompt", lambda ms: ms), Hooked("response", lambda r: 1 / 0)):
        call(path, chain, [f"who is {SECRET}?"])
    with pytest.raises(ValueError, match="no mail"):
        call(path, chain | RunnableLambda(fail), [f"who is {SECRET}?"])
    assert len(traces.stages("retrieval")) == len(traces.stages("generation")) == 2
    assert any(s.status.status_code.name == "ERROR" for s in traces.spans)
    said = traces.text().lower()
    for part in (SECRET, "zoltan", "quibble", "hidden-corp"):
        assert part.lower() not in said


# values that JSON does not have


def test_openllmetry_2537_1171_none_and_foreign_values_neither_warn_nor_vanish_in_silence(
    traces: Any, caplog: Any
) -> None:
    class Client:
        def __repr__(self) -> str:
            return f"Client({SECRET})"

    metadata = {
        "none": None, "int": np.int64(7), "float": np.float32(0.5), "nan": float("nan"), "npnan": np.float64("nan"),
        "flag": np.bool_(True), "set": {3}, "when": datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "day": date(2026, 1, 2),
        "raw": b"\x00\xff", "client": Client(), "array": np.arange(3), "path": Path("a/b"), "id": UUID(int=5),
        "text": "kept", "empty": "", "list": [None, 1, Client()],
    }  # fmt: skip

    class Odd(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            return [Document(page_content="x", metadata=metadata)]

    [found] = Odd().invoke("q")
    assert found.metadata == metadata or found.metadata.keys() == metadata.keys()
    kept = traces.documents()[0]["metadata"]
    assert {k: kept[k] for k in ("none", "int", "float", "set", "text", "empty", "nan", "npnan")} == {
        "none": None, "int": 7, "float": 0.5, "set": [3], "text": "kept", "empty": "", "nan": None, "npnan": None,
    }  # fmt: skip
    assert (kept["when"], kept["day"], kept["id"]) == ("2026-01-02T03:04:00+00:00", "2026-01-02", str(UUID(int=5)))
    assert kept["path"] == "a/b" and kept["list"] == [None, 1]
    losses = "\n".join(traces.losses())
    for name in set(metadata) - set(kept):
        assert f"metadata.{name}: " in losses
    for name in ("raw", "client", "nan", "npnan", "list[2]"):
        assert f"metadata.{name}: " in losses
    assert set(metadata) - set(kept) <= {"raw", "client", "array", "flag"}
    assert SECRET not in traces.text() and caplog.records == []


@pytest.mark.parametrize("capture", ["full", "masked", "digest", "none"])
def test_phoenix_10021_a_document_of_20_megabytes(instrumented: Any, capture: str) -> None:
    traces = instrumented(capture=capture)
    text = "Ann Smith wrote to bob@example.com on Monday. " * 440_000
    assert len(text) > 20_000_000

    class Huge(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            return [Document(page_content=text, id="huge")]

    started = time.perf_counter()
    chain = Huge() | RunnableLambda(lambda ds: ds[0].page_content[5_000_000:5_000_400]) | Echo()
    assert chain.invoke("q").text.startswith("echo:")
    assert time.perf_counter() - started < 5
    [row] = traces.documents()
    assert row["chars"] == len(text)
    if capture == "full":
        assert row["content"] == text
    elif capture == "masked":
        assert row["content"].startswith("<PERSON_NAME> wrote to <EMAIL")
        left = re.search(r"\[(\d+) more characters left out\]$", row["content"])
        assert left is not None and len(text) - int(left[1]) >= 1_000_000
        assert len(row["content"]) < 2_000_000 and "example.com" not in row["content"]
    else:
        assert "content" not in row
    looked, *computed = traces.losses()
    assert looked == f"in_prompt: only 1000000 of the {len(text)} characters of document 0 looked for"
    assert all(loss.startswith("statistics") for loss in computed)
    assert bool(computed) == (capture in ("masked", "digest"))
