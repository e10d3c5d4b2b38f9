"""S²MIA (arXiv 2406.19234): membership by the similarity of the generated text to the target.

A target x is split, x = query part ⊕ remaining part (section 3.1), and the query part is sent, one query a
target. If x is indexed, the text generated from it resembles x (Equation 4) and has a low perplexity; both are
read from the trace by ``ragtrace.metrics.s2mia``. The paper splits questions from answers; a text without a
question is split by position. It leaves its prompt out: the instruction is worded by us.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from ragtrace.attacks._targets import check_count, draw
from ragtrace.attacks.base import Card
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ragtrace.types import Corpus, Document

INSTRUCTION = (
    "Below is the beginning of a text. Reply with the passage of the context that fits it best, "
    "briefly and without any introduction.\n\n{}"
)
Split = Literal["auto", "question", "position"]


def split(text: str, fraction: float = 0.5) -> tuple[str, str]:
    """(query part, remaining part), whose concatenation is ``text``: the first ``fraction`` of the words, and the rest.

    Both parts have a word if the text has two.
    """
    starts = [m.start() for m in re.finditer(r"\S+", text)]
    if len(starts) < 2:
        return text, ""
    cut = starts[min(max(1, round(len(starts) * fraction)), len(starts) - 1)]
    return text[:cut], text[cut:]


def split_question(document: Document) -> tuple[str, str] | None:
    """(question, what follows it) of a document that begins with its ``metadata["question"]`` and has an ``"answer"``;
    ``None`` for any other.
    """
    question, answer = document.metadata.get("question"), document.metadata.get("answer")
    if not (isinstance(question, str) and isinstance(answer, str) and question.strip() and answer.strip()):
        return None
    rest = document.content.removeprefix(question)
    return (question, rest) if rest.strip() and len(rest) < len(document.content) else None


class S2MIA:
    """One probe a target, members and non-members in equal number and mixed order.

    :param count: targets, half of them members; ``None`` takes as many as the corpus allows.
    :param fraction: share of a target's words that is sent, in (0, 1), where it is split by position.
    :param split: ``question`` sends a document's question, ``position`` its beginning, ``auto`` the question where
        there is one.
    """

    name = probed_as = "s2mia"
    card = Card(
        paper="S²MIA, arXiv 2406.19234",
        prompt="The target's question or beginning, with the instruction to reply with the best fitting passage.",
        queries=1,
        access="log-probabilities",
        deviations=(
            "The paper's prompt is missing from its text: ours. Targets without a question are split by position. "
            "Reference non-members come from the same data set as the members. Where the model gives no "
            "log-probabilities the similarity decides alone. ROC of the rule with two thresholds: staircase of the "
            "rules that are best on the reference half."
        ),
    )

    def __init__(self, count: int | None = None, fraction: float = 0.5, split: Split = "auto") -> None:
        if not 0 < fraction < 1:
            raise UsageError(f"fraction is {fraction}; expected a number between 0 and 1")
        if split not in get_args(Split):
            raise UsageError(f"split is {split!r}; expected one of {', '.join(get_args(Split))}")
        self.count = check_count(count)
        self.fraction = fraction
        self.split = split

    def parts(self, target: Document) -> tuple[str, str]:
        """(query part, remaining part), with words in both.

        :raises InputError: the target cannot be split so.
        """
        found = None if self.split == "position" else split_question(target)
        if found is None and self.split == "question":
            raise InputError(
                f"target {target.id!r} has no question to send; expected metadata 'question' and 'answer' and a "
                "content that begins with the question: add them, or use split='auto' or 'position'"
            )
        sent, rest = found or split(target.content, self.fraction)
        if not rest.strip():
            words = len(target.content.split())
            raise InputError(
                f"target {target.id!r} has {words} {'word' if words == 1 else 'words'}; expected at least 2, to send "
                "one part and look for the other in the answer: leave this document out of the corpus"
            )
        return sent, rest

    def probes(self, corpus: Corpus, seed: int) -> Iterator[Probe]:
        """Targets are drawn at random on both sides, the same as for every other membership attack.

        :raises InputError: for a corpus with too few members or non-members, or a target that cannot be split.
        """
        targets = draw(corpus, seed, self.count)
        sent = [self.parts(target)[0].strip() for target, _ in targets]  # all, before the first is sent
        for i, ((target, is_member), text) in enumerate(zip(targets, sent, strict=True), 1):
            yield Probe(
                probe_id=f"{self.name}-{seed}-{i:04d}",
                attack=self.name,
                query=INSTRUCTION.format(text),
                corpus=corpus.name,
                seed=seed,
                target_id=target.id,
                target_text=target.content,
                is_member=is_member,
            )


ATTACK = S2MIA()
