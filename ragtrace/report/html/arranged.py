"""The report's rows arranged as they are read: for every format, so nothing here needs the extra of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ragtrace.report.terminal import harmless
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    from ragtrace.report.html.data import Report

Row = dict[str, Any]

GRAVE = ("bypassed", "silent_stub", "error", "undeclared")
"""Verdicts that somebody must look at, worst first."""
ORDER = (*GRAVE, "unknown", "pass_through", "dormant", "not_run", "active")
_SAID = {
    "bypassed": "its hook was crossed without it",
    "silent_stub": "in place, and returns its input",
    "error": "fails",
    "undeclared": "acts where it does not say",
}
_MANY = 1_000  # results
_NAME = 100
_UTILITY = ("utility_token_f1", "utility_exact_match", "utility_bleu_to_undefended", "utility_refusal_rate")


def number(value: float | None) -> str:
    """A number for people."""
    return "–" if value is None else f"{value:.2f}"


def interval(row: Row) -> str:
    """The 95 % interval in words; one that has a single end, or none, says so."""
    low, high = row["ci_low"], row["ci_high"]
    if low is None and high is None:
        return "no interval"
    return f"≥ {low:.2f}" if high is None else f"≤ {high:.2f}" if low is None else f"{low:.2f} to {high:.2f}"


def alarms(verdicts: Iterable[Row]) -> list[Row]:
    """What the reader must see first, worst first."""
    found = [row | {"said": _SAID[row["verdict"]]} for row in verdicts if row["verdict"] in GRAVE]
    return sorted(found, key=lambda row: GRAVE.index(row["verdict"]))


def matrix(verdicts: Iterable[Row]) -> list[tuple[str, dict[str | None, Row]]]:
    """Defense → hook → verdict; those that need attention first."""
    found: defaultdict[str, dict[str | None, Row]] = defaultdict(dict)
    for row in verdicts:
        found[row["defense"]][row["hook"]] = row
    return sorted(found.items(), key=lambda item: (min(_rank(r) for r in item[1].values()), str(item[0])))


def _rank(row: Row) -> int:
    return ORDER.index(row["verdict"]) if row["verdict"] in ORDER else len(GRAVE)


def by_path(paths: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    found: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in paths:
        found[row["defense"], row["hook"]].append(row)
    return dict(found)


def flow(verdicts: Iterable[Row]) -> dict[str, list[Row]]:
    """Hook → what was met there; defenses that no request ever came near are left out."""
    return {
        hook: sorted(
            (r for r in verdicts if r["hook"] == hook and ((r["runs"] or 0) or (r["crossings"] or 0))), key=_rank
        )
        for hook in HOOKS
    }


def tables(report: Report) -> list[Row]:
    """For each run: its arms, and a line a metric with a cell an arm."""
    observes = {row["metric"]: row["observes"] for row in report.sections["metrics"]}
    made = []
    runs: defaultdict[str, list[Row]] = defaultdict(list)
    for row in report.sections["results"]:
        runs[row["run_id"]].append(row)
    for run, found in runs.items():
        arms = sorted({row["arm"] for row in found}, key=lambda arm: (arm != "none", str(arm)))
        corpora = {row["corpus"] for row in found}
        lines: dict[tuple[Any, ...], dict[str, Row]] = {}
        for row in found:
            lines.setdefault((row["metric"], row["attack"], row["corpus"]), {})[row["arm"]] = row
        read = [
            {"metric": m, "attack": a, "corpus": c if len(corpora) > 1 else None, "observes": observes.get(m),
             "cells": cells, "why": _why(cells), **_signatures(cells)}
            for (m, a, c), cells in lines.items() if any(cell["value"] is not None for cell in cells.values())
        ]  # fmt: skip
        empty = [
            {"metric": m, "attack": a, "reason": next(iter(cells.values()))["reason"]}
            for (m, a, _), cells in lines.items()
            if all(cell["value"] is None for cell in cells.values())
        ]
        made.append({"run": run, "arms": arms, "lines": read, "empty": empty, "reasons": []})
        if len(report.sections["results"]) > _MANY:
            made[-1]["reasons"] = _numbered(read)
    return made


def _numbered(lines: list[Row]) -> list[str]:
    """A large report tells each reason once a run: the reasons in their order, and their numbers in the lines."""
    found: dict[str, int] = {}
    for why in (why for line in lines for why in line["why"]):
        why["number"] = found.setdefault(why["reason"] or "no reason stored", len(found) + 1)
    return list(found)


def _why(cells: dict[str, Row]) -> list[Row]:
    """Each reason once, with the arms that it holds for."""
    found: dict[tuple[str, str], Row] = {}
    for arm, row in cells.items():
        kept = found.setdefault(
            (row["interpretable"], row["reason"]),
            {"reading": row["interpretable"], "reason": row["reason"], "arms": [], "certificate": row["certificate"]},
        )
        kept["arms"].append(f"{harmless(arm, _NAME)} (n={row['n']})")
    return list(found.values())


def _signatures(cells: dict[str, Row]) -> Row:
    """What the arms' signatures share, and what is each one's own."""
    parts = {arm: (row["signature"] or "").split("|") for arm, row in cells.items()}
    shared = [p for p in next(iter(parts.values())) if all(p in own for own in parts.values())]
    kept = set(shared)
    own = {arm: "|".join(p for p in given if p not in kept) for arm, given in parts.items()}
    return {"signature": "|".join(shared), "own": {arm: rest for arm, rest in own.items() if rest}}


def split(channels: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Arm → channel → counts."""
    found: defaultdict[str, dict[str, Row]] = defaultdict(dict)
    for row in channels:
        found[row["arm"]][row["channel"]] = row
    return dict(found)


def families(capabilities: list[Row]) -> Row:
    """Heads (defense and hook) and lines (family → head → what happened) of the capability table."""
    found: defaultdict[str, dict[tuple[str, str | None], Row]] = defaultdict(dict)
    for row in capabilities:
        found[row["family"]][row["defense"], row["hook"]] = row
    heads = dict.fromkeys((row["defense"], row["hook"]) for row in capabilities)
    return {"heads": list(heads), "lines": sorted(found.items(), key=lambda item: str(item[0]))}


def trades(numbers: list[Row]) -> list[Row]:
    """Each arm's utility beside its leakage: one utility a run, the first that it has, beside every leakage."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in numbers:
        found[row["run_id"]].append(row)
    made = []
    for run, rows in found.items():
        utility = next((u for u in _UTILITY if any(r["metric"] == u for r in rows)), None)
        useful = {r["arm"]: r for r in rows if r["metric"] == utility}
        for r in rows:
            leaks = str(r["metric"]).startswith("canary_recovery") or str(r["metric"]).endswith("roc_auc")
            if leaks and r["metric"] != "blind_roc_auc" and r["arm"] in useful:
                u = useful[r["arm"]]
                made.append({
                    "run_id": run, "arm": r["arm"], "utility_metric": utility, "leakage_metric": r["metric"],
                    "utility": (u["value"], u["ci_low"], u["ci_high"]),
                    "leakage": (r["value"], r["ci_low"], r["ci_high"]),
                })  # fmt: skip
    return made
