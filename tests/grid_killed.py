"""Runs a small grid in processes that kill themselves, then to its end: ``python grid_killed.py OUT KILL…``.

A KILL is ``calls:N`` (at the Nth model call of that process), ``flushed:N`` (the same, with all spans on disk: as when
it hangs for a while before it dies) or the name of a step: ``score``, ``tables``, ``write``. After each the finished
cells with their number of probes are printed as JSON, and at last those of the process that was left alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.embeddings import DeterministicFakeEmbedding
from opentelemetry import trace
from papers_models import Parrot
from rich.console import Console

import ragtrace
from ragtrace import models, retrievers, score
from ragtrace.embedded import GenerationCache
from ragtrace.papers import mind_the_hook as paper
from ragtrace.papers import printing
from ragtrace.papers.mind_the_hook import tables
from ragtrace.report import reporting

DESIGN = replace(
    paper.QUICK, corpora=("synthetic_email",), attacks=("prompt_stealing", "deal"), modes=("multi_turn",), queries=4,
    documents=6, canary_seeds=(1,), canary_queries=4, canary_documents=5,
)  # fmt: skip
FINISHED = """
SELECT p.run_id, p.arm, count(DISTINCT p.trace_id) FROM probes p
SEMI JOIN (SELECT run_id, arm FROM own_spans WHERE attributes->>'ragtrace.arm.done' = 'true') d USING (run_id, arm)
GROUP BY ALL ORDER BY ALL
"""


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(Parrot):
    """Answers by the prompt alone, and kills its process at one of its calls."""

    dies_at: int = 10**9
    flushes: bool = False

    def _generate(self, *given: Any, **told: Any) -> Any:
        if len(self.calls) + 1 >= self.dies_at:
            if self.flushes:
                trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined]
            die()
        return super()._generate(*given, **told)


def run(out: Path, kill: str) -> None:
    where, _, at = kill.partition(":")
    model = Mortal(cache=GenerationCache(), calls=[], dies_at=int(at or 10**9), flushes=where == "flushed")

    @contextmanager
    def chat(name: str, **_: Any) -> Any:
        yield models.Chat(model, "parrot", model.cache)  # type: ignore[arg-type]

    models.chat = chat  # type: ignore[assignment]
    retrievers.embedder = lambda name, **_: DeterministicFakeEmbedding(size=16)  # type: ignore[assignment]
    paper._store_witnesses = lambda db: None  # type: ignore[assignment]  # not what is tried here, and slow
    for step, module, name in (
        ("score", score, "_insert"), ("tables", tables, "canaries"), ("write", printing, "to_json"),
    ):  # fmt: skip
        if step == where:
            setattr(module, name, die)
    if where == "write":
        reporting.write(out / "tables.md", "of a run before")
    paper.main(DESIGN, out, Console(file=sys.stderr, width=200))


def main(out: Path, kills: list[str]) -> None:
    for kill in [*kills, ""]:
        child = os.fork()
        if not child:
            run(out, kill)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        expected = -signal.SIGKILL if kill else 0
        if os.waitstatus_to_exitcode(status) != expected:
            sys.exit(f"{kill or 'the last'}: exit code {os.waitstatus_to_exitcode(status)}, expected {expected}")
        reader = os.fork()  # DuckDB starts threads, and what has threads is not forked
        if not reader:
            with ragtrace.open(out / "mind-the-hook.duckdb") as db:
                print(json.dumps(db.execute(FINISHED).fetchall()), flush=True)
            os._exit(0)
        if os.waitpid(reader, 0)[1]:
            sys.exit(f"after {kill or 'the last'} the database cannot be read")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
