"""The corpus's own questions, asked plainly: no attack, but what says whether a defense leaves the answers right."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ragtrace.attacks.base import Card
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragtrace.types import Corpus, Document


class QuestionAnswering:
    """The questions of members, with the answers that count as right in ``detail["answers"]``.

    A document has them in its metadata: ``question``, and ``answers`` (a list) or ``answer``.

    :param count: questions, or as many as the members have; ``None`` asks all of them.
    """

    name = "qa"
    card = Card(
        paper="none: the utility beside S²MIA's defenses (arXiv 2406.19234, Table 4, which reports privacy only)",
        prompt="The question of a member document, as it stands in the corpus.",
        queries="none are aimed at finding out about a target; 20 questions by default in all",
        access="text",
        deviations="Not a membership attack. Only members are asked about: for the others no right answer is indexed.",
    )

    def __init__(self, count: int | None = 20) -> None:
        if count is not None and count < 1:
            raise UsageError(f"count is {count}; expected at least 1 question, or None for all")
        self.count = count

    def probes(self, corpus: Corpus, seed: int) -> Iterator[Probe]:
        """One probe a question.

        :raises InputError: for a corpus whose members have no questions with answers.
        """
        known = [(d, question, right) for d in corpus.members for question, right in _asked(d)]
        if not known:
            raise InputError(
                f"corpus {corpus.name!r} has no questions; expected members with 'question' and 'answer' or 'answers' "
                "in their metadata, as those of nq, triviaqa, pubmedqa and Table"
            )
        rng = random.Random(f"{self.name} {seed}")  # noqa: S311 (seeded on purpose)
        count = len(known) if self.count is None else min(self.count, len(known))
        for i, (document, question, right) in enumerate(rng.sample(known, count), 1):
            yield Probe(
                f"{self.name}-{seed}-{i:04d}",
                self.name,
                question,
                corpus.name,
                seed,
                target_id=document.id,
                target_text=document.content,
                detail={"answers": right},
            )


def _asked(document: Document) -> Iterator[tuple[str, list[str]]]:
    question, several = document.metadata.get("question"), document.metadata.get("answers")
    given = several if isinstance(several, list | tuple) else [document.metadata.get("answer")]
    right = [answer for answer in given if isinstance(answer, str) and answer.strip()]
    if isinstance(question, str) and question.strip() and right:
        yield question, right


ATTACK = QuestionAnswering()
