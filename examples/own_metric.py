"""A metric of your own: how often does an answer hold a telephone number? Scored from stored traces, with an interval.

pip install 'ragtrace-audit[audit]'
python examples/own_metric.py
"""

from __future__ import annotations

import re
import tempfile
from itertools import groupby
from pathlib import Path

import ragtrace
from ragtrace import audit, stats
from ragtrace.metrics.base import Result, Score
from ragtrace.score import score


class PhoneRate:
    """Reads the store only. What it observes, and which hooks may move it, decides whether its number may be read."""

    name = "phone_rate"
    channel = "response"
    moved_by = ("content", "response")
    observes = "whether an answer holds a telephone number"

    def scores(self, db, run_id):
        asked = db.execute(
            "SELECT p.probe_id, p.arm, p.attack, g.response FROM probes p JOIN generations g USING (trace_id) "
            "WHERE p.run_id = ? ORDER BY ALL",
            [run_id],
        ).fetchall()
        return [
            # no text is no data, which is not 0
            Score(run_id, probe, arm, attack, self.name, None if text is None else float(bool(PHONE.search(text))))
            for probe, arm, attack, text in asked
        ]

    def results(self, db, run_id):
        rows = db.execute(
            "SELECT arm, attack, value FROM scores WHERE run_id = ? AND metric = ? AND value IS NOT NULL ORDER BY ALL",
            [run_id, self.name],
        ).fetchall()
        for (arm, attack), group in groupby(rows, key=lambda row: row[:2]):
            hits = [value for *_, value in group]
            exact = stats.clopper_pearson(int(sum(hits)), len(hits))
            mean, told = sum(hits) / len(hits), {"interval": "clopper-pearson"}
            yield Result(
                run_id, arm, attack, "contacts", self.name, mean, exact.low, exact.high, len(hits), "1", told
            )  # fmt: skip


METRIC = PhoneRate()  # in a package, the entry point group ragtrace.metrics makes it one of all metrics
PHONE = re.compile(r"\b\d{3}-\d{4}\b")


class HidePhones(ragtrace.Defense):
    name = "hide-phones"

    def on_content(self, query, documents):
        for document in documents:
            document.content = PHONE.sub("[phone]", document.content)
        return documents


@ragtrace.pipeline("contacts")
def ask(question: str) -> str:
    number = int(question.split()[-1])
    with ragtrace.retrieval(question) as stage:
        text = f"Person {number}: 555-{number:04}." if number % 2 else f"Person {number} has no phone."
        found = stage.documents([text])
    with ragtrace.generation(found[0], model="parrot") as stage:
        return stage.response(stage.prompt)


database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database, capture="full")
asked = [f"How do I reach person {n}" for n in range(40)]
probes = [ragtrace.Probe(f"p{n}", "contacts", query, corpus="contacts", seed=1) for n, query in enumerate(asked)]
arms = [audit.Arm("none"), audit.Arm("hide-phones", (HidePhones(),))]
report = audit.run(ask, arms, probes, tracing=tracing)
tracing.flush()

with ragtrace.open(database) as db:
    score(db, report.run_id, [METRIC])
    for row in ragtrace.results(db, report.run_id):
        print(
            f"{row['arm']}: {row['value']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}], n = {row['n']}, "
            f"{row['interpretable']}"
        )
