"""What S²MIA compares: how near a generated text comes to its target, and how certain the model was of it.

Every feature is a stored score in its own unit: ``bleu`` (0 to 100), ``cosine`` (-1 to 1), ``euclidean`` (a distance)
and ``inner_product`` of sentence vectors (``ragtrace.metrics._embed``), each against the whole target or, with the
suffix ``_remaining``, against what was not sent; ``perplexity`` of the generated text (1 or more).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ragtrace.metrics._read import answers, score

if TYPE_CHECKING:
    import duckdb

    from ragtrace.metrics._read import Answer
    from ragtrace.metrics.base import Score
    from ragtrace.stats.results import Floats

Reference = Literal["full", "remaining"]
Similarity = Literal["bleu", "cosine", "euclidean", "inner_product"]
ATTACK = "s2mia"


def remaining(target: str, query: str) -> str:
    """What of ``target`` was not sent: all after its longest beginning that ``query`` holds."""
    low, high = 0, len(target)
    while low < high:  # a beginning of what the query holds is held too, so bisection finds the longest
        middle = (low + high + 1) // 2
        low, high = (middle, high) if target[:middle] in query else (low, middle - 1)
    return target[low:]


class Feature:
    """A stored score of every target; ``sign`` is -1 where members are expected to score low."""

    by_target = True
    needs: str | None = None
    """What is not installed and therefore leaves all scores out."""

    def __init__(self, name: str, sign: int) -> None:
        self.name, self.sign = name, sign

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """One score for every target and arm; ``None`` where an answer gives none."""
        found = answers(db, run_id, ATTACK)
        return [
            score(run_id, ATTACK, self.name, answer, value)
            for answer, value in zip(found, self.measure(found), strict=True)
        ]

    def measure(self, answers: list[Answer]) -> list[float | None]:
        """The feature of each answer."""
        return [answer.perplexity for answer in answers]


class Nearness(Feature):
    """The similarity of the generated text to the target or to its remaining part, for all answers at once."""

    def __init__(self, similarity: Similarity = "bleu", reference: Reference = "full") -> None:
        super().__init__(
            similarity if reference == "full" else f"{similarity}_remaining", -1 if similarity == "euclidean" else 1
        )
        self.similarity, self.reference = similarity, reference

    @property
    def needs(self) -> str | None:  # type: ignore[override]
        from ragtrace.metrics._embed import missing

        return None if self.similarity == "bleu" else missing()

    def measure(self, answers: list[Answer]) -> list[float | None]:
        if self.needs:
            return [None] * len(answers)
        parts: dict[tuple[str, str], str] = {}  # the same in every arm
        pairs = [self._pair(answer, parts) for answer in answers]
        values = iter(self._values([pair for pair in pairs if pair]).tolist())
        return [next(values) if pair else None for pair in pairs]

    def _pair(self, answer: Answer, parts: dict[tuple[str, str], str]) -> tuple[str, str] | None:
        """(generated text, what it is compared with), or ``None`` where one of them is missing."""
        if answer.response is None or answer.target_text is None:
            return None
        text = answer.target_text
        if self.reference == "remaining":
            key = (text, answer.query)
            if key not in parts:
                parts[key] = remaining(*key)
            text = parts[key]
        if not text.strip() or not (self.similarity == "bleu" or answer.response.strip()):
            return None  # BLEU defines that of an empty text as 0; an empty text has no meaning to compare
        return answer.response, text

    def _values(self, pairs: list[tuple[str, str]]) -> Floats:
        import numpy as np

        if self.similarity == "bleu":
            from ragtrace.metrics._bleu import bleu_all

            return bleu_all(pairs)
        from ragtrace.metrics._embed import embed

        generated, target = embed([g for g, _ in pairs]), embed([t for _, t in pairs])
        if self.similarity == "euclidean":
            return np.asarray(np.linalg.norm(generated - target, axis=1), dtype=np.float64)
        product = np.einsum("nd,nd->n", generated, target)
        if self.similarity == "inner_product":
            return np.asarray(product, dtype=np.float64)
        lengths = np.linalg.norm(generated, axis=1) * np.linalg.norm(target, axis=1)
        return np.asarray(product / lengths, dtype=np.float64)


PERPLEXITY = Feature("perplexity", -1)
