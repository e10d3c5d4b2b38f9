"""Hand-made spans for the storing side's tests: through the real SDK and the real exporter, without any framework."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span

import ragtrace
from ragtrace.record import attributes as a
from ragtrace.record.spool import SpoolExporter
from ragtrace.store import database, encryption

Row = dict[str, Any]

# The table of the contract (DESIGN.md, section 4), copied: more columns are welcome, these must be there.
CONTRACT = {
    "spans": "trace_id, span_id, parent_span_id, name, start_time, end_time, status, service, dialect, "
    "attributes, resource",
    "stages": "trace_id, span_id, stage, framework, path, query, model, run_id, probe_id, arm, start_time, "
    "duration_ms, status",
    "documents": "trace_id, span_id, stage, phase, rank, document_id, score, content, content_hash",
    "generations": "trace_id, span_id, query, prompt, response, model, completion_tokens, mean_logprob, "
    "perplexity, path",
    "effects": "trace_id, span_id, defense, hook, status, ids_changed, order_changed, scores_changed, text_changed, "
    "documents_before, documents_after, chars_before, chars_after, path, arm",
    "coverage": "trace_id, defense, hook, path, ran",
    "probes": "run_id, probe_id, arm, attack, corpus, seed, query, target_id, target_text, is_member, canary",
    "scores": "run_id, probe_id, arm, attack, metric, value",
    "entities": "trace_id, span_id, type, text, in_query, in_documents",
    "canary_hits": "trace_id, span_id, canary, family, channel",
    "verdicts": "defense, hook, source_status, runtime_status, verdict, evidence, runs, changed",
    "results": "run_id, arm, defense, attack, corpus, metric, channel, value, ci_low, ci_high, n, "
    "interpretable, reason, signature",
}


class Bench:
    """Makes spans, writes them as segments beside ``database``, and opens it."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.spool = database.with_name(database.name + ".spool")
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))

    @contextmanager
    def span(self, name: str, attributes: Row | None = None, scope: str = a.SCOPE) -> Iterator[Span]:
        tracer = trace.get_tracer(scope, tracer_provider=self.provider)
        values = {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in (attributes or {}).items()}
        with tracer.start_as_current_span(name, attributes=values) as span:
            yield span

    def request(self, path: str = "invoke", **attributes: Any) -> Any:
        names = {"declared": a.DECLARED, "effects": a.EFFECTS, "run_id": a.RUN_ID, "probe_id": a.PROBE_ID, "arm": a.ARM}
        given = {names.get(k, k): v for k, v in attributes.items()}
        return self.span("pipeline Chain", {a.PATH: path, a.FRAMEWORK: "langchain", **given})

    def stage(self, stage: str, path: str = "invoke", **attributes: Any) -> Any:
        given = {a.EFFECTS if k == "effects" else k: v for k, v in attributes.items()}
        return self.span(f"{stage} X", {a.PATH: path, a.FRAMEWORK: "langchain", a.STAGE: stage, **given})

    def spans(self) -> list[ReadableSpan]:
        found = list(self.memory.get_finished_spans())
        self.memory.clear()
        return found

    def write(self, spans: list[ReadableSpan] | None = None, capture: Any = "full") -> Path:
        """One more segment: of what was made since the last one, or of ``spans``."""
        SpoolExporter(self.database, capture).export(self.spans() if spans is None else spans)
        return max(self.spool.glob("*.parquet"))

    def open(self) -> duckdb.DuckDBPyConnection:
        if self.memory.get_finished_spans():
            self.write()
        return ragtrace.open(self.database)


@cache
def _empty() -> bytes:
    """A new database, as ragtrace makes it."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.duckdb")
        with MAKING(path, read_only=False) as made:
            database._prepare(made, path)
        return path.read_bytes()


MAKING = database._connect


def copied(path: Path, key: str | None = None, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Opens a database; a new one is a copy of one that was made, which takes a fifth of the time."""
    if not read_only and path.parent.is_dir() and encryption.key_of(key) is None:
        with suppress(OSError), path.open("xb") as file:  # what cannot be is said by the opening itself
            file.write(_empty())
    return MAKING(path, key, read_only=read_only)


def rows(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> list[Row]:
    answer = connection.execute(query, list(parameters))
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def effect(defense: str, hook: str, status: str = "changed", **more: Any) -> Row:
    return {"defense": defense, "hook": hook, "status": status, **more}
