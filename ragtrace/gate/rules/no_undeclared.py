"""``[no_undeclared]``: does anything act that nobody said acts?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ragtrace.gate.outcomes import Finding
from ragtrace.gate.rules.base import DefenseRule, Evidence, no_data, subject
from ragtrace.gate.rules.defenses_act import VERDICTS_SQL


@dataclass(frozen=True, kw_only=True)
class NoUndeclared(DefenseRule):
    """No defense acts where it does not say so.

    :param only: the defenses that there may be; one that is seen at work and is not in the list is a breach. Without a
        list, a part that no one declared (a framework's compressor, say) is fine.
    """

    name = "no_undeclared"
    only: tuple[str, ...] | None = None

    def judge(self, evidence: Evidence) -> Iterator[Finding]:
        """One finding for each defense and hook."""
        rows = evidence.rows(VERDICTS_SQL)
        if not evidence.rows("SELECT 1 FROM stages LIMIT 1"):
            yield no_data("stages", "no retrieval, context or generation is recorded in this database")
        seen = {r["defense"] for r in evidence.rows("SELECT DISTINCT defense FROM effects")}
        seen |= {r["defense"] for r in evidence.rows("SELECT DISTINCT defense FROM foreign_parts")}
        for row in rows:
            defense, hook = row["defense"], row["hook"]
            if row["verdict"] == "undeclared":
                said = f"acts at {hook}, which it does not declare: {row['evidence']}"
            elif self.only is not None and defense in seen and defense not in self.only:
                said = f"is at work, and the policy lists only {', '.join(self.only) or 'none'}"
            else:
                continue
            yield self.excused(Finding(subject(defense, hook), said, file=row["file"], line=row["line"]), defense, hook)


RULE = NoUndeclared
