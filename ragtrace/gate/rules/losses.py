"""``[losses]``: is anything missing from what was recorded?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ragtrace.gate.outcomes import Finding
from ragtrace.gate.rules.base import Evidence, Rule, no_data


@dataclass(frozen=True, kw_only=True)
class Losses(Rule):
    """No more spans were lost on their way than the policy allows.

    :param most: spans, of all processes together: dropped by a full queue, refused by the disk, removed to keep the
        spool's limit, or gone with a killed process.
    """

    name = "losses"
    most: int = 0

    def judge(self, evidence: Evidence) -> Iterator[Finding]:
        """One finding, with the causes."""
        (row,) = evidence.rows(
            "SELECT count(*) AS processes, coalesce(sum(lost), 0) AS lost, coalesce(sum(ended), 0) AS ended, "
            "coalesce(sum(dropped), 0) AS dropped, coalesce(sum(failed), 0) AS failed, "
            "coalesce(sum(rotated), 0) AS rotated, coalesce(sum(killed), 0) AS killed FROM losses"
        )
        if not row["processes"]:
            yield no_data("losses", "no process has counted its spans (imported traces, or nothing recorded yet)")
        elif row["lost"] > self.most:
            causes = ", ".join(f"{row[c]} {c}" for c in ("dropped", "failed", "rotated", "killed") if row[c])
            yield Finding(
                "losses",
                f"{row['lost']} of {row['ended']} spans lost ({causes}), at most {self.most} expected; "
                "see `ragtrace sql \"FROM losses\"`",
            )  # fmt: skip


RULE = Losses
