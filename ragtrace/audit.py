"""An active audit: arms × probes over an app, every answer traced, then scored from the store.

The app is any callable that takes a query and runs an instrumented pipeline. Each arm is the same app with other
defenses switched on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace

from ragtrace.asking import Asking, AuditReport, Piece, Turns, pieces
from ragtrace.defense import Defense, defend
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a
from ragtrace.record.capture import dumps
from ragtrace.types import Canary, Probe

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import duckdb
    from opentelemetry.trace import Span

    from ragtrace.inventory import DefenseFinding
    from ragtrace.inventory.battery import Battery
    from ragtrace.record.setup import Tracing

Session = Callable[[], Generator[Probe, "str | None", None]]
"""Begins an attacker who adapts."""


@dataclass(frozen=True)
class Arm:
    """One set of defenses, under the name by which the store knows it; ``none`` is the baseline.

    :param attacks: names of the attacks (as in ``probes``) whose probes it gets; ``None``: all of them.
    """

    name: str
    defenses: tuple[Defense, ...] = ()
    attacks: tuple[str, ...] | None = None

    def gets(self, probes: Iterable[Probe]) -> list[Probe]:
        """The probes that are sent in this arm."""
        return [p for p in probes if self.attacks is None or p.attack in self.attacks]


def run(
    app: Callable[[str], Any],
    arms: Sequence[Arm],
    probes: Iterable[Probe],
    *,
    tracing: Tracing,
    canaries: Sequence[Canary] = (),
    facts: dict[str, Any] | None = None,
    step: Callable[[str], None] = lambda _: None,
    concurrency: int = 1,
    resume: Done | None = None,
    sessions: Sequence[Session] = (),
    mode: Turns = "single_turn",
) -> AuditReport:
    """Sends every probe through every arm. A failing request is recorded and counted; the audit goes on.

    Probes of equal id are one probe: attacks may share theirs. Arms run one after the other, so that what one arm
    asked the model is in a generation cache when the next arm asks it again.

    A session is an attacker who adapts: a generator that yields a probe and is sent its answer (``None`` where the
    request failed). It begins anew in every arm, so that it adapts to what it meets there.

    :param app: a function, or a coroutine function (its requests then run in one event loop).
    :param tracing: what ``ragtrace.setup`` gave back. :param canaries: what was planted; scores look for it.
    :param sessions: functions that begin a session.
    :param facts: what else belongs into the run's manifest (corpus, model, parameters).
    :param step: called after each request with the arm's name, for progress; never by two threads at once.
    :param concurrency: requests under way at a time, ≥ 1. With more than one, ``app`` must bear threads.
    :param resume: a run that was cut short, by :func:`done`: what it has answers for is not asked again. A session that
        did not come to its end is gone through again, since each query follows from the answers before it; so is a
        conversation, since budgets are spent over it. Where a probe was sent twice, the last time counts.
    :param mode: ``multi_turn`` puts an attack's probes of one seed into one conversation, in order and one at a time:
        a defense with a budget spends it over them.
    :raises UsageError: no arms, two arms of one name, no probes, two probes of one id, or a concurrency below 1.
    """
    questions = distinct(probes)
    names = [arm.name for arm in arms]
    if not arms or not (questions or sessions) or len(set(names)) != len(names):
        raise UsageError(
            "an audit needs arms of different names and at least one probe; "
            f"got arms {names} and {len(questions)} probes"
        )
    if concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}; expected at least 1 request at a time")
    report = AuditReport(resume.run_id if resume else f"run-{uuid.uuid4().hex[:12]}")
    _manifest(report.run_id, arms, canaries, facts or {}, tracing)
    answered = resume.answered if resume else frozenset()
    for arm in arms:
        begun = [] if resume and arm.name in resume.finished else list(sessions)
        wanted = arm.gets(questions)
        asked = [probe for probe in wanted if (arm.name, probe.probe_id) not in answered]
        if mode == "multi_turn":  # a defense that keeps a budget has forgotten what the first half has spent
            begun_again = {(probe.attack, probe.seed) for probe in asked}
            asked = [probe for probe in wanted if (probe.attack, probe.seed) in begun_again]
        report.skipped += len(wanted) - len(asked)
        turns = pieces(asked, mode, f"{report.run_id}/{arm.name}") + [
            Piece(session(), f"{report.run_id}/{arm.name}/{n}" if mode == "multi_turn" else None)
            for n, session in enumerate(begun)
        ]
        with defend(*arm.defenses):
            Asking(app, arm.name, report, step).all(turns, concurrency)
        with _span(tracing, "arm") as span:
            span.set_attributes({a.RUN_ID: report.run_id, a.ARM: arm.name, a.ARM_DONE: True})
    tracing.flush()
    return report


def distinct(probes: Iterable[Probe]) -> list[Probe]:
    """Each probe once, by its id.

    :raises UsageError: two different ones of one id.
    """
    found: dict[str, Probe] = {}
    for probe in probes:
        if found.setdefault(probe.probe_id, probe) != probe:
            raise UsageError(
                f"two different probes are called {probe.probe_id!r}; expected an id for each, the same in every arm: "
                "give the attacks (or their parameters) different names or seeds"
            )
    return list(found.values())


class Done(NamedTuple):
    """What a run has answers for: (arm, probe id); ``finished`` are the arms that came to their end."""

    run_id: str
    answered: frozenset[tuple[str, str]] = frozenset()
    finished: frozenset[str] = frozenset()


def done(db: duckdb.DuckDBPyConnection, run_id: str) -> Done:
    """What of a run is in the store, to go on with it. A request that failed is asked again.

    So an arm with one of those has not come to its end.
    """
    rows = db.execute(
        "SELECT DISTINCT arm, probe_id FROM probes WHERE run_id = ? AND status <> 'ERROR'", [run_id]
    ).fetchall()
    ended = db.execute(
        """
        SELECT DISTINCT arm FROM own_spans WHERE run_id = $run AND attributes->>'ragtrace.arm.done' = 'true'
            AND arm NOT IN (
                SELECT arm FROM probes WHERE run_id = $run GROUP BY arm, probe_id HAVING bool_and(status = 'ERROR'))
        """,
        {"run": run_id},
    ).fetchall()
    return Done(run_id, frozenset((arm, probe) for arm, probe in rows), frozenset(arm for (arm,) in ended))


def _span(tracing: Tracing, name: str) -> AbstractContextManager[Span]:
    return trace.get_tracer(a.SCOPE, tracer_provider=tracing.provider).start_as_current_span(name)


def _manifest(
    run_id: str, arms: Sequence[Arm], canaries: Sequence[Canary], facts: dict[str, Any], tracing: Tracing
) -> None:
    manifest = facts | {
        "arms": {arm.name: [d.name for d in arm.defenses] for arm in arms},
        "constants": {arm.name: sorted(set().union(*(d.constants() for d in arm.defenses))) for arm in arms},
        "canaries": tracing.look_for(canaries),
    }
    with _span(tracing, "run") as span:
        span.set_attributes({a.RUN_ID: run_id, a.RUN: dumps(manifest), a.CAPTURE: tracing.capture})


def store_inventory(db: duckdb.DuckDBPyConnection, findings: Iterable[DefenseFinding]) -> None:
    """Stores what the source says of each defense, in place of what it said: ``verdicts`` gains the source witness."""
    found = list(findings)
    for name in {finding.name for finding in found}:
        db.execute("DELETE FROM inventory_data WHERE defense = ?", [name])
    for finding in found:
        for hook in finding.hooks:
            db.execute(
                "INSERT INTO inventory_data VALUES (?, ?, ?, ?, ?, ?, ?)",
                [finding.name, finding.kind, hook.hook, hook.status, hook.file, hook.line, hook.reason],
            )


def store_battery(db: duckdb.DuckDBPyConnection, batteries: Iterable[Battery]) -> None:
    """Stores what each defense did to the battery's inputs, in place of what it did: the view ``capabilities``."""
    found = list(batteries)
    for name in {battery.defense for battery in found}:
        db.execute("DELETE FROM battery_data WHERE defense = ?", [name])
    for row in (row for battery in found for row in battery.to_rows()):
        db.execute(
            "INSERT INTO battery_data VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row[column] for column in _BATTERY_COLUMNS],
        )


_BATTERY_COLUMNS = (
    "defense", "kind", "hook", "family", "status", "n", "changed", "removed", "kinds", "mutates", "errors", "error",
    "deterministic", "stateful", "seconds",
)  # fmt: skip
