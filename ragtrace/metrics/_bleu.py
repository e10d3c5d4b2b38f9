"""BLEU as ``sacrebleu.sentence_bleu`` defines it: 0 to 100, smoothed ("exp"), effective order."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


@cache
def _scorer() -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    # what sentence_bleu makes anew for every call
    return BLEU(effective_order=True)


@lru_cache(maxsize=65_536)  # several metrics read the same score
def bleu(hypothesis: str, reference: str) -> float:
    """BLEU of ``hypothesis`` against ``reference``; an empty hypothesis has 0."""
    return float(_scorer().sentence_score(hypothesis, [reference]).score)
