"""``ragtrace papers mind-the-hook``: the 432-cell grid and Tables I to III of Mind the Hook (arXiv 2608.09001).

Its six attacks, six defenses (as the paper describes them, stubs included), three corpora, two modes and two ε, for the
model at hand; what the paper leaves open is read as the attacks' cards and the defenses' docstrings say.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ragtrace.errors import RagtraceError
from ragtrace.papers.mind_the_hook.plan import Design, Run

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from rich.console import Console

    from ragtrace import audit
    from ragtrace.papers.mind_the_hook.cells import Failure
    from ragtrace.papers.mind_the_hook.conduct import Bench
    from ragtrace.record.setup import Tracing

__all__ = ["QUICK", "Design", "main"]

QUICK = replace(
    Design(),
    queries=3, members=3, non_members=5, documents=20, top_k=3, corpora=("synthetic_email",), modes=("single_turn",),
    epsilons=(1.0,), attacks=("prompt_stealing", "rag_thief", "mi_response"), canary_queries=4, canary_documents=16,
    max_tokens=64,
)  # fmt: skip
"""A small part for a first look: one corpus, three attacks, one mode and ε, three documents in each prompt."""
SECONDS_A_CALL = 4.1
"""The embedded model, on two cores: five documents of two thirds of a kilobyte in each prompt."""
SHARED = 0.45
"""At most so much of what is asked reaches the model: cells that share prompts share generations."""
METRICS = ("nel_*", "canary_*", "mi_response_*", "extraction_*")


def main(
    design: Design, out: Path, console: Console, *, data: Path | None = None, recommended: bool = False,
    dry_run: bool = False,
) -> None:  # fmt: skip
    """Runs what has not been run yet into ``out/mind-the-hook.duckdb``, prints the tables, and writes them beside it.

    A cell whose run fails is a cell with an error: it is named, in ``cells.csv`` as well, and the others go on.

    :param recommended: also the combination of the five that the battery recommends, as an arm of its own.
    """
    from ragtrace.models import chat
    from ragtrace.papers import printing
    from ragtrace.papers.mind_the_hook.cells import cells, to_csv
    from ragtrace.papers.mind_the_hook.conduct import CANARY_RUN, Bench
    from ragtrace.papers.mind_the_hook.leaks import Leaks
    from ragtrace.papers.mind_the_hook.tables import tables
    from ragtrace.report.reporting import write
    from ragtrace.retrievers import embedder
    from ragtrace.score import score
    from ragtrace.store import open as open_store

    started = time.monotonic()
    if recommended:
        design = replace(design, recommended=_recommended())
    runs = list(design.runs())
    queries = sum(len(design.arms(run)) * design.size(run.attack) for run in runs)
    canary = len(design.canary_seeds) * len(design.labels) * design.canary_queries
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
        leaks = Leaks(db, design)
        made = list(tables(db, design, leaks))
        lines = cells(db, design, leaks, errors)
    notes = [
        f"model {model.name}, {design.documents} documents a corpus, top-{design.top_k}, "
        f"{design.queries} queries a cell, seeds {', '.join(map(str, design.seeds))}; "
        f"canaries: {len(design.canary_seeds)} seeds",
        f"{model.cache.misses} model calls for {queries + canary} queries ({model.cache.hits} shared)",
        *(["one seed: a case study, no finding"] if len(design.seeds) == 1 else []),
        *([f"{len(design.seeds)} of the 5 seeds that a finding needs"] if 1 < len(design.seeds) < 5 else []),
        f"{sum(line.status == 'done' for line in lines)} of {len(lines)} cells are done; each is a line of cells.csv",
        "the paper's e-mail (2.25) and person (1.75) means add up to 4.00, not to its NEL strict of 3.93",
        *(["a tiny model: these numbers are instrument checks, not findings about any model"]
          if design.model == "embedded" else []),
        *(f"error: {name}: {one.error}" for name, found in errors.items() for one in found),
    ]  # fmt: skip
    printing.to_console(made, console)
    write(out / "tables.md", printing.to_markdown("Mind the Hook (arXiv 2608.09001)", made, notes))
    write(out / "tables.json", printing.to_json(made, notes))
    write(out / "cells.csv", to_csv(lines))
    for note in notes:
        console.print(note, markup=False)
    console.print(f"{time.monotonic() - started:.0f} s. Traces and results: {database}; {out}/tables.md")


def _any(pattern: str) -> bool:
    from fnmatch import fnmatchcase

    from ragtrace.metrics import load

    return any(fnmatchcase(name, pattern) for name in load())


def _recommended() -> tuple[str, ...]:
    """What the battery recommends to combine, of the five that do something."""
    from ragtrace.capabilities import combine
    from ragtrace.inventory.battery import battery
    from ragtrace.papers.mind_the_hook.plan import defenses

    given = defenses(1.0, 101)
    return tuple(d.name for d in combine(battery(*given), given))


def _ask(design: Design, bench: Bench, database: Path, console: Console) -> dict[str, list[Failure]]:
    """Every run and the canary experiment; by run, the errors of those that could not be finished."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    import ragtrace
    from ragtrace.papers.mind_the_hook import conduct
    from ragtrace.papers.mind_the_hook.cells import Failure
    from ragtrace.report.terminal import harmless
    from ragtrace.store import open as open_store

    with open_store(database) as db:
        grid = {run: conduct.done(db, run.id, conduct.signature(design, run.attack)) for run in design.runs()}
        canaries = conduct.done(db, conduct.CANARY_RUN, conduct.signature(design, "canary"))
    tracing = ragtrace.setup(database, capture="full")
    errors: dict[str, list[Failure]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("runs", total=len(grid) + len(design.canary_seeds))

            def told(name: str, failures: list[str], arm_told: bool = True) -> None:
                progress.advance(bar)
                for failure in failures:
                    arm = failure.partition("/")[0] if arm_told else None
                    errors.setdefault(name, []).append(Failure(arm, harmless(failure)))
                if not console.is_terminal:
                    console.print(f"{name}: done, {bench.chat.cache.misses} model calls so far", markup=False)

            for run, before in grid.items():
                try:
                    told(run.id, _one(design, bench, run, before, tracing))
                except RagtraceError as error:  # a corpus that is not there, an attack that cannot be carried out
                    told(run.id, [str(error)], arm_told=False)
            for seed in design.canary_seeds:
                try:
                    report = bench.canaries(seed, canaries, tracing, lambda _: None)
                    told(f"canaries, seed {seed}", report.failures)
                except RagtraceError as error:
                    told(f"canaries, seed {seed}", [str(error)], arm_told=False)
    finally:
        tracing.shutdown()
    return errors


def _one(design: Design, bench: Bench, run: Run, before: audit.Done, tracing: Tracing) -> list[str]:
    if before.finished >= {arm.name for arm in design.arms(run)}:
        return []
    return bench.run(run, before, tracing, lambda _: None).failures


def _store_witnesses(db: duckdb.DuckDBPyConnection) -> None:
    """What source and battery say of the six, so that the verdicts rest on three witnesses."""
    from ragtrace import audit
    from ragtrace.inventory import inventory
    from ragtrace.inventory.battery import battery
    from ragtrace.papers.mind_the_hook.plan import defenses

    found = defenses(1.0, 101)
    audit.store_inventory(db, inventory(*found))
    audit.store_battery(db, battery(*found))
