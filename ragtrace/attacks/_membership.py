"""A membership attack in one file: what to ask about a target, and how its answers become one score.

Everything else (drawing targets, numbering probes, reading answers from the store, areas and error rates with
intervals, warnings) is here and in ``ragtrace.metrics._membership``.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ragtrace.attacks._targets import check_count, draw
from ragtrace.metrics._membership import STATISTICS, TargetMetric
from ragtrace.types import Probe

if TYPE_CHECKING:
    import duckdb

    from ragtrace.attacks.base import Card
    from ragtrace.metrics._read import Target
    from ragtrace.types import Corpus, Document


class Query(NamedTuple):
    """One text to send, and what the score must know of it later."""

    text: str
    detail: dict[str, Any] | None = None


class MembershipAttack(ABC):
    """Subclass it with a ``name``, a ``card``, :meth:`queries` and :meth:`score`, and expose an instance as ``ATTACK``.

    :param count: targets, half of them members; ``None`` takes as many as the corpus allows.
    """

    name: str
    card: ClassVar[Card]
    asks: ClassVar[str | None] = None
    """Name of the attack whose probes these are, where several share theirs (they are sent once); ``None``: its own."""
    no_score: str | None = None
    """Why answers may give no score, and the fix: said where no target of an arm has one."""
    on_request: bool = False
    """Whether its metrics are computed only if they are named."""
    by_target: bool = True
    """Whether a target's score needs no more than its own answers, in all arms; see ``ragtrace.metrics.base``."""

    def __init__(self, count: int | None = None) -> None:
        self.count = check_count(count)

    @abstractmethod
    def queries(self, target: Document, rng: random.Random, corpus: Corpus) -> Sequence[Query | str]:
        """What is sent for one target, in order; at least one. ``rng`` is seeded for this target."""

    @abstractmethod
    def score(self, target: Target, arms: Mapping[str, Target]) -> float | None:
        """One number from a target's answers, higher for members; ``None`` where the answers do not give one.

        :param arms: the same target in every arm of the run, by the arm's name (controls among them).
        """

    def score_all(self, targets: Sequence[tuple[Target, Mapping[str, Target]]]) -> list[float | None]:
        """The scores of many targets; override it where a batch is cheaper than one after the other."""
        return [self.score(target, arms) for target, arms in targets]

    def score_stored(
        self,
        db: duckdb.DuckDBPyConnection,
        run_id: str,
        targets: Sequence[tuple[Target, Mapping[str, Target]]],
    ) -> list[float | None]:
        """The same; override it where a score reads more of the store than answers."""
        return self.score_all(targets)

    def parameters(self, db: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> dict[str, Any]:
        """What else belongs into a result's signature."""
        return {}

    @property
    def probed_as(self) -> str:
        """The attack's name in ``probes``."""
        return self.asks or self.name

    @property
    def metrics(self) -> tuple[TargetMetric, ...]:
        """The score as areas and error rates: ``<name>_roc_auc`` and so on."""
        return tuple(TargetMetric(self, statistic) for statistic in STATISTICS)

    def targets(self, corpus: Corpus, seed: int) -> list[tuple[Document, bool]]:
        """(target, is it a member), in the order in which they are asked about."""
        return draw(corpus, seed, self.count)

    def probes(self, corpus: Corpus, seed: int) -> Iterator[Probe]:
        """The queries of every target.

        :raises InputError: for a corpus with too few members or non-members.
        """
        for i, (target, is_member) in enumerate(self.targets(corpus, seed), 1):
            rng = random.Random(f"{self.probed_as} {seed} {target.id}")  # noqa: S311 (seeded on purpose)
            for j, query in enumerate(self.queries(target, rng, corpus)):
                text, detail = query if isinstance(query, Query) else (query, None)
                yield Probe(
                    probe_id=f"{self.probed_as}-{seed}-{i:04d}" + (f"/{j}" if j else ""),
                    attack=self.probed_as,
                    query=text,
                    corpus=corpus.name,
                    seed=seed,
                    target_id=target.id,
                    target_text=target.content,
                    is_member=is_member,
                    detail=detail,
                )
