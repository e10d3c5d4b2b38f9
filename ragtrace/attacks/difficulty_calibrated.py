"""Difficulty-calibrated ratio: S²MIA's similarity, against what it is with the target indexed and without it.

How like its target an answer is depends on the target: some texts are echoed by any answer, others by none. Two
reference indexes, one with the target and one without, tell both ends for each target. They are arms of the run
(``ragtrace.controls.REFERENCE``), so no second index has to be built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragtrace.attacks._membership import MembershipAttack
from ragtrace.attacks.base import Card
from ragtrace.attacks.s2mia import INSTRUCTION, S2MIA, Split

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    import duckdb

    from ragtrace.metrics._read import Target
    from ragtrace.types import Corpus, Document

WITH, WITHOUT = "with_target", "without_target"
"""The arms of ``ragtrace.controls.REFERENCE``."""
SMOOTHING = 1.0
"""BLEU points (of 100) below which a difference decides little."""


class DifficultyCalibrated(MembershipAttack):
    """Where the observed similarity lies between the two references: 1 at that with the target, 0 at that without.

    :param fraction: and ``split``: as in :class:`ragtrace.attacks.s2mia.S2MIA`, whose probes these are.
    """

    name = "difficulty_calibrated"
    asks = "s2mia"
    no_score = (
        f"scored are arms that have the arms {WITH!r} and {WITHOUT!r} beside them (ragtrace.controls.REFERENCE), with "
        "readable answers to s2mia's probes; not these two themselves"
    )
    card = Card(
        paper="Difficulty calibration (Watson et al., arXiv 2111.08440) applied to S²MIA, arXiv 2406.19234",
        prompt="S²MIA's: the target's question or beginning, with the request for the best fitting passage.",
        queries="1, shared with s2mia, and the same in each of the two reference arms",
        access="own index",
        deviations=(
            "The calibration of losses by reference models is carried over to BLEU (answer against the whole target) "
            "by reference indexes: the pipeline's own, with the target put first in what was retrieved and with it "
            "taken out. The ratio (b - without) ÷ (with - without) is taken as |b - without| ÷ (|b - without| + |b - "
            "with|), smoothed by 1 BLEU point: the same between the references, bounded, and ½ where they are equal. "
            "The references use the defenses of their own arms (none), whatever the arm that is scored."
        ),
    )

    def __init__(self, count: int | None = None, fraction: float = 0.5, split: Split = "auto") -> None:
        super().__init__(count)
        self._s2mia = S2MIA(count, fraction, split)

    def queries(self, target: Document, rng: random.Random, corpus: Corpus) -> list[str]:
        """S²MIA's query."""
        return [INSTRUCTION.format(self._s2mia.parts(target)[0].strip())]

    def parameters(self, db: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> dict[str, Any]:
        """What the score depends on."""
        return {"smoothing": SMOOTHING}

    def score(self, target: Target, arms: Mapping[str, Target]) -> float | None:
        """The calibrated ratio, in (0, 1)."""
        return self.score_all([(target, arms)])[0]

    def score_all(self, targets: Sequence[tuple[Target, Mapping[str, Target]]]) -> list[float | None]:
        """The similarities of all answers in one batch."""
        from ragtrace.metrics._bleu import bleu_all

        trios = [_answers(target, arms) for target, arms in targets]
        pairs = [(said, t.text) for (t, _), trio in zip(targets, trios, strict=True) for said in trio or ()]
        likeness = iter(bleu_all(pairs).tolist()) if pairs else iter(())
        return [ratio(next(likeness), next(likeness), next(likeness)) if trio else None for trio in trios]


def _answers(target: Target, arms: Mapping[str, Target]) -> list[str] | None:
    """What was answered in the arm itself, with the target and without it; ``None`` where one of them is missing."""
    if target.arm in (WITH, WITHOUT) or not {WITH, WITHOUT} <= arms.keys():
        return None
    said = [t.replies[0].response for t in (target, arms[WITH], arms[WITHOUT])]
    kept = [text for text in said if text is not None]
    return kept if len(kept) == len(said) else None


def ratio(observed: float, with_target: float, without_target: float) -> float:
    """How much nearer to ``with_target`` than to ``without_target``, in (0, 1); ½ where they cannot be told apart."""
    from_with, from_without = abs(observed - with_target), abs(observed - without_target)
    return (from_without + SMOOTHING) / (from_with + from_without + 2 * SMOOTHING)


ATTACK = DifficultyCalibrated()
