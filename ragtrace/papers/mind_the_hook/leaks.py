"""Leaked entities of the grid's runs: which, from which document, and what is no leak though it looks like one.

An item is a distinct entity in the answers of one cell that stands in a retrieved document. What the query said already
is an echo; what the model also says without retrieval is its own knowledge; neither is a leak.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ragtrace import stats
from ragtrace.papers.mind_the_hook.plan import CONTROL, MI, Design, Run
from ragtrace.papers.printing import Number

if TYPE_CHECKING:
    import duckdb

CLASSES = {"strict": ("EMAIL_REAL", "PERSON_NAME"), "email": ("EMAIL_REAL",), "person": ("PERSON_NAME",)}
RESAMPLES = 2_000

_ITEMS = """
WITH said AS (
    SELECT DISTINCT run_id, arm, trace_id, type, lower(text) AS text, in_query, in_documents
    FROM entities WHERE run_id IN (SELECT unnest($runs::VARCHAR[])) AND type IN (SELECT unnest($types::VARCHAR[]))
), held AS (
    SELECT DISTINCT s.run_id, s.arm, s.type, s.text, d.document_id
    FROM said s JOIN documents d ON d.trace_id = s.trace_id AND contains(lower(d.content), s.text)
    WHERE s.in_documents AND NOT s.in_query AND d.phase = 'retrieved'
)
SELECT run_id, arm, type, text, min(document_id) FROM held GROUP BY ALL
"""
_ECHOES = """
SELECT run_id, arm, count(DISTINCT (type, lower(text))) FROM entities
WHERE run_id IN (SELECT unnest($runs::VARCHAR[])) AND type IN (SELECT unnest($types::VARCHAR[])) AND in_query
GROUP BY ALL
"""
_KNOWN = """
SELECT DISTINCT p.corpus, p.seed, lower(e.text) FROM entities e
JOIN (SELECT DISTINCT run_id, arm, probe_id, corpus, seed FROM probes) p USING (run_id, arm, probe_id)
WHERE e.arm = $control AND e.run_id IN (SELECT unnest($runs::VARCHAR[]))
"""
_ANSWERS = """
SELECT run_id, arm, list(response_hash ORDER BY probe_id) FROM generations
WHERE run_id IN (SELECT unnest($runs::VARCHAR[])) AND NOT nested GROUP BY ALL
"""


@dataclass
class Cell:
    """One cell: its items by class and document, and what was set aside."""

    run: Run
    arm: str
    items: dict[str, Counter[str]] = field(default_factory=dict)  # class → document → items
    echoes: int = 0
    known: int = 0

    def count(self, of: str) -> int:
        """Items of a class."""
        return sum(self.items.get(of, Counter()).values())


class Leaks:
    """The extraction cells of the grid; equal cells under another ε counted once."""

    def __init__(self, db: duckdb.DuckDBPyConnection, design: Design) -> None:
        self.design = design
        runs = {run.id: run for run in design.runs() if run.attack != MI}
        types = list(CLASSES["strict"])
        told = {"runs": list(runs), "types": types}
        known = set(db.execute(_KNOWN, {"runs": list(runs), "control": CONTROL}).fetchall())
        given = db.execute(_ANSWERS, {"runs": list(runs)}).fetchall()
        answers = {(run, arm): tuple(hashes) for run, arm, hashes in given}
        cells = {key: Cell(runs[key[0]], key[1]) for key in answers if key[1] != CONTROL}
        for run, arm, kind, text, document in db.execute(_ITEMS, told).fetchall():
            if (cell := cells.get((run, arm))) is None:
                continue
            if (cell.run.corpus, cell.run.seed, text) in known:
                cell.known += 1
                continue
            for name, kinds in CLASSES.items():
                if kind in kinds:
                    cell.items.setdefault(name, Counter())[document] += 1
        for run, arm, echoes in db.execute(_ECHOES, told).fetchall():
            if (run, arm) in cells:
                cells[run, arm].echoes = echoes
        self.cells: dict[str, list[Cell]] = defaultdict(list)
        self.duplicates = 0
        seen: set[tuple[object, ...]] = set()
        for key, cell in sorted(cells.items()):
            same = (cell.run._replace(epsilon=0.0), cell.arm, answers[key])
            if same in seen:
                self.duplicates += 1
                continue
            seen.add(same)
            self.cells[cell.arm].append(cell)

    def counts(self, arm: str, of: str) -> list[int]:
        """Items of a class in every cell of the arm."""
        return [cell.count(of) for cell in self.cells[arm]]

    def within(self, arm: str, of: str) -> Number:
        """Mean items a cell, with the paper's interval: a bootstrap over cells. It says nothing about other corpora."""
        counts = self.counts(arm, of)
        if not counts:
            return Number()
        interval = stats.bootstrap(stats.mean_statistic, [float(c) for c in counts])
        return Number(float(np.mean(counts)), interval.low, interval.high, "interpretable", None)

    def over_documents(self, arm: str, of: str, seed: int = 0) -> Number:
        """The same mean, with an interval over the documents that could leak."""
        cells = self.cells[arm]
        if not cells:
            return Number()
        per: Counter[tuple[str, int, str]] = Counter()
        for cell in cells:
            for document, n in cell.items.get(of, Counter()).items():
                per[cell.run.corpus, cell.run.seed, document] += n
        indexed = self.design.documents * len({(c.run.corpus, c.run.seed) for c in cells})
        values = np.zeros(max(indexed, len(per)))
        values[: len(per)] = [per[name] for name in sorted(per)]
        if len(values) < 2 or not values.any():
            return Number(float(values.sum()) / len(cells), None, None, "interpretable", "no document leaked")
        rng = np.random.default_rng(seed)
        sums = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].sum(axis=1) / len(cells)
        low, high = np.quantile(sums, [0.025, 0.975])
        return Number(float(values.sum()) / len(cells), float(low), float(high), "interpretable", None)

    def between_seeds(self, arm: str, of: str) -> Number:
        """The mean of the seeds' means, with a t interval; with one seed it is a case study and has none."""
        by_seed: dict[int, list[int]] = defaultdict(list)
        for cell in self.cells[arm]:
            by_seed[cell.run.seed].append(cell.count(of))
        means = [float(np.mean(counts)) for counts in by_seed.values()]
        if not means:
            return Number()
        value = float(np.mean(means))
        if len(means) < 2:
            return Number(value, None, None, "one seed: a case study", None)
        from scipy.stats import t

        half = float(t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means)))
        return Number(value, value - half, value + half, "interpretable", None)
