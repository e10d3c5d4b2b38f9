"""One file a defense: each exposes ``DEFENSE``; third parties use the entry point group ``ragtrace.defenses``.

Importing this package imports none of them: a class is loaded when its name is asked for, from the file of the same
name (``DPRetrieval`` from ``dp_retrieval.py``).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragtrace.plugins import scan

if TYPE_CHECKING:
    from ragtrace.defense import Defense
    from ragtrace.defenses.dp_retrieval import DPRetrieval
    from ragtrace.defenses.dp_top_k import DPTopK
    from ragtrace.defenses.entity_substitution import EntitySubstitution
    from ragtrace.defenses.local_dp_entities import LocalDPEntities
    from ragtrace.defenses.paraphrase import Paraphrase
    from ragtrace.defenses.presidio_mask import PresidioMask
    from ragtrace.defenses.prompt_hardening import PromptHardening
    from ragtrace.defenses.prompt_modifying import PromptModifying
    from ragtrace.defenses.query_block import QueryBlock
    from ragtrace.defenses.regex_mask import RegexMask
    from ragtrace.defenses.rerank import Rerank
    from ragtrace.defenses.similarity_threshold import SimilarityThreshold
    from ragtrace.defenses.sparse_vote import SparseVote
    from ragtrace.defenses.summarised_context import SummarisedContext

__all__ = [
    "DPRetrieval",
    "DPTopK",
    "EntitySubstitution",
    "LocalDPEntities",
    "Paraphrase",
    "PresidioMask",
    "PromptHardening",
    "PromptModifying",
    "QueryBlock",
    "RegexMask",
    "Rerank",
    "SimilarityThreshold",
    "SparseVote",
    "SummarisedContext",
    "load",
]


def load() -> dict[str, type[Defense]]:
    """Every defense class found, ours and third parties', by ``name``."""
    return scan(__name__, "DEFENSE", "ragtrace.defenses")


def _files() -> dict[str, str]:
    return {info.name.replace("_", ""): info.name for info in pkgutil.iter_modules(__path__) if info.name[0] != "_"}


def __getattr__(name: str) -> Any:
    module = None if name.startswith("_") or "_" in name else _files().get(name.lower())
    value = module and getattr(import_module(f"{__name__}.{module}"), name, None)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
