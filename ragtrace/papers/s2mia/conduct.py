"""Runs the design: one audit a dataset and retriever, into one database, each resumable where it was cut short."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace import attacks, audit, likelihood
from ragtrace.asking import AuditReport
from ragtrace.corpora import load as corpora
from ragtrace.embedded.pipeline import rag
from ragtrace.errors import InputError
from ragtrace.papers.s2mia.plan import CURVES, DATASETS, LIKELIHOOD, REWRITE, SIMILARITIES, Cell, Design
from ragtrace.retrievers import embedder

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from ragtrace.metrics.base import Metric
    from ragtrace.models import Chat
    from ragtrace.record.setup import Tracing
    from ragtrace.types import Corpus, Probe

_EVERY = 500
KINDS = {"context": None, "neighbour": "neighbourhood", "prefixed": "recall"}
"""Kind of likelihood → the attack that alone needs it."""
METRICS = (
    "bleu_roc_auc", "bleu_remaining_roc_auc", "cosine_roc_auc", "perplexity_roc_auc", "blind_roc_auc",
    "utility_*",
)  # fmt: skip
"""What the tables show of single features and of the controls; the other attacks bring their own."""
SYSTEM = "You are a helpful assistant. Answer from the context."


class Prepared(NamedTuple):
    """A run before anything is asked. ``arms`` here rewrite nothing: they say what is asked, not how."""

    cell: Cell
    corpus: Corpus
    arms: list[audit.Arm]
    probes: list[Probe]

    @property
    def removed(self) -> int:
        """Near duplicates that were left out of the pool."""
        return int(getattr(self.corpus, "near_duplicates_removed", 0))


def prepare(design: Design, cell: Cell, data: Path | None = None) -> Prepared:
    """The dataset's pool, split by coin flips into index and outside, and what is asked about it."""
    source = corpora()[DATASETS[cell.dataset]]
    if data is not None:
        source = type(source)(folder=data)  # type: ignore[call-arg]
    corpus = source.build(design.members, design.seed, non_members=design.non_members)
    return Prepared(cell, corpus, design.arms(cell, str), design.probes(cell, corpus))


def rewriter(model: Any) -> Callable[[str], str]:
    """The pipeline's own model as what paraphrases."""
    return lambda query: str(model.invoke(REWRITE.format(query=query)).text)


def run_id(design: Design, cell: Cell) -> str:
    """The same design has the same run: what it has answers for is not asked again."""
    facts = design.facts(cell) | {"attacks": sorted(design.attacks), "defenses": design.defenses}
    said = json.dumps(facts, sort_keys=True)
    return f"s2mia-{cell.name}-{hashlib.sha256(said.encode()).hexdigest()[:10]}"


def ask(
    design: Design,
    prepared: Prepared,
    chat: Chat,
    *,
    before: audit.Done,
    tracing: Tracing,
    concurrency: int,
    step: Callable[[str], None],
) -> AuditReport:
    """Sends what this run has no answer for yet."""
    app = rag(prepared.corpus.members, chat.model, embedder(prepared.cell.retriever), SYSTEM)
    return audit.run(
        app,
        design.arms(prepared.cell, rewriter(chat.model)),
        prepared.probes,
        tracing=tracing,
        facts=design.facts(prepared.cell)
        | {"near_duplicates_removed": prepared.removed, "members": len(prepared.corpus.members)},
        step=step,
        concurrency=concurrency,
        resume=before,
    )


def weigh(db: duckdb.DuckDBPyConnection, design: Design, cell: Cell, say: Callable[[str], None]) -> None:
    """The likelihoods of the targets, for the attacks that rest on them."""
    if 1 in cell.tables and set(LIKELIHOOD) & set(design.attacks):

        def progress(done: int, of: int) -> None:
            if done == of or done % _EVERY == 0:
                say(f"{cell.name}: likelihoods of {done} of {of} texts")

        kinds = [k for k, attack in KINDS.items() if attack is None or attack in design.attacks]
        likelihood.fill(db, run_id(design, cell), kinds=kinds, arms=("none",), progress=progress)


def metrics(design: Design) -> list[Metric | str]:
    """What is scored: S²MIA's variants, the controls, and every other attack's areas and error rates."""
    own = [
        m for name, attack in attacks.load().items() if name in design.attacks for m in getattr(attack, "metrics", ())
    ]
    more = [m for m in getattr(attacks.load()["rag_mia_prob"], "metrics", ()) if "rag_mia" in design.attacks]
    stems = ["s2mia", "s2mia_m"] + [
        f"s2mia_{form}{similarity}{without}"
        for form, similarity, without in product("tm", SIMILARITIES.values(), ("", "_without_perplexity"))
        if similarity or without
    ]
    return [*METRICS, *(f"{stem}_{curve}" for stem in stems for curve in CURVES), *own, *more]


def check(db: duckdb.DuckDBPyConnection, design: Design, prepared: Prepared) -> audit.Done:
    """What the run has already.

    :raises InputError: where it asked something else under the same probe ids: code or data have changed in between.
    """
    run = run_id(design, prepared.cell)
    wanted = {p.probe_id: p.query for p in prepared.probes}
    for probe, query in db.execute("SELECT DISTINCT probe_id, query FROM probes WHERE run_id = ?", [run]).fetchall():
        if wanted.get(probe, query) != query:
            raise InputError(
                f"run {run} in this database asked another query as {probe!r}: the attacks or the data have changed "
                "since; expected the same. Give another --out, or delete the old one"
            )
    return audit.done(db, run)
