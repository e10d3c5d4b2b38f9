"""``[not_worse]``: did a verdict get worse since the baseline?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ragtrace.gate.outcomes import Finding
from ragtrace.gate.rules.base import VERDICTS, DefenseRule, Evidence, no_data, subject
from ragtrace.gate.rules.defenses_act import VERDICTS_SQL


@dataclass(frozen=True, kw_only=True)
class NotWorse(DefenseRule):
    """No verdict got worse than in the baseline.

    From best to worst: active, dormant, undeclared, unknown, not_run, pass_through, silent_stub, error, bypassed. A
    defense that is no longer there got worse; one that is bypassed on a further path did as well. A new one has nothing
    to be compared with, and is left to ``defenses_act``.
    """

    name = "not_worse"

    def judge(self, evidence: Evidence) -> Iterator[Finding]:
        """One finding for each defense and hook of the baseline."""
        if evidence.baseline is None:
            yield no_data("baseline", "nothing to compare with; give --baseline DB, or take the rule out")
            return
        before = evidence.rows(VERDICTS_SQL, of_baseline=True)
        now = {(r["defense"], r["hook"]): r for r in evidence.rows(VERDICTS_SQL)}
        if not before:
            yield no_data("baseline", "the baseline has no verdicts: no defense is declared, seen or inventoried there")
        for row in before:
            key = row["defense"], row["hook"]
            if (said := _worse(row, now.get(key))) is None:
                continue
            there = now.get(key, {"file": None, "line": None})
            yield self.excused(Finding(subject(*key), said, file=there["file"], line=there["line"]), *key)


def _worse(before: dict[str, Any], now: dict[str, Any] | None) -> str | None:
    was = before["verdict"]
    if now is None:
        return f"was {was} in the baseline, and is not there any more"
    if VERDICTS.index(now["verdict"]) > VERDICTS.index(was):
        return f"was {was} in the baseline, is {now['verdict']}: {now['evidence']}"
    further = _paths(now) - _paths(before)
    if was == now["verdict"] == "bypassed" and further:
        return f"is bypassed on {', '.join(sorted(further))} too, which it was not in the baseline"
    return None


def _paths(row: dict[str, Any]) -> set[str]:
    return set((row["bypassed_paths"] or "").split(", ")) - {""}


RULE = NotWorse
