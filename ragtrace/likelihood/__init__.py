"""Log-probabilities of the targets' own tokens, with and without what was retrieved: for attacks that need them.

The audit asks the app; this asks a language model afterwards. :func:`fill` reads from the store what the app's model
was given, scores each target as its continuation, and stores the token log-probabilities (view ``likelihoods``). From
these the attacks ``loss``, ``zlib_entropy``, ``min_k``, ``min_k_plus_plus``, ``neighbourhood`` and ``recall`` have
their scores.

>>> ragtrace.likelihood.fill(db, run_id)                                      # the embedded model    # doctest: +SKIP
>>> fill(db, run_id, TransformersScorer.load("microsoft/Phi-3-mini-4k-instruct"))                     # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragtrace.likelihood.scorer import Passage, Scorer, TokenLikelihoods

if TYPE_CHECKING:
    from ragtrace.likelihood.filling import Filled, fill
    from ragtrace.likelihood.hugging_face import TransformersScorer

__all__ = ["Filled", "Passage", "Scorer", "TokenLikelihoods", "TransformersScorer", "fill"]

_HOME = {"Filled": "filling", "TransformersScorer": "hugging_face", "fill": "filling"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ragtrace.likelihood' has no attribute {name!r}")
    value = getattr(import_module(f"ragtrace.likelihood.{_HOME[name]}"), name)
    globals()[name] = value
    return value
