"""``[[metric_bound]]``: is a metric's number within its bound, and may it be read at all?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ragtrace.errors import UsageError
from ragtrace.gate.outcomes import Finding
from ragtrace.gate.rules.base import NO_PROBES, Evidence, Rule, known, nearest, no_data, subject

READINGS = ("interpretable", "indirect", "nuisance", "reversal", "entangled")
_RESULTS = """
SELECT run_id, arm, attack, corpus, value, ci_low, ci_high, n, interpretable, reason FROM results
WHERE metric = ? ORDER BY ALL
"""


@dataclass(frozen=True, kw_only=True)
class MetricBound(Rule):
    """A metric stays within its bound, and its number may be read.

    :param metric: its name, as in ``results``.
    :param upper_bound: the upper end of the interval must be below.
    :param lower_bound: the lower end must be above: for utility.
    :param judge_by: ``value`` judges the number itself and needs no interval.
    :param arms: the arms to judge; by default all but the undefended one and the controls.
    :param attacks: the attacks whose results count; all by default.
    :param corpora: likewise.
    :param readings: which numbers may be judged; others are breaches, since nobody can tell what they say.
    """

    name = "metric_bound"
    metric: str
    upper_bound: float | None = None
    lower_bound: float | None = None
    judge_by: Literal["interval", "value"] = "interval"
    arms: tuple[str, ...] | None = None
    attacks: tuple[str, ...] | None = None
    corpora: tuple[str, ...] | None = None
    readings: tuple[str, ...] = ("interpretable",)

    def __post_init__(self) -> None:
        if self.upper_bound is None and self.lower_bound is None:
            raise UsageError(f"metric {self.metric!r} has no bound; say upper_bound = … or lower_bound = …")
        known(self.readings, READINGS, "reading")

    @property
    def about(self) -> str:
        """With its numbers."""
        end = {"interval": ("upper end of the interval", "lower end of the interval"), "value": ("value", "value")}
        upper, lower = end[self.judge_by]
        said = [f"{upper} below {self.upper_bound:g}" if self.upper_bound is not None else ""]
        said += [f"{lower} above {self.lower_bound:g}" if self.lower_bound is not None else ""]
        return f"{self.metric}: {' and '.join(s for s in said if s)}, and the number may be read."

    def judge(self, evidence: Evidence) -> Iterator[Finding]:
        """One finding for each result out of bounds, and for each arm without any.

        :raises UsageError: nobody knows a metric of this name.
        """
        rows = evidence.rows(_RESULTS, self.metric)
        if not rows:
            yield self._nothing(evidence)
            return
        arms, missing = evidence.arms(self.arms)
        yield from missing
        kept = [r for r in rows if r["arm"] in arms and self._wanted(r)]
        for arm in arms:
            if not any(r["arm"] == arm for r in kept):
                yield no_data(subject(self.metric, arm), "it has no result in this arm, by these attacks and corpora")
        for row in kept:
            if found := self._out(row, subject(self.metric, row["arm"], row["attack"], row["corpus"])):
                yield found

    def _nothing(self, evidence: Evidence) -> Finding:
        from ragtrace.metrics import load

        stored = [r["metric"] for r in evidence.rows("SELECT DISTINCT metric FROM results")]
        names = {*load(), *stored}
        if self.metric not in names:
            raise UsageError(
                f"metric {self.metric!r} is not known; {nearest(self.metric, names)} "
                f"This database has {', '.join(sorted(stored)) or 'no results: run `ragtrace score`'}"
            )
        probes = evidence.rows("SELECT 1 FROM probes LIMIT 1")
        fix = f"run `ragtrace score --metric {self.metric}`, or an audit with its attack" if probes else NO_PROBES
        return no_data(self.metric, f"it has no result in this database; {fix}")

    def _wanted(self, row: dict[str, Any]) -> bool:
        return (self.attacks is None or row["attack"] in self.attacks) and (
            self.corpora is None or row["corpus"] in self.corpora
        )

    def _out(self, row: dict[str, Any], about: str) -> Finding | None:
        value, low, high = row["value"], row["ci_low"], row["ci_high"]
        if value is None or row["interpretable"] == "no data":
            return no_data(about, (row["reason"] or "the result has no value").removeprefix("no data: "))
        shown = f"{value:.3g}" + (f" [{low:.3g}, {high:.3g}]" if low is not None and high is not None else "")
        if row["interpretable"] not in self.readings:
            return Finding(about, f"{shown} may not be read, it is {row['interpretable']}: {row['reason']}")
        upper, lower = (value, value) if self.judge_by == "value" else (high, low)
        for bound, end in ((self.upper_bound, upper), (self.lower_bound, lower)):
            if bound is not None and end is None:
                return no_data(about, f'{shown} has no interval (n = {row["n"]}); more probes, or judge_by = "value"')
        if self.upper_bound is not None and not upper < self.upper_bound:
            return Finding(about, f"{shown}, expected below {self.upper_bound:g} (n = {row['n']})")
        if self.lower_bound is not None and not lower > self.lower_bound:
            return Finding(about, f"{shown}, expected above {self.lower_bound:g} (n = {row['n']})")
        return None


RULE = MetricBound
