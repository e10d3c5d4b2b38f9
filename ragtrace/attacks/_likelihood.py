"""What the likelihood baselines share: the probes (one attack's, ``likelihood``), and what they read.

They look at the probabilities of the target's own tokens, which no answer holds: ``ragtrace.likelihood.fill`` asks a
language model for them after the audit and stores them. Two conditions: ``context`` scores the target as the
continuation of the prompt that the app's model was really given, retrieved documents inside; ``alone`` scores the bare
text, which shows how much of an attack comes from the text itself. ``alone`` is computed on request.

The query is that of ``s2mia``, so an answer is generated once for both; it holds the beginning of the target, for
members and non-members alike.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ragtrace.attacks._membership import MembershipAttack, Query
from ragtrace.errors import InputError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb

    from ragtrace.metrics._membership import TargetMetric
    from ragtrace.metrics._read import Target
    from ragtrace.types import Corpus, Document, Probe

ASKS = "likelihood"
"""Name of the attack in ``probes``."""
Condition = Literal["context", "alone"]
KINDS: dict[str, dict[Condition, str]] = {
    "text": {"context": "context", "alone": "alone"},
    "neighbour": {"context": "neighbour", "alone": "neighbour_alone"},
    "prefixed": {"context": "prefixed", "alone": "prefixed_alone"},
}
"""What may be stored of a target, by condition: itself, changed versions of it, and itself after other texts."""
PREFIX = "prefix"
"""In the detail of a seed's first probe: texts that are no members and no targets."""
SHOTS, PREFIX_WORDS = 5, 400
"""At most so many texts and words are the prefix of ReCaLL."""
LOWEST = 0.2
"""k of min-k %: the share of tokens that are looked at."""


def lowest_mean(values: Sequence[float]) -> float | None:
    """The mean of the lowest ``LOWEST`` of the values (rounded down, at least one); ``None`` of none."""
    chosen = sorted(values)[: max(1, int(LOWEST * len(values)))]
    return mean(chosen)


def mean(values: Sequence[float]) -> float | None:
    """``None`` where there are none."""
    return sum(values) / len(values) if values else None


@dataclass
class Likelihoods:
    """A target's stored likelihoods under one condition; empty where there are none.

    ``neighbours`` and ``prefixed`` are mean log-probabilities a token.
    """

    text: str
    logprobs: list[float] = field(default_factory=list)
    mu: list[float] = field(default_factory=list)
    sigma: list[float] = field(default_factory=list)
    neighbours: list[float] = field(default_factory=list)
    prefixed: float | None = None


class LikelihoodAttack(MembershipAttack):
    """Subclass it with a ``name``, a ``card``, ``needs`` and :meth:`value`.

    :param condition: ``context`` scores the target after what the app's model was given, ``alone`` without it.
    """

    asks = ASKS
    by_target = False  # it reads the stored likelihoods, which are no traces
    needs: ClassVar[tuple[str, ...]] = ("text",)
    """Keys of :data:`KINDS`."""
    hint: ClassVar[str] = ""
    """What else may be missing."""

    def __init__(self, count: int | None = None, condition: Condition = "context") -> None:
        super().__init__(count)
        self.condition = condition
        if condition == "alone":
            self.name += "_alone"
            self.on_request = True
        kinds = tuple(KINDS[need][condition] for need in self.needs)
        self.no_score = (
            "no likelihoods of the targets are stored; make them with ragtrace.likelihood.fill"
            f"(db, run_id, kinds={kinds}){self.hint}"
        )

    @property
    def metrics(self) -> tuple[TargetMetric, ...]:
        """Those of the ``alone`` variant too."""
        if self.condition == "alone":
            return super().metrics
        return (*super().metrics, *type(self)(self.count, "alone").metrics)

    def queries(self, target: Document, rng: random.Random, corpus: Corpus) -> list[Query]:
        """What ``s2mia`` sends; of a text that it cannot split, all."""
        from ragtrace.attacks.s2mia import INSTRUCTION, S2MIA

        try:
            sent, _ = S2MIA().parts(target)
        except InputError:
            sent = target.content
        return [Query(INSTRUCTION.format(sent.strip()))]

    def probes(self, corpus: Corpus, seed: int) -> Iterator[Probe]:
        """The first one also carries the texts for ReCaLL's prefix."""
        from dataclasses import replace

        found = list(super().probes(corpus, seed))
        yield replace(found[0], detail={PREFIX: prefix_texts(corpus, seed, {p.target_text or "" for p in found})})
        yield from found[1:]

    def score(self, target: Target, arms: Mapping[str, Target]) -> float | None:
        """Answers alone give none."""
        return None

    @abstractmethod
    def value(self, x: Likelihoods) -> float | None:
        """The score, higher for members; asked only where the target's own tokens are there."""

    def score_stored(
        self,
        db: duckdb.DuckDBPyConnection,
        run_id: str,
        targets: Sequence[tuple[Target, Mapping[str, Target]]],
    ) -> list[float | None]:
        """From the stored likelihoods of one model: the one that has most of them."""
        model = self._model(db, run_id)
        found = _stored(db, run_id, model, [(KINDS[need][self.condition], need) for need in self.needs])
        values: list[float | None] = []
        for target, _ in targets:
            x = found.get((target.probe_id, target.arm if self.condition == "context" else None))
            values.append(None if x is None or not x.logprobs else self.value(_with_text(x, target.text)))
        return values

    def parameters(self, db: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> dict[str, Any]:
        """Which model gave the likelihoods, and how many prompts were cut for it."""
        model = self._model(db, run_id)
        if model is None:
            return {}
        row = db.execute(
            "SELECT count(*) FROM likelihoods WHERE run_id = ? AND model = ? AND kind = ? AND note IS NOT NULL "
            "AND (arm IS NULL OR arm = ?)",
            [run_id, model, KINDS["text"][self.condition], arm],
        ).fetchone()
        said = {"scorer": model, "condition": self.condition}
        return {**said, "noted": row[0]} if row and row[0] else said

    def _model(self, db: duckdb.DuckDBPyConnection, run_id: str) -> str | None:
        kinds = [KINDS[need][self.condition] for need in self.needs]
        row = db.execute(
            "SELECT model FROM likelihoods WHERE run_id = ? AND list_contains(?::VARCHAR[], kind) "
            "GROUP BY model ORDER BY count(*) DESC, model LIMIT 1",
            [run_id, kinds],
        ).fetchone()
        return None if row is None else str(row[0])


def _stored(
    db: duckdb.DuckDBPyConnection, run_id: str, model: str | None, kinds: Sequence[tuple[str, str]]
) -> dict[tuple[str, str | None], Likelihoods]:
    """(Probe, arm) → what is stored; the arm is ``None`` for what stands alone."""
    found: defaultdict[tuple[str, str | None], Likelihoods] = defaultdict(lambda: Likelihoods(""))
    for kind, need in kinds:
        columns = "logprobs, mu, sigma" if need == "text" else "mean_logprob"
        rows = db.execute(
            f"SELECT probe_id, arm, {columns} FROM likelihoods "  # noqa: S608 (constants)
            "WHERE run_id = ? AND model = ? AND kind = ? AND tokens > 0 ORDER BY probe_id, arm, variant",
            [run_id, model, kind],
        ).fetchall()
        for probe_id, arm, *values in rows:
            x = found[probe_id, arm]
            if need == "text":
                x.logprobs, x.mu, x.sigma = values
            elif need == "neighbour":
                x.neighbours.append(values[0])
            else:
                x.prefixed = values[0]
    return found


def _with_text(x: Likelihoods, text: str) -> Likelihoods:
    x.text = text
    return x


def prefix_texts(corpus: Corpus, seed: int, targets: set[str]) -> list[str]:
    """Texts of non-members that are no targets, drawn by the seed: at most ``SHOTS`` and ``PREFIX_WORDS`` words."""
    import random

    rest = [d.content for d in corpus.non_members if d.content.strip() and d.content not in targets]
    random.Random(f"prefix {seed}").shuffle(rest)  # noqa: S311 (seeded on purpose)
    texts: list[str] = []
    left = PREFIX_WORDS
    for text in rest[:SHOTS]:
        words = text.split()
        if len(words) > left and texts:
            break
        texts.append(text if len(words) <= left else " ".join(words[:left]))
        left -= len(words)
    return texts


def prefix_of(details: Sequence[str | None]) -> str:
    """The prefix that a seed's probes carry in their details (JSON); empty where there is none."""
    for detail in details:
        texts = json.loads(detail or "{}").get(PREFIX)
        if texts:
            return "\n\n".join(texts)
    return ""
