"""The candidates for an answer's first token: recorded for probes that may keep text, and for nothing else."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Some
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation, LLMResult
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LogProb
from llama_pipelines import ChatEcho
from llama_pipelines import instrumented as _llama  # noqa: F401 (a fixture)

import ragtrace
from ragtrace.defenses import RegexMask
from ragtrace.embedded import chat_model
from ragtrace.errors import UsageError
from ragtrace.record.first_token import first_token, ranked
from ragtrace.record.scope import probing
from ragtrace.types import Probe

PROBE = Probe("p", "rag_mia", "in it?", target_text="t", is_member=True)
TOPS = [{"token": "No", "logprob": -1.5}, {"token": "Yes", "logprob": -0.25}]
TOKENS = [
    {"token": "", "logprob": -0.1, "top_logprobs": []},
    {"token": " \n", "logprob": -0.1, "top_logprobs": [{"token": "Never", "logprob": -3.0}]},
    {"token": " Yes", "logprob": -2.5, "top_logprobs": TOPS},
    {"token": ".", "logprob": -0.5, "top_logprobs": [{"token": "!", "logprob": -1.0}]},
]
EXPECTED = [["Yes", -0.25], ["No", -1.5], [" Yes", -2.5]]


class Told(BaseChatModel):
    """Says yes, with what OpenAI's form tells of its tokens."""

    @property
    def _llm_type(self) -> str:
        return "told"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        message = AIMessage(" \n Yes.", response_metadata={"logprobs": {"content": TOKENS}})
        return ChatResult(generations=[ChatGeneration(message=message)])


class Streams(Told):
    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Iterator[Any]:
        yield ChatGenerationChunk(message=AIMessageChunk(""))
        for token in TOKENS:
            told = {"logprobs": {"content": [token]}}
            yield ChatGenerationChunk(message=AIMessageChunk(str(token["token"]), response_metadata=told))


class Completes(LLM):
    """A text model, with what the older form tells."""

    @property
    def _llm_type(self) -> str:
        return "completes"

    def _call(self, prompt: str, stop: Any = None, run_manager: Any = None, **_: Any) -> str:
        raise NotImplementedError

    def _generate(self, prompts: list[str], stop: Any = None, run_manager: Any = None, **_: Any) -> LLMResult:
        tops = [{t["token"]: t["logprob"] for t in token["top_logprobs"]} for token in TOKENS]  # type: ignore[attr-defined]
        columns = {"tokens": [t["token"] for t in TOKENS], "token_logprobs": [t["logprob"] for t in TOKENS]}
        info = {"logprobs": columns | {"top_logprobs": tops}}
        return LLMResult(generations=[[Generation(text=f"{p} Yes.", generation_info=info)] for p in prompts])


async def _drain(stream: Any) -> None:
    async for _ in stream:
        pass


WAYS = {
    "invoke": lambda: Told().invoke("q"),
    "ainvoke": lambda: asyncio.run(Told().ainvoke("q")),
    "stream": lambda: list(Streams().stream("q")),
    "astream": lambda: asyncio.run(_drain(Streams().astream("q"))),
    "text": lambda: Completes().invoke("q"),
}


def _recorded(traces: Any) -> list[Any]:
    return [json.loads(t) for s in traces.stages("generation") if (t := s.attributes.get("ragtrace.first_token"))]


@pytest.mark.parametrize("way", WAYS)
def test_langchain_records_it_for_a_probe_and_only_then(traces: Any, way: str) -> None:
    WAYS[way]()
    assert len(traces.stages("generation")) == 1 and _recorded(traces) == []
    with probing("run", "none", PROBE):
        WAYS[way]()
    assert _recorded(traces) == [EXPECTED]


@pytest.mark.parametrize("capture", ["digest", "none"])
def test_what_keeps_no_text_keeps_no_token(instrumented: Any, capture: str) -> None:
    traces = instrumented(capture=capture)
    with probing("run", "none", PROBE):
        Told().invoke("q")
    assert len(traces.stages("generation")) == 1 and "Yes" not in traces.text()
    assert not any("first_token" in name for s in traces.spans for name in s.attributes)


def test_masked_texts_have_masked_tokens(instrumented: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOKENS[2], "top_logprobs", [{"token": "a@b-corp.com", "logprob": -0.25}])
    traces = instrumented(capture="masked")
    with probing("run", "none", PROBE):
        Told().invoke("q")
    assert _recorded(traces) == [[["<EMAIL_REAL>", -0.25], [" Yes", -2.5]]]


def test_a_response_defense_that_changes_the_answer_does_not_change_it(traces: Any) -> None:
    class Refuses(RegexMask):
        def on_response(self, query: str, documents: Any, response: str) -> str:
            return "I cannot say."

    with ragtrace.defend(Refuses()), probing("run", "mask", PROBE):
        assert Told().invoke("q").content == "I cannot say."
        assert "".join(str(c.content) for c in Streams().stream("q")) == "I cannot say."
    assert _recorded(traces) == [EXPECTED, EXPECTED]


class Hears(ChatEcho):
    """Says what it is told to, for LlamaIndex."""

    answer: Any = None
    chunks: Any = None

    def chat(self, messages: Any, **_: Any) -> Any:
        return self.answer

    def stream_chat(self, messages: Any, **_: Any) -> Any:
        return iter(self.chunks)


def _said(delta: str | None = None, **more: Any) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role="assistant", content="Yes."), delta=delta, **more)


def _objects() -> Any:
    tokens = [Some(**t | {"top_logprobs": [Some(**top) for top in t["top_logprobs"]]}) for t in TOKENS]  # type: ignore[attr-defined]
    return Some(choices=[Some(logprobs=Some(content=tokens))])


OWN = [
    [LogProb(token="\n", logprob=-0.1), LogProb(token="Never", logprob=-3.0)],
    [LogProb(token=str(t), logprob=float(p)) for t, p in EXPECTED],
]


@pytest.mark.parametrize(
    "more",
    [
        {"raw": {"choices": [{"logprobs": {"content": TOKENS}}]}},
        {"raw": _objects()},
        {"logprobs": OWN},
    ],
    ids=["mapping", "objects", "own form"],
)
def test_llama_index_records_it_for_a_probe_and_only_then(llama_instrumented: Any, more: dict[str, Any]) -> None:
    traces = llama_instrumented()
    Hears(answer=_said(**more)).chat([])
    assert len(traces.stages("generation")) == 1 and _recorded(traces) == []
    with probing("run", "none", PROBE):
        Hears(answer=_said(**more)).chat([])
    assert _recorded(traces) == [EXPECTED]


def test_llama_index_records_it_of_a_stream(llama_instrumented: Any) -> None:
    traces = llama_instrumented()
    chunks = [_said(str(t["token"]), raw={"choices": [{"logprobs": {"content": [t]}}]}) for t in TOKENS]
    with probing("run", "none", PROBE):
        list(Hears(chunks=[_said(""), *chunks]).stream_chat([]))
    assert _recorded(traces) == [EXPECTED]


def test_a_pipeline_without_a_framework_tells_it_itself(tmp_path: Path) -> None:
    def ask() -> None:
        with ragtrace.generation("q") as stage:
            stage.measured(first_token=[("No", -1.5), ("Yes", -0.25), ("no", math.nan)])
            stage.response("Yes.")

    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full")
    try:
        ask()
        with probing("run", "none", PROBE):
            ask()
    finally:
        tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        found = [token for (token,) in db.execute("SELECT first_token FROM generations ORDER BY start_time").fetchall()]
    assert found[0] is None and json.loads(found[1]) == EXPECTED[:2]


def test_odd_records_of_providers_tell_nothing(traces: Any) -> None:
    odd: list[Any] = [
        None, 3, "x", {}, {"content": None}, {"content": [None, 3, {"token": 5}]}, {"content": [{"token": "a"}]},
        {"tokens": ["a"], "token_logprobs": [None]}, {"tokens": 3}, {"content": [{"token": "a", "logprob": math.nan}]},
        {"content": [{"token": "a", "logprob": -math.inf, "top_logprobs": 4}]},
    ]  # fmt: skip
    assert [first_token(found) for found in odd] == [[]] * len(odd)
    assert first_token({"content": [{"token": "a", "logprob": -1, "top_logprobs": [None, {"token": "b"}]}]}) == [
        ("a", -1.0)
    ]
    assert first_token({"tokens": ["", "b"], "token_logprobs": [-1.0, -2.0]}) == [("b", -2.0)]


@given(st.lists(st.tuples(st.text(max_size=2), st.floats(-50, 0)), max_size=60))
def test_candidates_are_ranked_once_each_and_at_most_twenty(pairs: list[tuple[str, float]]) -> None:
    found = ranked(pairs)
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)
    assert len(found) == min(20, len({t for t, _ in pairs})) == len(dict(found))
    assert all(p == max(q for u, q in pairs if u == t) for t, p in found)


def test_the_embedded_client_asks_for_as_many_candidates_as_it_is_told() -> None:
    assert chat_model("http://localhost:1/v1").top_logprobs == 1
    assert chat_model("http://localhost:1/v1", candidates=20).top_logprobs == 20
    for wrong in (-1, 21):
        with pytest.raises(UsageError, match=f"candidates is {wrong}"):
            chat_model("http://localhost:1/v1", candidates=wrong)
