"""An active audit: arms × probes over an app, every answer traced, then scored from the store.

The app is any callable that takes a query and runs an instrumented pipeline. Each arm is the same app with other
defenses switched on.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from ragtrace.defense import Defense, defend
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a
from ragtrace.record.capture import dumps
from ragtrace.record.scope import probing
from ragtrace.types import Canary, Probe

if TYPE_CHECKING:
    import duckdb

    from ragtrace.inventory import DefenseFinding
    from ragtrace.inventory.battery import Battery
    from ragtrace.record.setup import Tracing

_log = logging.getLogger("ragtrace")


@dataclass(frozen=True)
class Arm:
    """One set of defenses, under the name by which the store knows it; ``none`` is the baseline."""

    name: str
    defenses: tuple[Defense, ...] = ()


@dataclass
class AuditReport:
    """What was asked, and what the app failed to answer."""

    run_id: str
    asked: int = 0
    failures: list[str] = field(default_factory=list)


def run(
    app: Callable[[str], Any],
    arms: Sequence[Arm],
    probes: Iterable[Probe],
    *,
    tracing: Tracing,
    canaries: Sequence[Canary] = (),
    facts: dict[str, Any] | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> AuditReport:
    """Sends every probe through every arm. A failing request is recorded and counted; the audit goes on.

    :param facts: what else belongs into the run's manifest (corpus, model, parameters).
    :param step: called after each request with the arm's name, for progress.
    :raises UsageError: no arms, two arms of one name, or no probes.
    """
    questions = list(probes)
    names = [arm.name for arm in arms]
    if not arms or not questions or len(set(names)) != len(names):
        raise UsageError(
            "an audit needs arms of different names and at least one probe; "
            f"got arms {names} and {len(questions)} probes"
        )
    report = AuditReport(run_id=f"run-{uuid.uuid4().hex[:12]}")
    _manifest(report.run_id, arms, canaries, facts or {}, tracing)
    for arm in arms:
        for probe in questions:
            with defend(*arm.defenses), probing(report.run_id, arm.name, probe):
                try:
                    app(probe.query)
                except Exception as error:
                    _log.debug("probe %s failed in arm %s", probe.probe_id, arm.name, exc_info=True)
                    report.failures.append(f"{arm.name}/{probe.probe_id}: {type(error).__name__}: {error}")
            report.asked += 1
            step(arm.name)
    tracing.flush()
    return report


def _manifest(
    run_id: str, arms: Sequence[Arm], canaries: Sequence[Canary], facts: dict[str, Any], tracing: Tracing
) -> None:
    manifest = facts | {
        "arms": {arm.name: [d.name for d in arm.defenses] for arm in arms},
        "constants": {arm.name: sorted(set().union(*(d.constants() for d in arm.defenses))) for arm in arms},
        "canaries": [asdict(c) for c in canaries],
    }
    with trace.get_tracer(a.SCOPE, tracer_provider=tracing.provider).start_as_current_span("run") as span:
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
