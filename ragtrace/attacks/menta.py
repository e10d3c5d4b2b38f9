"""MEntA (arXiv 2605.24312): ordinary questions about the target; does the target entail what is answered?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragtrace.attacks._entail import Entails, Pair, embedded, lexical
from ragtrace.attacks._facts import facts, subject
from ragtrace.attacks._membership import MembershipAttack
from ragtrace.attacks._written import Write, check_write, lines
from ragtrace.attacks.base import Card
from ragtrace.errors import UsageError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    import duckdb

    from ragtrace.metrics._read import Target
    from ragtrace.types import Corpus, Document

TEMPLATES = (
    'What is known about "{subject}", and what has {a} to do with it?',
    'About "{subject}": what part does {a} play there, and {b}?',
    'Could you explain how {a} and {b} come into "{subject}"?',
    'With regard to "{subject}", what should I know of {a}?',
    'What are the particulars of "{subject}", above all of {a} and {b}?',
)
BARE = 'What can you tell me about "{subject}"?'
REQUEST = (
    "Write {count} natural questions that the document below answers and that a reader of such documents might ask. "
    "Name its particulars, so that each question is about this document and no other. Write one on each line and "
    "nothing else.\n\n{text}"
)
_PROMPT = "Ordinary questions about the target's subject that name particulars of it."
_DEVIATIONS = (
    "The paper has a language model write the questions; without one (`write`) they are templates over the target's "
    "subject and the words of it that are hardest to guess (a question in its metadata comes first). "
)


class MEntA(MembershipAttack):
    """The mean, over a target's answers, of how far its text entails them.

    :param questions: asked about each target, at least 1.
    :param write: a language model (prompt → text) that writes the questions. It runs each time the probes are made, so
        one that is not deterministic belongs behind a cache.
    :param entails: a scorer in place of the lexical one: (target text, answer) → number, higher for entailed. It runs
        each time the answers are scored.
    """

    name = "menta"
    no_score = "no answer was readable"
    card = Card(
        paper="MEntA, arXiv 2605.24312",
        prompt=_PROMPT,
        queries=5,
        access="text",
        deviations=_DEVIATIONS
        + "The paper's entailment model is replaced, unless one is given (`entails`), by containment: the share of an "
        "answer's content words, without those of its question, that stand in the target. Refusals count as 0.",
    )

    def __init__(
        self,
        count: int | None = None,
        questions: int = 5,
        write: Write | None = None,
        entails: Entails | None = None,
    ) -> None:
        super().__init__(count)
        if questions < 1:
            raise UsageError(f"questions is {questions}; expected at least 1 for each target")
        if entails is not None and not callable(entails):
            raise UsageError(f"MEntA(entails={entails!r}); expected a function from (text, answer) to a number")
        self.questions = questions
        self.write = check_write("MEntA", write)
        self.entails = entails

    def queries(self, target: Document, rng: random.Random, corpus: Corpus) -> list[str]:
        """The questions, each once; fewer of a text that has too few facts for as many."""
        asked: list[str] = []
        if self.write is not None:
            request = REQUEST.format(count=self.questions, text=target.content)
            asked = [line for line in lines("MEntA", self.write, request) if line.endswith("?")]
        elif isinstance(own := target.metadata.get("question"), str) and own.strip():
            asked = [own.strip()]
        about = subject(target)
        hard = [fact.word.text for fact in facts(target, corpus)]
        for i in range(self.questions if hard else 0):
            a, b = hard[2 * i % len(hard)], hard[(2 * i + 1) % len(hard)]
            asked.append(TEMPLATES[i % len(TEMPLATES)].format(subject=about, a=a, b=b))
        return list(dict.fromkeys(asked))[: self.questions] or [BARE.format(subject=about)]

    def entailed(self, pairs: Sequence[Pair]) -> list[float]:
        """How far each text entails its answer."""
        if self.entails is None:
            return lexical(pairs)
        return [float(self.entails(pair.text, pair.answer)) for pair in pairs]

    def parameters(self, db: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> dict[str, Any]:
        """Which scorer was used."""
        return {"entails": "lexical" if self.entails is None else "given"}

    def score(self, target: Target, arms: Mapping[str, Target]) -> float | None:
        """The mean over the answers that are readable."""
        return self.score_all([(target, arms)])[0]

    def score_all(self, targets: Sequence[tuple[Target, Mapping[str, Target]]]) -> list[float | None]:
        """All answers in one batch."""
        answered = [
            [Pair(t.text, r.query, r.response) for r in t.replies if r.response is not None] for t, _ in targets
        ]
        values = iter(self.entailed([pair for pairs in answered for pair in pairs]))
        return [sum(next(values) for _ in pairs) / len(pairs) if pairs else None for pairs in answered]


class MEntAEmbedding(MEntA):
    """The same answers, scored by the similarity of sentence vectors; computed on request."""

    name = "menta_embedding"
    asks = "menta"
    on_request = True
    card = Card(
        paper="MEntA, arXiv 2605.24312",
        prompt=_PROMPT,
        queries="5, shared with menta",
        access="text",
        deviations=_DEVIATIONS
        + "The paper's entailment model is replaced by the cosine similarity of answer and target, "
        "embedded by all-MiniLM-L6-v2: likeness of subject, not entailment. Refusals count as 0.",
    )

    def entailed(self, pairs: Sequence[Pair]) -> list[float]:
        """The similarity of each answer to its text."""
        return embedded(pairs)

    def parameters(self, db: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> dict[str, Any]:
        """Which scorer was used."""
        return {"entails": "all-MiniLM-L6-v2"}


ATTACK = (MEntA(), MEntAEmbedding())
