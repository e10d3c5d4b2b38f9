"""``[defenses_act]``: where does each defense really act?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ragtrace.gate.outcomes import Finding
from ragtrace.gate.rules.base import VERDICTS, DefenseRule, Evidence, known, no_data, subject

_UNJUDGED = ("dormant", "not_run", "unknown")
VERDICTS_SQL = """
SELECT defense, hook, verdict, evidence, bypassed_paths, file, line FROM verdicts
ORDER BY defense, list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook)
"""


@dataclass(frozen=True, kw_only=True)
class DefensesAct(DefenseRule):
    """Every defense acts at every hook that it declares, on every path.

    ``silent_stub``, ``pass_through``, ``bypassed``, ``error`` and ``undeclared`` are breaches. A defense that met
    nothing to change here (``dormant``), whose hook was never crossed (``not_run``), or that nobody compared
    (``unknown``) cannot be judged.

    :param allow: verdicts that are fine beside ``active``.
    """

    name = "defenses_act"
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known(self.allow, VERDICTS, "verdict")

    def judge(self, evidence: Evidence) -> Iterator[Finding]:
        """One finding for each defense and hook of another verdict."""
        rows = evidence.rows(VERDICTS_SQL)
        if not rows:
            yield no_data("defenses", "no defense is declared, observed or inventoried in this database")
        for row in rows:
            if row["verdict"] == "active" or row["verdict"] in self.allow:
                continue
            unjudged = row["verdict"] in _UNJUDGED
            found = Finding(
                subject(row["defense"], row["hook"]),
                f"{'no data: ' if unjudged else ''}{row['verdict']}: {row['evidence']}",
                "no data" if unjudged else "breach", row["file"], row["line"],
            )  # fmt: skip
            yield self.excused(found, row["defense"], row["hook"])


RULE = DefensesAct
