"""``[probes]``: was enough asked for the other rules to mean anything?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ragtrace.errors import UsageError
from ragtrace.gate.outcomes import Finding
from ragtrace.gate.rules.base import Evidence, Rule, no_data, subject


@dataclass(frozen=True, kw_only=True)
class Probes(Rule):
    """Enough probes were answered in every arm.

    :param least: probes answered, of each attack in each arm.
    :param answered: the share of the probes sent, in [0, 1], that must have an answer.
    :param attacks: attacks that must be there; without, those that are.
    :param arms: the arms to judge; by default all but the undefended one and the controls.
    """

    name = "probes"
    least: int = 1
    answered: float = 0.95
    attacks: tuple[str, ...] | None = None
    arms: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.answered <= 1:
            raise UsageError(f"answered is {self.answered:g}; expected a share in [0, 1]")

    def judge(self, evidence: Evidence) -> Iterator[Finding]:
        """One finding for each arm and attack."""
        arms, missing = evidence.arms(self.arms)
        yield from missing
        rows = evidence.rows(
            "SELECT arm, attack, count(DISTINCT (run_id, probe_id)) AS sent, "
            "count(DISTINCT (run_id, probe_id)) FILTER (status <> 'ERROR') AS answered FROM probes GROUP BY ALL"
        )
        there = {(r["arm"], r["attack"]): r for r in rows}
        attacks = self.attacks or tuple(sorted({r["attack"] for r in rows if r["attack"]}))
        for arm in arms:
            for attack in attacks:
                row = there.get((arm, attack))
                if row is None:
                    yield no_data(subject(arm, attack), "no probe of this attack was sent in this arm")
                elif row["answered"] < self.least or row["answered"] < self.answered * row["sent"]:
                    yield Finding(
                        subject(arm, attack),
                        f"{row['answered']} of {row['sent']} probes answered, expected at least "
                        f"{self.least} and {self.answered:.0%}",
                    )


RULE = Probes
