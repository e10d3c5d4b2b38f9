"""``ragtrace papers s2mia``: Tables 1 to 4 of S²MIA (arXiv 2406.19234) for the model at hand.

The design is the paper's: 80 % of the data set in the index, top-5, a reference set of ``size`` members and ``size``
non-members, as many others to evaluate on, the question part sent, ROC and PR AUC. What the paper leaves open is read
as ``ragtrace.attacks.s2mia`` and the other attacks say; its models are replaced by the one at hand.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ragtrace.papers.s2mia.plan import NEWER_ATTACKS, PAPER_ATTACKS, PAPER_SIZE, Design, cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ragtrace.models import Chat
    from ragtrace.papers.s2mia.conduct import Prepared

__all__ = ["NEWER_ATTACKS", "PAPER_ATTACKS", "PAPER_SIZE", "Design", "main"]

SECONDS_A_CALL = 1.0
"""The embedded model, on two cores: prompts of five short documents."""
_SHOWN = 5
_EVERY = 100


def main(
    design: Design,
    out: Path,
    console: Console,
    *,
    data: Path | None = None,
    concurrency: int = 1,
    dry_run: bool = False,
) -> None:
    """Runs what has not been run yet into ``out/s2mia.duckdb``, prints the tables, and writes them beside it.

    :param data: folder with the datasets' files; ``None``: where ``ragtrace.corpora`` looks for them.
    :param dry_run: only print how much would be asked.
    """
    from ragtrace.models import chat
    from ragtrace.papers.s2mia import conduct

    started = time.monotonic()
    prepared = [conduct.prepare(design, cell, data) for cell in design.cells()]
    _announce(design, prepared, console)
    if dry_run:
        return
    out.mkdir(parents=True, exist_ok=True)
    database = out / "s2mia.duckdb"
    with chat(design.model, max_tokens=design.max_tokens) as model:
        _ask(design, prepared, model, database, console, concurrency)
    notes = [
        f"model {model.name}, retrievers {', '.join(design.retrievers)}, seed {design.seed}; reference set "
        f"{design.size} + {design.size} targets, evaluation set {design.size} + {design.size} others",
        f"{model.cache.misses} model calls, {model.cache.hits} saved by equal prompts",
        "one seed: a case study, no finding",
    ]
    if design.model == "embedded":
        notes.append("a tiny model: these numbers are instrument checks, not findings about any model")
    _report(design, prepared, database, out, console, notes)
    console.print(f"{time.monotonic() - started:.0f} s. Traces and results: {database}; {out}/tables.md, figure2.svg")


def _announce(design: Design, prepared: Sequence[Prepared], console: Console) -> None:
    """How much will be asked at most, before anything is."""
    calls = 0
    for one in prepared:
        planned = cost(one.arms, one.probes)
        calls += planned.calls
        console.print(
            f"{one.cell.name}: {len(one.corpus.members)} documents indexed, {len(one.corpus.non_members)} outside "
            f"({one.removed} near duplicates removed); {len(one.probes)} probes, {len(one.arms)} arms: "
            f"{planned.requests} requests, at most {planned.calls} model calls"
        )
    hours = calls * SECONDS_A_CALL / 3600
    guess = f", about {hours:.1f} h with the embedded model on two cores" if design.model == "embedded" else ""
    console.print(f"In all at most {calls} model calls{guess}; equal prompts are asked once.")


def _ask(
    design: Design, prepared: Sequence[Prepared], model: Chat, database: Path, console: Console, concurrency: int
) -> None:
    """Sends what has no answer in the database yet."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    import ragtrace
    from ragtrace.papers.s2mia import conduct
    from ragtrace.report.terminal import harmless
    from ragtrace.store import open as open_store

    with open_store(database) as db:
        before = {one.cell: conduct.check(db, design, one) for one in prepared}
    tracing = ragtrace.setup(database, capture="full")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            for one in prepared:
                total = cost(one.arms, one.probes).requests
                bar = progress.add_task(one.cell.name, total=total, completed=len(before[one.cell].answered))

                def step(arm: str, one: Prepared = one, bar: object = bar, total: int = total) -> None:
                    progress.advance(bar)  # type: ignore[arg-type]
                    done = int(progress.tasks[-1].completed)
                    if not console.is_terminal and (done % _EVERY == 0 or done == total):
                        console.print(f"{one.cell.name}, {arm}: {done} of {total}, {model.cache.misses} model calls")

                report = conduct.ask(
                    design, one, model, before=before[one.cell], tracing=tracing, concurrency=concurrency, step=step
                )
                for failure in report.failures[:_SHOWN]:
                    console.print(f"failed: {harmless(failure)}")
                if (more := len(report.failures) - _SHOWN) > 0:
                    console.print(f"failed: {more} more, in the view probes with status ERROR")
    finally:
        tracing.shutdown()


def _report(
    design: Design, prepared: Sequence[Prepared], database: Path, out: Path, console: Console, notes: list[str]
) -> None:
    """Scores what is stored, prints the tables and writes them."""
    from ragtrace.papers import printing
    from ragtrace.papers.s2mia import conduct
    from ragtrace.papers.s2mia.figure import figure_2
    from ragtrace.papers.s2mia.tables import Results, tables
    from ragtrace.report.reporting import write
    from ragtrace.score import score
    from ragtrace.store import open as open_store

    with open_store(database) as db:
        for one in prepared:
            conduct.weigh(db, design, one.cell, console.print)
            score(db, conduct.run_id(design, one.cell), conduct.metrics(design))
        every = list(tables(Results(db, design)))
        made = [one for one in every if printing.was_run(one)]
        figure_2(db, design, out / "figure2.svg")
    if left := [one.title.partition(",")[0] for one in every if one not in made]:
        notes.append(f"not run: {'; '.join(left)}")
    printing.to_console(made, console)
    write(out / "tables.md", printing.to_markdown("S²MIA (arXiv 2406.19234), Tables 1 to 4", made, notes))
    write(out / "tables.json", printing.to_json(made, notes))
    for note in notes:
        console.print(note)
