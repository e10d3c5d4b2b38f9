"""OpenAI's protocol through LlamaIndex's own client: every method of it is one model call, however it is made."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from llama_pipelines import (
    CHAT,
    COMPLETE,
    STREAMS,
    call,
    instrumented,  # noqa: F401
    recorded,  # noqa: F401
)
from pipelines import Hooked

import ragtrace

TOKENS = ("the", " secret")
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class Server:
    """Answers as an OpenAI-compatible server does, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        chat = request.url.path.endswith("/chat/completions")
        if not body.get("stream"):
            return httpx.Response(200, json=self._said(chat, "message", list(TOKENS), "stop") | {"usage": USAGE})
        events = [self._said(chat, "delta", [token], None) for token in TOKENS]
        events.append(self._said(chat, "delta", [], "stop"))
        events.append(self._said(chat, "delta", [], None) | {"choices": [], "usage": USAGE} if chat else events.pop())
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})

    def _said(self, chat: bool, part: str, tokens: list[str], reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if chat:
            choice[part] = {"role": "assistant", "content": "".join(tokens)}
            content = [{"token": t, "logprob": -0.5, "top_logprobs": [], "bytes": None} for t in tokens]
            choice["logprobs"] = {"content": content}
        else:
            choice["text"] = "".join(tokens)
            choice["logprobs"] = None
            if part == "message":
                choice["logprobs"] = {
                    "tokens": tokens,
                    "token_logprobs": [-0.5] * len(tokens),
                    "top_logprobs": [{}, {}],
                }
        return {"id": "1", "object": "x", "created": 1, "model": "m-2", "choices": [choice]}

    def client(self, is_chat_model: bool) -> Any:
        transport = httpx.MockTransport(self)
        return OpenAILike(
            model="m-1",
            api_base="http://localhost/v1",
            api_key="k",
            is_chat_model=is_chat_model,
            http_client=httpx.Client(transport=transport),
            async_http_client=httpx.AsyncClient(transport=transport),
        )


@pytest.mark.parametrize("is_chat_model", [True, False])
@pytest.mark.parametrize("methods", [CHAT, COMPLETE])
@pytest.mark.parametrize("path", ["invoke", "ainvoke", *STREAMS])
def test_every_method_is_one_model_call(llama_traces: Any, path: str, methods: Any, is_chat_model: bool) -> None:
    server = Server()
    given = "q" if methods is COMPLETE else [ChatMessage(role="user", content="q")]

    def ask() -> list[Any]:
        llama_traces.clear()
        return call(path, methods, server.client(is_chat_model), [given])

    plain = ask()
    assert "".join(r.delta or "" for r in plain if path in STREAMS) in ("", "the secret")
    assert str(plain[-1]).endswith("the secret")
    [generation], [root] = llama_traces.stages("generation"), llama_traces.roots()
    told = dict(generation.attributes)
    assert (told["gen_ai.request.model"], told["gen_ai.response.model"], told["ragtrace.path"]) == ("m-1", "m-2", path)
    if is_chat_model or path not in STREAMS:
        assert (told["ragtrace.mean_logprob"], told["ragtrace.logprob_tokens"]) == (-0.5, 2)
        assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (3, 2)
        assert json.loads(told["gen_ai.output.messages"])[0]["finish_reason"] == "stop"
    assert root.name == "pipeline OpenAILike"
    with ragtrace.defend(Hooked("response", lambda r: r.replace("secret", "[hidden]"))):
        [defended] = ask()
    assert str(defended).endswith("the [hidden]") and "secret" not in repr(defended)
    assert [e["status"] for e in llama_traces.effects()] == ["changed"]
    with ragtrace.defend(Hooked("prompt", lambda ms: [ragtrace.Message("user", "p")])):
        ask()
    assert "q" not in json.dumps(server.asked[-1].get("messages") or server.asked[-1]["prompt"])
    assert len(server.asked) == 3
    assert [bool(a.get("stream")) for a in server.asked] == [path in STREAMS] * 3


def test_the_servers_errors_are_the_apps(llama_instrumented: Any) -> None:
    import openai

    transport = httpx.MockTransport(lambda request: httpx.Response(400, json={"error": {"message": "no such model"}}))

    def model() -> Any:
        clients = {"http_client": httpx.Client(transport=transport)}
        clients["async_http_client"] = httpx.AsyncClient(transport=transport)  # type: ignore[assignment]
        return OpenAILike(model="m", api_base="http://localhost/v1", api_key="k", is_chat_model=True, **clients)

    traces = llama_instrumented()
    for ask in (
        lambda: model().complete("q"),
        lambda: asyncio.run(model().acomplete("q")),
        lambda: call("stream", COMPLETE, model(), ["q"]),
        lambda: call("astream", COMPLETE, model(), ["q"]),
    ):
        traces.clear()
        with pytest.raises(openai.BadRequestError, match="no such model"):
            ask()
        assert [s.attributes["error.type"] for s in traces.spans] == ["BadRequestError"] * 2
