"""``ragtrace papers mind-the-hook``: the 432-cell grid and Tables I to III of Mind the Hook (arXiv 2608.09001).

Its six attacks, six defenses (as the paper describes them, stubs included), three corpora, two modes and two ε, for the
model at hand; what the paper leaves open is read as the attacks' cards and the defenses' docstrings say.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ragtrace.errors import RagtraceError
from ragtrace.papers.mind_the_hook.plan import DEFENSES, Design, Run

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from rich.console import Console

    from ragtrace import audit
    from ragtrace.papers.mind_the_hook.conduct import Bench
    from ragtrace.record.setup import Tracing

__all__ = ["QUICK", "Design", "main"]

QUICK = replace(
    Design(),
    queries=4, members=4, non_members=8, documents=20, corpora=("synthetic_email",), modes=("single_turn",),
    epsilons=(1.0,), attacks=("prompt_stealing", "rag_thief", "mi_response"), canary_queries=10, canary_documents=16,
    max_tokens=64,
)  # fmt: skip
"""A small part with the same design, for a first look: one corpus, three attacks, one mode and ε."""
SECONDS_A_CALL = 2.0
"""The embedded model, on two cores: five documents of half a kilobyte in each prompt."""
SHARED = 0.45
"""At most so much of what is asked reaches the model: cells that share prompts share generations."""
METRICS = ("nel_*", "canary_*", "mi_response_*", "extraction_*")


def main(design: Design, out: Path, console: Console, *, data: Path | None = None, dry_run: bool = False) -> None:
    """Runs what has not been run yet into ``out/mind-the-hook.duckdb``, prints the tables, and writes them beside it.

    A cell whose run fails is a cell with an error: it is named, and the others go on.
    """
    from ragtrace.models import chat
    from ragtrace.papers import printing
    from ragtrace.papers.mind_the_hook.conduct import CANARY_RUN, Bench
    from ragtrace.papers.mind_the_hook.tables import tables
    from ragtrace.report.reporting import write
    from ragtrace.retrievers import embedder
    from ragtrace.score import score
    from ragtrace.store import open as open_store

    started = time.monotonic()
    runs = list(design.runs())
    queries = sum(len(design.arms(run)) * design.size(run.attack) for run in runs)
    canary = len(design.canary_seeds) * len(DEFENSES) * design.canary_queries
    hours = (queries + canary) * SHARED * SECONDS_A_CALL / 3600
    guess = f", about {hours:.1f} h with the embedded model on two cores" if design.model == "embedded" else ""
    console.print(
        f"{design.cells} cells in {len(runs)} runs: at most {queries} queries, and {canary} of the canary experiment "
        f"({len(design.canary_seeds)} seeds). Cells that share prompts share generations{guess}."
    )
    if dry_run:
        return
    out.mkdir(parents=True, exist_ok=True)
    database = out / "mind-the-hook.duckdb"
    with chat(design.model, max_tokens=design.max_tokens) as model:
        bench = Bench(design, model, embedder("minilm"), data)
        errors = _ask(design, bench, database, console)
    with open_store(database) as db:
        _store_witnesses(db)
        for run in (*(r.id for r in runs), CANARY_RUN):
            if db.execute("SELECT count(*) FROM probes WHERE run_id = ?", [run]).fetchone() != (0,):
                score(db, run, [pattern for pattern in METRICS if _any(pattern)])
        made = list(tables(db, design))
    notes = [
        f"model {model.name}, {design.documents} documents a corpus, {design.queries} queries a cell, seeds "
        f"{', '.join(map(str, design.seeds))}; canaries: {len(design.canary_seeds)} seeds",
        f"{model.cache.misses} model calls for {queries + canary} queries ({model.cache.hits} shared)",
        *(["one seed: a case study, no finding"] if len(design.seeds) < 5 else []),
        *(["a tiny model: these numbers are instrument checks, not findings about any model"]
          if design.model == "embedded" else []),
        *(f"error: {error}" for error in errors),
    ]  # fmt: skip
    printing.to_console(made, console)
    write(out / "tables.md", printing.to_markdown("Mind the Hook (arXiv 2608.09001)", made, notes))
    write(out / "tables.json", printing.to_json(made, notes))
    for note in notes:
        console.print(note, markup=False)
    console.print(f"{time.monotonic() - started:.0f} s. Traces and results: {database}; {out}/tables.md")


def _any(pattern: str) -> bool:
    from fnmatch import fnmatchcase

    from ragtrace.metrics import load

    return any(fnmatchcase(name, pattern) for name in load())


def _ask(design: Design, bench: Bench, database: Path, console: Console) -> list[str]:
    """Every run and the canary experiment; the errors of those that could not be finished."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    import ragtrace
    from ragtrace.papers.mind_the_hook import conduct
    from ragtrace.report.terminal import harmless
    from ragtrace.store import open as open_store

    with open_store(database) as db:
        grid = {run: conduct.done(db, run.id, conduct.signature(design, run.attack)) for run in design.runs()}
        canaries = conduct.done(db, conduct.CANARY_RUN, conduct.signature(design, "canary"))
    tracing = ragtrace.setup(database, capture="full")
    errors: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("runs", total=len(grid) + len(design.canary_seeds))

            def told(name: str, failures: list[str]) -> None:
                progress.advance(bar)
                errors.extend(f"{name}: {harmless(failure)}" for failure in failures)
                if not console.is_terminal:
                    console.print(f"{name}: done, {bench.chat.cache.misses} model calls so far", markup=False)

            for run, before in grid.items():
                told(run.id, _one(design, bench, run, before, tracing))
            for seed in design.canary_seeds:
                try:
                    report = bench.canaries(seed, canaries, tracing, lambda _: None)
                    told(f"canaries, seed {seed}", report.failures)
                except RagtraceError as error:
                    told(f"canaries, seed {seed}", [str(error)])
    finally:
        tracing.shutdown()
    return errors


def _one(design: Design, bench: Bench, run: Run, before: audit.Done, tracing: Tracing) -> list[str]:
    if before.finished >= {arm.name for arm in design.arms(run)}:
        return []
    try:
        return bench.run(run, before, tracing, lambda _: None).failures
    except RagtraceError as error:  # a corpus that is not there, an attack that cannot be carried out
        return [str(error)]


def _store_witnesses(db: duckdb.DuckDBPyConnection) -> None:
    """What source and battery say of the six, so that the verdicts rest on three witnesses."""
    from ragtrace import audit
    from ragtrace.inventory import inventory
    from ragtrace.inventory.battery import battery
    from ragtrace.papers.mind_the_hook.plan import defenses

    found = defenses(1.0, 101)
    audit.store_inventory(db, inventory(*found))
    audit.store_battery(db, battery(*found))
