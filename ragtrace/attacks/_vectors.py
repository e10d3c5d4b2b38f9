"""Similarity of texts by an embedding function of the user's, each text embedded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ragtrace.errors import UsageError

if TYPE_CHECKING:
    from ragtrace.stats.results import Floats

Embed = Callable[[list[str]], Any]
"""Texts → one vector each."""


def check_embed(attack: str, embed: Any) -> Embed | None:
    """The function, or ``None`` for the default (all-MiniLM-L6-v2).

    :raises UsageError: it cannot be called.
    """
    if embed is not None and not callable(embed):
        raise UsageError(f"{attack}(embed={embed!r}); expected a function from a list of texts to a vector for each")
    return embed  # type: ignore[no-any-return]


class Space:
    """Cosine similarities. A vector of zeros is like nothing.

    :raises UsageError: where the default is to be used and is not installed.
    """

    def __init__(self, embed: Embed | None) -> None:
        if embed is None:
            from ragtrace.metrics import _embed  # loads a model on first use

            if why := _embed.missing():
                raise UsageError(why)
            embed = _embed.embed
        self._embed: Embed = embed
        self._known: dict[str, Floats] = {}

    def vectors(self, texts: Iterable[str]) -> Floats:
        """(n, d) vectors of length 1 (or 0), in order.

        :raises UsageError: for anything but one finite vector a text.
        """
        import numpy as np

        wanted = list(texts)
        new = [text for text in dict.fromkeys(wanted) if text not in self._known]
        if new:
            found = np.asarray(self._embed(new), dtype=np.float64)
            if found.ndim != 2 or len(found) != len(new) or not np.isfinite(found).all():
                raise UsageError(
                    f"embed returned an array of shape {found.shape} for {len(new)} texts; "
                    f"expected ({len(new)}, dimensions), all finite"
                )
            norms = np.linalg.norm(found, axis=1, keepdims=True)
            self._known.update(zip(new, found / np.where(norms > 0, norms, 1.0), strict=True))
        return np.array([self._known[text] for text in wanted])

    def between(self, texts: Sequence[str], others: Sequence[str]) -> Floats:
        """(n, m) how like each of the others each text is."""
        import numpy as np

        if not texts or not others:
            return np.zeros((len(texts), len(others)))
        return np.asarray(self.vectors(texts) @ self.vectors(others).T, dtype=np.float64)

    def like(self, text: str, others: Sequence[str]) -> Floats:
        """(m,) how like ``text`` each of the others is."""
        import numpy as np

        return np.asarray(self.between([text], others)[0], dtype=np.float64)

    def nearest(self, text: str, others: Sequence[str]) -> float:
        """The largest of these likenesses; -1 without others."""
        return float(self.like(text, others).max(initial=-1.0))

    def to_mean(self, texts: Sequence[str], of: Sequence[str]) -> Floats:
        """(n,) how like the mean direction of ``of`` each text is."""
        import numpy as np

        mean = self.vectors(of).mean(axis=0)
        norm = np.linalg.norm(mean)
        return np.asarray(self.vectors(texts) @ (mean / (norm or 1.0)), dtype=np.float64)
