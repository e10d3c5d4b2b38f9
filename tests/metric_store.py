"""A store made by hand for metrics: the columns of DESIGN section 4, and those of ours that metrics read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb
import numpy as np

from ragtrace.metrics import load
from ragtrace.metrics.base import Result

SCHEMA = """
CREATE TABLE probes (run_id TEXT, probe_id TEXT, arm TEXT, attack TEXT, corpus TEXT, seed INT, query TEXT,
    target_id TEXT, target_text TEXT, is_member BOOL, canary TEXT, detail TEXT, trace_id TEXT);
CREATE TABLE generations (trace_id TEXT, span_id TEXT, query TEXT, prompt TEXT, response TEXT, model TEXT,
    completion_tokens INT, mean_logprob DOUBLE, perplexity DOUBLE, first_token TEXT, path TEXT,
    nested BOOL, start_time TIMESTAMP, is_whole BOOL AS (response IS NOT NULL),
    canaries_readable BOOL AS (response IS NOT NULL), entities_readable BOOL AS (response IS NOT NULL));
CREATE TABLE canary_hits (trace_id TEXT, span_id TEXT, canary TEXT, family TEXT, channel TEXT,
    run_id TEXT, probe_id TEXT, arm TEXT);
CREATE TABLE documents (trace_id TEXT, span_id TEXT, stage TEXT, phase TEXT, rank INT, document_id TEXT, content TEXT);
CREATE TABLE own_spans (trace_id TEXT, span_id TEXT, run_id TEXT, stage TEXT, attributes JSON);
CREATE TABLE canaries (run_id TEXT, canary TEXT, family TEXT, document_id TEXT);
CREATE TABLE entities (trace_id TEXT, span_id TEXT, type TEXT, text TEXT, in_query BOOL, in_documents BOOL,
    in_control BOOL);
CREATE TABLE score_data (run_id TEXT, probe_id TEXT, arm TEXT, attack TEXT, metric TEXT, value DOUBLE);
CREATE VIEW scores AS FROM score_data;
"""


class Store:
    """An in-memory store with a line for each thing that a test says happened."""

    def __init__(self) -> None:
        self.db = duckdb.connect()
        self.db.execute(SCHEMA)

    def add(self, table: str, **row: Any) -> None:
        columns = ", ".join(row)
        self.db.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def answer(
        self, probe: str, arm: str, attack: str, response: str | None, perplexity: float | None = None, **probe_row: Any
    ) -> str:
        trace = f"{arm}/{probe}"
        row = {"query": "q", "corpus": "c", "seed": 1, **probe_row}
        self.add("probes", run_id="r", probe_id=probe, arm=arm, attack=attack, trace_id=trace, **row)
        self.call(trace, "g", response, perplexity)
        return trace

    def call(
        self,
        trace: str,
        span: str,
        response: str | None,
        perplexity: float | None,
        minute: int = 0,
        nested: bool = False,
    ) -> None:
        self.add(
            "generations", trace_id=trace, span_id=span, response=response, perplexity=perplexity, nested=nested,
            start_time=f"2026-01-01 10:{minute:02}:00",
        )  # fmt: skip

    def hit(self, trace: str, canary: str, channel: str = "response") -> None:
        self.add("canary_hits", trace_id=trace, canary=canary, channel=channel)

    def entity(self, trace: str, type: str, text: str, in_query: bool = False, in_documents: bool = True) -> None:
        self.add(
            "entities", trace_id=trace, span_id="g", type=type, text=text, in_query=in_query, in_documents=in_documents
        )

    def run(self, *names: str) -> dict[tuple[str, str, str], Result]:
        """(metric, arm, attack) → result of the metrics named."""
        metrics = {n: m for n, m in load().items() if n in names}
        # as ragtrace.score does: what two metrics read is stored once
        self.db.execute("DELETE FROM score_data")
        for s in dict.fromkeys(s for m in metrics.values() for s in m.scores(self.db, "r")):
            self.add("score_data", **vars(s))
        found = [r for n in names for r in metrics[n].results(self.db, "r")]
        assert all(r.run_id == "r" and (r.value is not None or r.reason) for r in found)
        return {(r.metric, r.arm, r.attack): r for r in found}

    def scores(self, metric: str) -> dict[tuple[str, str], float | None]:
        rows = self.db.execute("SELECT arm, probe_id, value FROM scores WHERE metric = ?", [metric]).fetchall()
        assert len({r[:2] for r in rows}) == len(rows), "metrics that compute the same score agree"
        return {(arm, probe): value for arm, probe, value in rows}


def targets(store: Store, rows: Iterable[tuple[bool, str | None, float | None]], arm: str = "none") -> None:
    for i, (member, response, perplexity) in enumerate(rows):
        store.answer(
            f"s-{i:03d}", arm, "s2mia", response, perplexity, target_id=f"d{i}", is_member=member,
            target_text=f"the target number {i} has words of its own such as w{i} and v{i}",
            query=f"Continue: the target number {i}",
        )  # fmt: skip


def graded(n: int, seed: int = 0, flip: bool = False, perplexity: bool = True) -> list[tuple[bool, str, float | None]]:
    """n members and n others; members repeat more of the target and are more certain, with overlap."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[bool, str, float | None]] = []
    for i in range(2 * n):
        member = i % 2 == 0
        share = int(np.clip(rng.normal(9 if member != flip else 5, 2.5), 0, 14))
        words = [*f"the target number {i} has words of its own such as w{i} and v{i}".split()[:share], "and", "more"]
        value = float(np.exp(rng.normal(0.5 if member != flip else 1.0, 0.4)))
        rows.append((member, " ".join(words), value if perplexity else None))
    return rows
