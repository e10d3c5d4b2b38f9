"""What paired runs say of an arm: how many answers differ from the undefended ones, and through which hooks."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

LEVEL = 0.05
"""Below this p a share of differing answers is above that of repeats of the undefended arm."""

_PAIRED = """
SELECT arm, attack, how, origin, count(*)
FROM paired JOIN (SELECT DISTINCT trace_id, attack FROM probes WHERE run_id = $run) USING (trace_id)
WHERE run_id = $run AND channel = 'response' AND how <> 'no data' GROUP BY ALL
"""
# every pair of requests with the same probe and query, without any defense
_REPEATS = """
WITH answered AS (
    SELECT probe_id, trace_id, any_value(query) AS query, (list(response_hash ORDER BY start_time DESC))[1] AS hash
    FROM generations
    WHERE run_id = $run AND arm = 'none' AND probe_id IS NOT NULL AND NOT nested GROUP BY ALL
), alike AS (
    SELECT probe_id, query, hash, count(*) AS n FROM answered WHERE hash IS NOT NULL GROUP BY ALL
), pairs AS (
    SELECT probe_id, sum(n) * (sum(n) - 1) / 2 AS pairs, sum(n * (n - 1) / 2) AS same
    FROM alike GROUP BY probe_id, query
)
SELECT attack, (sum(pairs) - sum(same))::BIGINT, sum(pairs)::BIGINT
FROM pairs JOIN (SELECT DISTINCT probe_id, attack FROM probes WHERE run_id = $run) USING (probe_id)
GROUP BY attack HAVING sum(pairs) > 0
"""


class Pairs:
    """One run's answers beside their twins'."""

    def __init__(self, db: duckdb.DuckDBPyConnection, run: str) -> None:
        self.counts: defaultdict[tuple[str, str], Counter[tuple[str, str | None]]] = defaultdict(Counter)
        for arm, attack, how, origin, n in db.execute(_PAIRED, {"run": run}).fetchall():
            self.counts[arm, attack][how, origin] += n
        self.repeats = {a: (differ, n) for a, differ, n in db.execute(_REPEATS, {"run": run}).fetchall()}

    def base_rate(self, attack: str) -> str | None:
        """How often undefended answers to the same probe differ, where they do; else nothing is to be said."""
        differ, n = self.repeats.get(attack, (0, 0))
        return f"repeats of the undefended arm differ in {differ} of {n} pairs" if differ else None

    def told(self, arm: str, attack: str) -> tuple[bool, str]:
        """Whether the arm's answers were changed through another stage, and what is to be said of them."""
        counts = self.counts[arm, attack]
        n = counts.total()
        changed = n - sum(c for (how, _), c in counts.items() if how == "same")
        if not changed:
            return False, f"; the answer equals the undefended one in all of {n} probes" if n else ""
        told = f"; the answer differs from the undefended one in {changed} of {n} probes"
        differ, pairs = self.repeats.get(attack, (0, 0))
        if differ:
            from ragtrace import stats

            p = stats.fisher_greater(changed, n, differ, pairs)
            if p >= LEVEL:
                return False, f"{told}, no more often than without a defense (Fisher one-sided p = {p:.2g})"
        ways = [
            f"in {count} {_way(how, origin)}"
            for (how, origin), count in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
            if how != "same"
        ]
        through = any(origin not in (None, "response") for how, origin in counts if how != "same")
        return through, f"{told}: {', '.join(ways)}"


def _way(how: str, origin: str | None) -> str:
    if origin is None:
        return "although no defense changed anything in the request"
    if how == "direct":
        return "directly at response" if origin == "response" else f"directly, and through {origin}"
    return f"through {origin}"
