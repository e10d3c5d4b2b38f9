"""What the battery found, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ragtrace.report.terminal import harmless, table

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.capabilities import Mitigation, Recommendation
    from ragtrace.inventory.battery import Battery, Capability


def show(
    batteries: Sequence[Battery], mitigations: Iterable[Mitigation], advice: Recommendation | None, console: Console
) -> None:
    """Prints one row for each defense and hook, then the metrics it may move, then the recommendation."""
    rows = [row for battery in batteries for row in _rows(battery)]
    console.print(
        table(("defense", "hook", "changes", "leaves", "error", "notes"), rows, "What does each hook change?")
    )
    may = [(m.defense, m.metric, m.channel, m.attack or "any", m.reason) for m in mitigations if m.status == "moves"]
    if may:
        console.print(
            table(("defense", "metric", "channel", "attack", "because it"), may, "Which metrics may it move directly?")
        )
    if advice is not None:
        for line in _advice(advice):
            console.print(harmless(line), markup=False, highlight=False)


def to_json(
    batteries: Sequence[Battery], mitigations: Iterable[Mitigation], advice: Recommendation | None
) -> dict[str, Any]:
    """The same, complete."""
    return {
        "batteries": [
            {"defense": b.defense, "target": b.target, "kind": b.kind, "error": b.error, "rows": b.to_rows()}
            for b in batteries
        ],
        "mitigates": [asdict(m) for m in mitigations],
        "recommendation": None
        if advice is None
        else {
            "combinations": [[b.target for b in combination] for combination in advice.combinations],
            "covered": [{"family": family, "channel": channel} for family, channel in advice.covered],
            "uncovered": [asdict(gap) for gap in advice.uncovered],
            "exact": advice.exact,
        },
    }


def _rows(battery: Battery) -> list[tuple[str, ...]]:
    if battery.error is not None:
        return [(battery.defense, "", "", "", battery.error, "")]
    rows: list[tuple[str, ...]] = []
    for hook in battery.hooks:
        cells = [c for c in battery.capabilities if c.hook == hook]
        leaves = [c.family for c in cells if c.status == "leaves"]
        rows.append((battery.defense, hook, _changes(cells), ", ".join(leaves), _errors(cells), _notes(cells)))
    return rows


def _changes(cells: Sequence[Capability]) -> str:
    """What is changed, and of which families; where that is nearly all of them, of how many."""
    found: dict[tuple[str, ...], list[str]] = {}
    for cell in cells:
        if cell.status == "changes":
            found.setdefault(cell.kinds, []).append(f"{cell.family} {cell.changed}/{cell.n}")
    return "; ".join(f"{', '.join(kinds)}: {_few(families)}" for kinds, families in found.items())


def _few(families: Sequence[str]) -> str:
    return ", ".join(families) if len(families) < 10 else f"{', '.join(families[:6])} and {len(families) - 6} more"


def _errors(cells: Iterable[Capability]) -> str:
    """Each error once, with the families where it came."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        if cell.status == "not_tried":
            found.setdefault("not tried", []).append(cell.family)
        elif cell.error is not None:
            found.setdefault(cell.error, []).append(cell.family)
    return "; ".join(f"{error} ({', '.join(families)})" for error, families in found.items())


def _notes(cells: Sequence[Capability]) -> str:
    notes = {
        "not deterministic": any(c.deterministic is False for c in cells),
        "keeps state": any(c.stateful for c in cells),
        "edits its input in place": any(c.mutates for c in cells),
    }
    return ", ".join(note for note, holds in notes.items() if holds)


def _advice(advice: Recommendation) -> list[str]:
    covered = ", ".join(f"{family} ({channel})" for family, channel in advice.covered)
    lines = [f"Smallest {'' if advice.exact else 'found '}combinations that take out {covered}:"] if covered else []
    lines += [f"  {' + '.join(b.target for b in combination)}" for combination in advice.combinations]
    lines += [f"Uncovered: {gap.family} in channel {gap.channel}: {gap.reason}" for gap in advice.uncovered]
    return lines
