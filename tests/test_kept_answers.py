"""The generation cache's file: answers of chat models between processes, log-probabilities included."""

from __future__ import annotations

import stat
from pathlib import Path

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from ragtrace.embedded import GenerationCache

MODEL = '{"base_url": "http://127.0.0.1:%d/v1", "model": "m", "temperature": 0}'


def _answer(text: str) -> ChatGeneration:
    told = {"logprobs": {"content": [{"token": "a", "logprob": -0.25}]}, "finish_reason": "stop"}
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    message = AIMessage(text, response_metadata=told, usage_metadata=usage)
    return ChatGeneration(message=message, generation_info={"logprobs": told["logprobs"]})


def test_another_process_with_another_port_finds_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "answers.sqlite"
    first = GenerationCache(file=file)
    first.update("prompt", MODEL % 4001, [_answer("one")])
    second = GenerationCache(file=file)
    assert second.lookup("prompt", MODEL % 4002) == [_answer("one")]
    assert second.lookup("prompt", MODEL.replace("0}", "1}") % 4001) is None
    assert (second.hits, second.kept_hits, second.misses) == (1, 1, 1)
    second.lookup("prompt", MODEL % 4003)
    assert (second.hits, second.kept_hits) == (2, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_used_is_as_good_as_none(tmp_path: Path) -> None:
    broken = tmp_path / "answers.sqlite"
    broken.write_bytes(b"no database" * 100)
    for file in (broken, tmp_path):
        cache = GenerationCache(file=file)
        cache.update("prompt", "model", [_answer("one")])
        assert cache.lookup("prompt", "model") == [_answer("one")]
        assert cache.kept_hits == 0
    assert broken.read_bytes().startswith(b"no database")


def test_texts_of_plain_models_stay_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "answers.sqlite"
    GenerationCache(file=file).update("prompt", "model", [Generation(text="one")])
    assert GenerationCache(file=file).lookup("prompt", "model") is None
