"""An audit from its file to its report: every seed's corpus, every arm, the three witnesses, scores."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace import audit, likelihood
from ragtrace.attacks._likelihood import ASKS as LIKELIHOOD

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.audit_file import AuditFile
    from ragtrace.defense import Defense
    from ragtrace.inventory.battery import Battery
    from ragtrace.types import Corpus, Probe


class _Round(NamedTuple):
    """What is asked with one seed."""

    seed: int
    corpus: Corpus
    probes: list[Probe]
    sessions: list[audit.Session]
    requests: int

    @property
    def facts(self) -> dict[str, int]:
        """What of it belongs into the run's manifest."""
        return {"seed": self.seed, "members": len(self.corpus.members)}


def _round(file: AuditFile, seed: int) -> _Round:
    corpus = file.corpus(seed)
    adaptive: list[Any] = [attack for attack in file.attacks if hasattr(attack, "session")]
    probes = audit.distinct(p for a in file.attacks if hasattr(a, "probes") for p in a.probes(corpus, seed))
    sessions: list[audit.Session] = [partial(attack.session, corpus, seed) for attack in adaptive]
    budget = len(file.arms) * sum(getattr(attack, "budget", 0) for attack in adaptive)
    return _Round(seed, corpus, probes, sessions, budget + sum(len(arm.gets(probes)) for arm in file.arms))


def _with_recommended(file: AuditFile, defenses: list[Defense], tried: list[Battery], console: Console) -> AuditFile:
    """The audit with one arm more: the fewest of its defenses that keep out of responses what any of them can."""
    from ragtrace.audit_file import RECOMMENDED
    from ragtrace.capabilities import combine

    chosen = combine(tried, defenses)
    names = " + ".join(d.name for d in chosen)
    if not chosen:
        console.print("recommended: none of the defenses takes anything out of a response, so there is no such arm")
        return file
    if same := [arm.name for arm in file.arms if {d.name for d in arm.defenses} == {d.name for d in chosen}]:
        console.print(f"recommended: {names}, which is the arm {same[0]}", markup=False)
        return file
    console.print(f"recommended: {names}, an arm of its own", markup=False)
    return replace(file, arms=(*file.arms, audit.Arm(RECOMMENDED, chosen)))


def conduct(file: AuditFile, console: Console, *, dry_run: bool = False) -> str | None:
    """Runs the audit into its database and prints verdicts and results; returns the run's id.

    :param file: what to audit, by ``ragtrace.audit_file.read`` or ``made``. :param console: where progress is shown.
    :param dry_run: only say how much would be asked; nothing is imported or written then.
    """
    from rich.progress import Progress

    import ragtrace
    from ragtrace.inventory import inventory
    from ragtrace.inventory.battery import battery
    from ragtrace.report import terminal
    from ragtrace.score import check_packages, score
    from ragtrace.store import open as open_store

    if not dry_run:
        check_packages()
    found = list({d.name: d for d in file.defenses}.values())
    tried = battery(*found) if found and file.recommended and not dry_run else []
    if tried:
        file = _with_recommended(file, found, tried, console)
    drawn = [_round(file, seed) for seed in file.seeds]
    requests = sum(one.requests for one in drawn)
    console.print(f"{len(file.arms)} arms, {len(file.seeds)} seeds: at most {requests} requests to {file.app}")
    if dry_run:
        if file.recommended:
            console.print("With the arm recommended, unless it is one of these already: one arm more.")
        return None
    tracing = ragtrace.setup(file.db, capture=file.capture)
    run = f"run-{uuid.uuid4().hex[:12]}"
    asked, failures = 0, list[str]()
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("requests", total=requests)
            for one in drawn:
                report = audit.run(
                    file.ask(one.corpus.members), file.arms, one.probes, sessions=one.sessions, mode=file.mode,
                    tracing=tracing, canaries=one.corpus.canaries, facts=file.facts | one.facts,
                    step=lambda _: progress.advance(bar), concurrency=file.concurrency,
                    resume=audit.Done(run),
                )  # fmt: skip
                asked += report.asked
                failures += report.failures
                if not console.is_terminal:
                    console.print(f"seed {one.seed}: {report.asked} requests, {len(report.failures)} failed")
    finally:  # also where the app cannot be made, or the audit is interrupted
        tracing.shutdown()
    with open_store(file.db) as db:
        if found:
            audit.store_inventory(db, inventory(*found))
            audit.store_battery(db, tried or battery(*found))
        if any(getattr(a, "probed_as", None) == LIKELIHOOD for a in file.attacks):
            console.print("Scoring the targets' own texts with the embedded model.")
            likelihood.fill(db, run)
        score(db, run)
        terminal.verdicts(db, console)
        terminal.results(db, console, run)
    for failure in failures[:20]:
        console.print(f"failed: {terminal.harmless(failure)}")
    if len(failures) > 20:
        console.print(f"failed: {len(failures) - 20} more, in the view probes with status ERROR")
    console.print(f"{asked} requests, {len(failures)} failed. Traces: {file.db}, run {run}")
    return run
