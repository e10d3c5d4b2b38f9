"""The app's own functions under ``observe``: unchanged for the app, and read for what they change."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from pipelines import Echo, Shelf

import ragtrace
from ragtrace.defense import declared
from ragtrace.errors import UsageError


def run(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls ``function`` inside a request."""
    return RunnableLambda(lambda _: function(*args, **kwargs)).invoke(None)


def flags(effect: dict[str, Any]) -> str:
    return " ".join(f for f in ("ids", "order", "scores", "text") if effect.get(f"{f}_changed"))


def test_a_text_function(traces: Any) -> None:
    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str, *, sign: str = "*") -> str:
        """Masks."""
        return text.replace("bob", sign)

    assert declared() == {"house-mask": ("response",)}
    assert mask.__name__ == "mask" and mask.__doc__ == "Masks."
    assert run(mask, "hi bob", sign="#") == "hi #"
    [effect] = traces.effects()
    assert (effect["defense"], effect["hook"], effect["status"]) == ("house-mask", "response", "changed")
    assert (effect["chars_before"], effect["chars_after"]) == (6, 4)
    [root] = traces.roots()
    assert json.loads(root.attributes["ragtrace.declared"]) == {"house-mask": ["response"]}


def test_an_async_function_and_a_method(traces: Any) -> None:
    class Guard:
        text = "an attribute that is no argument"

        @ragtrace.observe(hook="query")
        async def guard(self, query: str) -> str:
            return query.upper()

        @ragtrace.observe(hook="query", name="same")
        def same(self, query: str) -> str:
            return query

    async def main() -> Any:
        return await RunnableLambda(Guard().guard).ainvoke("q")

    assert asyncio.run(main()) == "Q"
    assert run(Guard().same, "q") == "q"
    assert [(e["defense"], e["status"], e["chars_before"]) for e in traces.effects()] == [
        ("guard", "changed", 1),
        ("same", "unchanged", 1),
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_exceptions_pass_and_are_recorded(traces: Any, is_async: bool) -> None:
    error = KeyError("mine")

    @ragtrace.observe(hook="content")
    def fails(documents: list[str]) -> list[str]:
        raise error

    @ragtrace.observe(hook="content", name="fails")
    async def afails(documents: list[str]) -> list[str]:
        raise error

    with pytest.raises(KeyError) as raised:
        asyncio.run(RunnableLambda(afails).ainvoke(["a"])) if is_async else run(fails, ["a"])
    assert raised.value is error
    [effect] = traces.effects()
    assert (effect["defense"], effect["hook"], effect["status"], effect["error"]) == (
        "fails",
        "content",
        "error",
        "KeyError",
    )


def docs(*texts: str, **more: Any) -> list[Document]:
    return [Document(page_content=t, **more) for t in texts]


def in_place(documents: list[Any]) -> list[Any]:
    documents[0].page_content = "X"
    return documents


@pytest.mark.parametrize(
    ("given", "act", "wanted"),
    [
        (docs("a", "b"), lambda ds: ds, ""),
        (docs("a", "b"), in_place, "text"),
        (docs("a", "b"), lambda ds: docs("A", "b"), "text"),
        (docs("a", "b"), lambda ds: ds[::-1], "order"),
        (docs("a", "b"), lambda ds: ds[:1], "ids"),
        (docs("a", "b"), lambda ds: docs("b", "a"), "order"),
        (docs("a", "b"), lambda ds: [*ds, *docs("c")], "ids text"),
        ([Document(page_content="a", id="1")], lambda ds: [Document(page_content="b", id="1")], "text"),
        ([Document(page_content="a", id="1")], lambda ds: [Document(page_content="a", id="2")], "ids"),
        (docs("a", metadata={"score": 0.1}), lambda ds: docs("a", metadata={"score": 0.2}), "scores"),
        (["a", "b"], lambda ds: ["a", "B"], "text"),
        (["a", "b"], lambda ds: ("b", "a"), "order"),
        ([], lambda ds: [], ""),
        ([ragtrace.Document("a", "1", 0.5)], lambda ds: [ragtrace.Document("a", "1", 0.9)], "scores"),
    ],
)
def test_documents_of_any_kind(traces: Any, given: Any, act: Any, wanted: str) -> None:
    assert run(ragtrace.observe(hook="content", name="d")(act), given) is not None
    [effect] = traces.effects()
    assert flags(effect) == wanted
    assert effect["status"] == ("changed" if wanted else "unchanged")


def test_messages(traces: Any) -> None:
    @ragtrace.observe(hook="prompt")
    def harden(prompt: Any) -> Any:
        return [HumanMessage("be careful"), *prompt]

    run(harden, [HumanMessage("hi")])
    run(ragtrace.observe(hook="prompt", name="text")(str.upper), "hi")
    run(ragtrace.observe(hook="prompt", name="mixed")(lambda ms: ms[0].text + "!"), [HumanMessage("hi")])
    run(ragtrace.observe(hook="response", name="message")(lambda m: AIMessage(m.text + "!")), AIMessage("hi"))
    assert [(e["status"], e["chars_before"], e["chars_after"]) for e in traces.effects()] == [
        ("changed", 2, 12), ("changed", 2, 2), ("changed", 2, 3), ("changed", 2, 3),
    ]  # fmt: skip


def test_which_argument(traces: Any) -> None:
    @ragtrace.observe(hook="response", arg="answer")
    def check(query: str, answer: str = "none") -> str:
        return answer

    run(check, "q", "a")
    run(check, "q", answer="b")
    run(check, "q")
    assert [e["status"] for e in traces.effects()] == ["unchanged", "unchanged"]
    with pytest.raises(UsageError, match=r"observe\(arg='text'\): check has no such parameter; it has query, answer"):
        ragtrace.observe(hook="response", arg="text")(check)
    with pytest.raises(UsageError, match="unknown hook 'answer'; expected one of query, retrieval"):
        ragtrace.observe(hook="answer")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing"):
        run(check)


def test_outside_any_request(traces: Any, caplog: Any) -> None:
    mask = ragtrace.observe(hook="response", name="m")(str.upper)
    assert mask("a") == "A"
    assert "ragtrace" not in caplog.text


def test_inside_a_chain_it_is_part_of_the_trace(traces: Any) -> None:
    @ragtrace.observe(hook="content", name="short")
    def short(documents: Any) -> Any:
        return documents[:1]

    (Shelf() | RunnableLambda(short) | RunnableLambda(lambda ds: ds[0].page_content) | Echo()).batch(["q1", "q2"])
    assert [(e["defense"], flags(e)) for e in traces.effects()] == [("short", "ids")] * 2
    assert len(traces.roots()) == 2
