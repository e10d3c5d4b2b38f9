"""A model that repeats its prompt, in the place of the papers' models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ragtrace import models, retrievers
from ragtrace.embedded import GenerationCache
from ragtrace.papers.s2mia import conduct


class Parrot(BaseChatModel):
    """Repeats what it is given, with log-probabilities; a prompt of one document's text is more certain."""

    stop_after: int = 10**9
    calls: list[int] = []

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.calls.append(1)
        if len(self.calls) > self.stop_after:
            raise KeyboardInterrupt
        text = str(messages[-1].text)
        told = {"logprobs": {"content": [{"token": w, "logprob": -len(w) / 9} for w in text.split()]}}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, response_metadata=told))])


def in_place(monkeypatch: pytest.MonkeyPatch) -> Parrot:
    """The parrot as what ``ragtrace.models.chat`` gives, and vectors without a model."""
    model = Parrot(cache=GenerationCache(), calls=[])

    @contextmanager
    def chat(name: str, **_: Any) -> Iterator[models.Chat]:
        yield models.Chat(model, "parrot", model.cache)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "chat", chat)
    for module in (retrievers, conduct):
        monkeypatch.setattr(module, "embedder", lambda name: DeterministicFakeEmbedding(size=16))
    return model
