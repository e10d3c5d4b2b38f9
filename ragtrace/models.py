"""A chat model by name, as a pipeline under audit would hold it: greedy, with the log-probabilities of its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace import embedded
from ragtrace.errors import UsageError

if TYPE_CHECKING:
    from ragtrace.embedded.caching import GenerationCache

EMBEDDED = "embedded"
FORMS = "'embedded', 'provider:model' (LangChain's init_chat_model), or 'URL#model' of an OpenAI-compatible server"


class Chat(NamedTuple):
    """A LangChain chat model, its name in tables, and the cache before it."""

    model: Any
    name: str
    cache: GenerationCache


@contextmanager
def chat(name: str = EMBEDDED, *, max_tokens: int = 128, candidates: int = 20) -> Iterator[Chat]:
    """The model while it is needed; equal prompts are generated once, also across processes.

    :param candidates: alternatives asked for at each token (``top_logprobs``); some servers refuse many, 1 or more.
    :raises UsageError: a name of another form, or a provider's package that is not installed.
    """
    if name == EMBEDDED:
        cache = embedded.GenerationCache(file=embedded.cache_folder() / f"generations-{embedded.SHA256[:12]}.sqlite")
        with embedded.serve() as url:
            model = embedded.chat_model(url, cache=cache, max_tokens=max_tokens, candidates=candidates)
            yield Chat(model, embedded.MODEL, cache)
        return
    label = name.rpartition("#")[2] if name.startswith(("http://", "https://")) else name
    file = "".join(c if c.isalnum() else "-" for c in name)
    cache = embedded.GenerationCache(file=embedded.cache_folder() / f"generations-{file}.sqlite")
    yield Chat(_other(name, cache, max_tokens, candidates), label, cache)


def _other(name: str, cache: GenerationCache, max_tokens: int, candidates: int) -> Any:
    told: dict[str, Any] = {"temperature": 0, "max_tokens": max_tokens, "cache": cache}
    if name.startswith(("http://", "https://")):
        url, _, model = name.rpartition("#")
        if not url or not model:
            raise UsageError(f"model {name!r} names no model; expected URL#model, as http://localhost:8000/v1#phi-3")
        return embedded.chat_model(url, cache=cache, max_tokens=max_tokens, model=model, candidates=candidates)
    if ":" not in name:
        raise UsageError(f"model {name!r}; expected {FORMS}")
    from langchain.chat_models import init_chat_model

    if name.partition(":")[0] in ("openai", "azure_openai"):
        told |= {"logprobs": True, "top_logprobs": candidates}
    try:
        return init_chat_model(name, **told)
    except (ImportError, ValueError) as error:
        raise UsageError(f"model {name!r} cannot be used: {error}; expected {FORMS}") from error
