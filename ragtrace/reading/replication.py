"""Would the number come out again? Each result beside what each seed says alone, and three intervals kept apart.

*Within the run*: other probes to the same documents. *Over documents*: other documents of the same kind. *Between
seeds*: the whole experiment again, with other documents, other probes and other noise (a t interval over the seeds'
own numbers). None of them stands in for another; one that the data cannot give is NULL.

Greedy models repeat themselves, so repeats are found by the responses' hashes and count once: a seed of which every
query and answer equals those of an earlier seed adds nothing, and an arm whose every answer equals another arm's (a
defense without differential privacy under another ε) names that arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ragtrace.metrics._read import ANSWERS

if TYPE_CHECKING:
    import duckdb

    from ragtrace.metrics.base import Metric, Result

Key = tuple[str, str, str]
"""Arm, attack, corpus."""
_ANSWERS = f"""
WITH {ANSWERS}, hashed AS (
    SELECT a.arm, a.attack, a.corpus, a.seed, a.probe_id, a.query, (
        SELECT any_value(g.response_hash) FROM generations g WHERE g.trace_id = a.trace_id AND g.span_id = a.span_id
    ) AS hash
    FROM answers a
)
SELECT arm, attack, corpus, seed, count(hash) = count(*), md5(list((query, hash) ORDER BY query, hash)::VARCHAR),
    md5(list((probe_id, hash) ORDER BY probe_id)::VARCHAR)
FROM hashed GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 (a constant)
_SEEDS = """
SELECT DISTINCT told->>'seed' AS seed, c.text AS canary, c.family FROM (
    SELECT told, unnest(try(from_json(told->'canaries', '[{"text":"VARCHAR","family":"VARCHAR"}]'))) AS c
    FROM (SELECT (attributes->>'ragtrace.run')::JSON AS told FROM own_spans
        WHERE stage IS NULL AND run_id = ? AND (attributes->>'ragtrace.run') IS NOT NULL)
)
"""
"""Which canary was planted under which seed; of a manifest without one: under all of them."""


def replications(
    db: duckdb.DuckDBPyConnection, run: str, found: Sequence[tuple[Metric, Result]]
) -> Iterator[tuple[Any, ...]]:
    """Rows of ``replication_data``, one for each result.

    ``probes`` is to be a temporary table with the run's probes (as ``ragtrace.score`` makes it), and is so afterwards.
    """
    same = _Repeats(db, run)
    metrics = {id(metric): metric for metric, _ in found}.values()
    alone = _by_seed(db, run, list(metrics), same.seeds)
    documents = {m.name: m.over_documents(db, run) for m in metrics if hasattr(m, "over_documents")}
    for metric, result in found:
        key = (result.arm, result.attack, result.corpus)
        own, ends = (result.ci_low, result.ci_high), (None, None)
        whole = getattr(metric, "membership", False) or getattr(metric, "resamples", "probes") == "documents"
        over = own if whole else documents.get(metric.name, {}).get(key, ends)
        values = alone.get((result.metric, *key), {})
        kept = [v for seed, v in values.items() if seed not in same.repeated.get(key, ())]
        yield (
            run, result.arm, result.attack, result.corpus, result.metric, list(values), list(values.values()),
            len(kept), *(ends if whole else own), *between(kept), *over, same.arms.get(key),
        )  # fmt: skip


def between(values: Sequence[float]) -> tuple[float | None, float | None]:
    """95 % t interval of the mean over seeds; none for fewer than two, or where all agree to the last digit."""
    if len(values) < 2 or stdev(values) == 0:
        return None, None
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


class _Repeats:
    """What the run holds twice: seeds, by arm, attack and corpus; and arms, with the arm that they repeat."""

    def __init__(self, db: duckdb.DuckDBPyConnection, run: str) -> None:
        self.repeated: dict[Key, set[int]] = {}
        seen: dict[tuple[Key, str], int] = {}
        answers: dict[Key, list[str] | None] = {}
        seeds: dict[int, None] = {}
        for arm, attack, corpus, seed, complete, asked, answered in db.execute(_ANSWERS, {"run": run}).fetchall():
            key = (arm, attack, corpus)
            seeds[seed] = None
            if complete and seen.setdefault((key, asked), seed) != seed:
                self.repeated.setdefault(key, set()).add(seed)
            so_far = answers.setdefault(key, [])
            answers[key] = [*so_far, answered] if complete and so_far is not None else None
        self.seeds = sorted(seeds)
        self.arms: dict[Key, str] = {}
        first: dict[tuple[str, str, tuple[str, ...]], str] = {}
        for (arm, attack, corpus), hashes in sorted(answers.items(), key=lambda item: (item[0][0] != "none", item[0])):
            if hashes and (earlier := first.setdefault((attack, corpus, tuple(hashes)), arm)) != arm:
                self.arms[arm, attack, corpus] = earlier


def _by_seed(
    db: duckdb.DuckDBPyConnection, run: str, metrics: Sequence[Metric], seeds: Sequence[int]
) -> dict[tuple[str, str, str, str], dict[int, float]]:
    """(metric, arm, attack, corpus) → seed → value, each computed from that seed's probes and canaries alone."""
    found: dict[tuple[str, str, str, str], dict[int, float]] = {}
    if len(seeds) == 1:
        return found
    db.execute("CREATE TEMP TABLE all_probes AS FROM temp.probes")
    db.execute("CREATE TEMP TABLE all_canaries AS FROM canaries WHERE run_id = ?", [run])
    db.execute("CREATE TEMP TABLE planted_under AS " + _SEEDS, [run])
    for seed in seeds:
        db.execute("CREATE OR REPLACE TEMP TABLE probes AS FROM all_probes WHERE seed = ?", [seed])
        db.execute(
            "CREATE OR REPLACE TEMP TABLE canaries AS FROM all_canaries SEMI JOIN "
            "(FROM planted_under WHERE coalesce(seed = ?, true)) USING (canary, family)",
            [str(seed)],
        )
        for metric in metrics:
            for r in metric.results(db, run):
                if r.value is not None:
                    found.setdefault((r.metric, r.arm, r.attack, r.corpus), {})[seed] = r.value
    db.execute("CREATE OR REPLACE TEMP TABLE probes AS FROM all_probes")
    for table in ("canaries", "all_probes", "all_canaries", "planted_under"):
        db.execute(f"DROP TABLE temp.{table}")
    return found
