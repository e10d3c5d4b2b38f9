"""Models that are late, silent or wordless, and messages that are no text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from pipelines import PATHS, STREAMS, Echo, Hooked, Traces, call, lcel

import ragtrace


def said(span: Any) -> str:
    [answer] = json.loads(span.attributes["gen_ai.output.messages"])
    return str(answer["parts"][0]["content"])


@pytest.mark.parametrize("path", PATHS)
def test_models_that_time_out_fail_with_their_own_error(traces: Traces, path: str) -> None:
    class Late(Echo):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            raise TimeoutError("the model is late")

        _stream = Echo.__mro__[1]._stream  # type: ignore[attr-defined]

    with pytest.raises(TimeoutError, match="the model is late"):
        call(path, lcel(Late()), ["q"])
    for span in (*traces.stages("generation"), *traces.roots()):
        assert span.attributes["error.type"] == "TimeoutError" and span.status.status_code.name == "ERROR"


class Silent(Echo):
    """Streams nothing, or chunks without text."""

    chunks: list[Any] = []

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for chunk in self.chunks:
            yield ChatGenerationChunk(message=AIMessageChunk(**chunk))


@pytest.mark.parametrize("path", STREAMS)
def test_an_empty_stream_is_langchains_error(traces: Traces, path: str) -> None:
    with pytest.raises(Exception, match="No generation"):
        call(path, Silent(), ["q"])
    [generation] = traces.stages("generation")
    assert generation.status.status_code.name == "ERROR" and said(generation) == ""


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_of_tool_calls_has_no_text(traces: Traces, path: str) -> None:
    piece = {"name": "f", "args": '{"a": 1}', "id": "1", "index": 0, "type": "tool_call_chunk"}
    model = Silent(chunks=[{"content": "", "tool_call_chunks": [piece]}, {"content": []}])
    chunks = call(path, model, ["q"])
    assert sum(len(c.tool_call_chunks) for c in chunks) == 1
    assert said(traces.stages("generation")[0]) == ""


@pytest.mark.parametrize("path", PATHS)
def test_images_and_tool_calls_without_content_pass_untouched(traces: Traces, path: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    given = [
        HumanMessage([image]),
        HumanMessage([{"type": "text", "text": "what is it?"}, image]),
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
    ]
    model = Echo(seen=[])
    with ragtrace.defend(Hooked("prompt", lambda ms: ms)):
        call(path, model, [given])
    assert all(got is sent for got, sent in zip(model.seen[0], given, strict=True))
    rows = json.loads(traces.stages("generation")[0].attributes["gen_ai.input.messages"])
    assert [r["parts"][0]["content"] for r in rows] == ["", "what is it?", ""]
    assert "AAAA" not in traces.text()


def test_a_text_model_without_answers(traces: Traces) -> None:
    assert FakeListLLM(responses=[""]).invoke("") == ""
    assert said(traces.stages("generation")[0]) == ""
