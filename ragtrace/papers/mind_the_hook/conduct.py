"""Runs the grid into one database, cell by cell; what has come to its end is not done again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ragtrace import audit
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.canaries import plant_corpus
from ragtrace.corpora import load as corpora
from ragtrace.embedded.pipeline import rag
from ragtrace.errors import InputError
from ragtrace.papers.mind_the_hook.plan import CANARY_CORPUS, FAMILIES, MI, SYSTEM, Design, Run, defenses

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from ragtrace.asking import AuditReport
    from ragtrace.models import Chat
    from ragtrace.record.setup import Tracing
    from ragtrace.types import Corpus

CANARY_RUN = "mth-canaries"
EPSILON = 1.0
"""Of the canary experiment, where it means something."""


class Bench:
    """The pipelines over every corpus and seed, built once each."""

    def __init__(self, design: Design, chat: Chat, embeddings: Any, data: Path | None = None) -> None:
        self.design, self.chat, self.embeddings = design, chat, embeddings
        self.data = data
        self.corpus = cache(self._corpus)
        self.app = cache(self._app)
        self.planted = cache(self._planted)

    def _corpus(self, name: str, seed: int) -> Corpus:
        source = corpora()[name]
        if name == "pubmedqa" and self.data is not None:
            source = type(source)(folder=self.data)  # type: ignore[call-arg]
        outside = self.design.non_members if MI in self.design.attacks else 0
        return source.build(self.design.documents, seed, non_members=outside)

    def _app(self, name: str, seed: int) -> Callable[[str], str]:
        return self._rag(self.corpus(name, seed))

    def _rag(self, corpus: Corpus) -> Callable[[str], str]:
        return rag(corpus.members, self.chat.model, self.embeddings, SYSTEM, self.design.top_k)

    def _planted(self, seed: int) -> Corpus:
        drawn = corpora()[CANARY_CORPUS].build(self.design.canary_documents, seed)
        avoid = frozenset().union(*(d.constants() for d in defenses(EPSILON, seed)))
        return plant_corpus(drawn, FAMILIES, seed, avoid)

    def run(self, run: Run, before: audit.Done, tracing: Tracing, step: Callable[[str], None]) -> AuditReport:
        """The cells of one run that are not there yet."""
        corpus = self.corpus(run.corpus, run.seed)
        attack: Any = self.design.attack(run.attack)
        adaptive = hasattr(attack, "session")
        facts = {"members": len(corpus.members), "signature": signature(self.design, run.attack)}
        return audit.run(
            self.app(run.corpus, run.seed),
            self.design.arms(run),
            [] if adaptive else list(attack.probes(corpus, run.seed)),
            sessions=[partial(attack.session, corpus, run.seed)] if adaptive else (),
            tracing=tracing,
            facts=run._asdict() | {"paper": "Mind the Hook"} | facts,
            step=step,
            resume=before,
            mode=run.mode,
        )

    def canaries(self, seed: int, before: audit.Done, tracing: Tracing, step: Callable[[str], None]) -> AuditReport:
        """The canary experiment for one seed: every defense, both families, exact match."""
        corpus = self.planted(seed)
        return audit.run(
            self._rag(corpus),
            self.design.defended(EPSILON, seed),
            CanaryAttack(self.design.canary_queries).probes(corpus, seed),
            tracing=tracing,
            canaries=corpus.canaries,
            facts={"paper": "Mind the Hook", "seed": seed, "signature": signature(self.design, CanaryAttack.name)},
            step=step,
            resume=before,
        )


def signature(design: Design, attack: str) -> dict[str, Any]:
    """See :meth:`Design.signature`."""
    documents = design.canary_documents if attack == CanaryAttack.name else design.documents
    return design.signature(attack, documents)


def done(db: duckdb.DuckDBPyConnection, run_id: str, expected: Mapping[str, Any]) -> audit.Done:
    """What the database has of a run.

    :raises InputError: it was begun under another signature; the message says which parts differ.
    """
    rows = db.execute(
        "SELECT DISTINCT (attributes->>'ragtrace.run')->>'signature' FROM own_spans "
        "WHERE stage IS NULL AND run_id = ? AND attributes->>'ragtrace.run' IS NOT NULL",
        [run_id],
    ).fetchall()
    for (text,) in rows:
        found = json.loads(text or "{}")
        differ = sorted(k for k in {*found, *expected} if found.get(k) != expected.get(k))
        if differ:
            said = ", ".join(f"{k} ({found.get(k)!r}, now {expected.get(k)!r})" for k in differ)
            raise InputError(
                f"run {run_id} in this database was begun with other {said}; expected the same: give another --out, or "
                "delete the old one"
            )
    return audit.done(db, run_id)
