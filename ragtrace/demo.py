"""``ragtrace demo``: the whole path once, on a real pipeline with a real (small) language model.

The pipeline is what a user would write: FAISS over all-MiniLM-L6-v2, top-k 5, a prompt, ``ChatOpenAI``. The corpus is
synthetic e-mail with canaries. Each arm is the same app with another defense switched on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ragtrace
from ragtrace import audit
from ragtrace.attacks.benign import BenignQueries
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.attacks.s2mia import S2MIA
from ragtrace.canaries import plant_corpus
from ragtrace.corpora.synthetic_email import SyntheticEmail
from ragtrace.defenses import EntitySubstitution, PromptModifying, RegexMask
from ragtrace.papers.dp_r import DPStub
from ragtrace.types import Corpus, Probe

if TYPE_CHECKING:
    from rich.console import Console

SYSTEM = "You are a helpful assistant. Answer from the e-mails in the context."
QUESTIONS = (
    "SELECT defense, hook, verdict, evidence FROM verdicts",
    "SELECT arm, family, count(DISTINCT canary) FROM canary_hits WHERE channel = 'response' GROUP BY ALL ORDER BY ALL",
    "SELECT metric, arm, value, ci_low, ci_high, interpretable, reason FROM results WHERE metric LIKE 'canary%'",
)


@dataclass(frozen=True)
class Size:
    """How much the demo asks: documents indexed (of at most ``longest`` characters), and probes of each kind an arm."""

    documents: int = 50
    canary: int = 12
    members: int = 4
    benign: int = 2
    max_tokens: int = 96
    longest: int = 240


def arms() -> list[audit.Arm]:
    """The baseline, and one arm a defense; ``dp_r`` has the response hook that Mind the Hook found to be a stub."""
    defenses = (RegexMask(), EntitySubstitution(), DPStub(epsilon=1.0, seed=7), PromptModifying())
    return [audit.Arm("none"), *(audit.Arm(d.name, (d,)) for d in defenses)]


def probes(corpus: Corpus, size: Size) -> list[Probe]:
    """Canary, membership and benign probes, the same for every arm."""
    attacks = (
        CanaryAttack(size.canary),
        S2MIA(2 * size.members),
        BenignQueries(size.benign),
    )
    return [probe for attack in attacks for probe in attack.probes(corpus, corpus.seed)]


def main(out: Path, console: Console, size: Size | None = None, seed: int = 101) -> str:
    """Runs the audit into ``out/traces.duckdb``, prints verdicts, results and three questions; returns the run's id.

    :raises ModelError: the model's weights could not be had.
    :raises UsageError: the extra ``demo`` is not installed.
    """
    from rich.progress import Progress

    from ragtrace import embedded
    from ragtrace.embedded.pipeline import rag
    from ragtrace.inventory import inventory
    from ragtrace.inventory.battery import battery
    from ragtrace.report import terminal
    from ragtrace.score import score
    from ragtrace.store import open as open_store

    size = size or Size()
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    database = out / "traces.duckdb"
    all_arms = arms()
    corpus = _corpus(size, seed, all_arms)
    asked = probes(corpus, size)
    console.print(
        f"Corpus: {len(corpus.members)} synthetic e-mails indexed, {len(corpus.canaries)} canaries planted. "
        f"{len(all_arms)} arms × {len(asked)} probes. Model: {embedded.MODEL}, embedded; its numbers show that the "
        "instrument works, not what a production model leaks."
    )
    tracing = ragtrace.setup(database, capture="full")
    cache = embedded.GenerationCache(file=embedded.cache_folder() / f"generations-{embedded.SHA256[:12]}.sqlite")
    try:
        with (
            embedded.serve() as url,
            Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        ):
            model = embedded.chat_model(url, cache=cache, max_tokens=size.max_tokens)
            app = rag(corpus.members, model, embedded.embedder(), SYSTEM)
            bars = {arm.name: progress.add_task(arm.name, total=len(asked)) for arm in all_arms}

            def step(arm: str) -> None:
                progress.advance(bars[arm])
                if progress.tasks[bars[arm]].finished and not console.is_terminal:
                    console.print(f"{arm}: {len(asked)} probes, {cache.misses} model calls so far")

            report = audit.run(
                app, all_arms, asked, tracing=tracing, canaries=corpus.canaries,
                facts={"corpus": corpus.name, "seed": seed, "model": embedded.MODEL, "members": len(corpus.members)},
                step=step,
            )  # fmt: skip
    finally:
        tracing.shutdown()
    with open_store(database) as db:
        defenses = [d for arm in all_arms for d in arm.defenses]
        audit.store_inventory(db, inventory(*defenses))
        audit.store_battery(db, battery(*defenses))
        score(db, report.run_id)
        terminal.verdicts(db, console)
        terminal.results(db, console, report.run_id)
    for failure in report.failures:
        console.print(f"failed: {terminal.harmless(failure)}")
    console.print(
        f"{report.asked} requests, {cache.misses} model calls; {cache.hits} saved: same prompt, same model, greedy "
        f"({cache.kept_hits} of them from an earlier run). "
        f"{time.monotonic() - started:.0f} s. Traces: {database}\nAsk them:"
    )
    for question in QUESTIONS:
        console.print(f'  ragtrace sql --db {database} "{question}"', soft_wrap=True, highlight=False)
    return report.run_id


def _corpus(size: Size, seed: int, all_arms: Sequence[audit.Arm]) -> Corpus:
    drawn = SyntheticEmail(size.longest).build(size.documents, seed, non_members=size.members)
    avoid = frozenset().union(*(d.constants() for arm in all_arms for d in arm.defenses))
    return plant_corpus(drawn, ("email", "person"), seed, avoid)
