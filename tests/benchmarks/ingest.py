"""How fast spans come in: OTLP/protobuf of others, and our own segments, beside what DuckDB itself does with the rows.

    python tests/benchmarks/ingest.py [spans]

Spans as in a RAG trace, about 2 KB each: a request, its retrieval with five documents, a chain, its generation.

DuckDB's own insertion is that of the same Arrow table into a table without a key, in one transaction, as it comes. Both
sides go into a new file in each of several rounds, by turns, after a round that is not counted: what the machine does
besides, and whether its memory is warm, falls on both. Neither has checkpointed when the clock stops: the rows are in
the write-ahead log, synced. Exit code 1 where the median of the merge is less than 60 % as fast.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import ragtrace
from ragtrace.record.spool import SpoolExporter, segment_schema
from ragtrace.store import add, import_files

SEGMENT = 512  # spans that the exporter writes at once
MESSAGE = 2_000  # spans in one request
ROUNDS = 7
LEAST = 0.6
WORDS = "the patient record shows that a visit was made for pain in the left knee and the dose was changed to".split()


def text(words: int, source: random.Random) -> str:
    return " ".join(source.choices(WORDS, k=words))


def trace(number: int, source: random.Random, ours: bool) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, kind, attributes) of the four spans of one request."""
    query, answer = text(12, source), text(80, source)
    texts = [text(70, source) for _ in range(5)]
    prompt = "\n\n".join(texts) + query
    if ours:
        common = {"ragtrace.framework": "langchain", "ragtrace.path": "invoke", "ragtrace.capture": "full"}
        found = [{"id": f"d{i}", "score": 0.5, "hash": f"{number:016x}{i:016x}", "chars": len(t), "content": t}
                 for i, t in enumerate(texts)]  # fmt: skip
        said = [
            [{"role": r, "parts": [{"type": "text", "content": t}]}]
            for r, t in (("user", prompt), ("assistant", answer))
        ]
        return [
            ("pipeline", "", common | {"input": prompt[:1_500]}),
            ("retrieval", "", common | {"ragtrace.stage": "retrieval", "gen_ai.retrieval.query.text": query,
                                        "gen_ai.retrieval.documents": orjson.dumps(found).decode()}),
            ("context", "", common | {"ragtrace.stage": "context", "input": prompt[:1_500]}),
            ("generation", "", common | {"ragtrace.stage": "generation", "gen_ai.request.model": "m",
                                         "gen_ai.input.messages": orjson.dumps(said[0]).decode(),
                                         "gen_ai.output.messages": orjson.dumps(said[1]).decode()}),
        ]  # fmt: skip
    kind = "openinference.span.kind"
    documents = {
        f"retrieval.documents.{i}.document.{key}": value
        for i, t in enumerate(texts)
        for key, value in (("content", t), ("id", f"d{i}"), ("score", 0.5), ("metadata", '{"source": "s"}'))
    }
    return [
        ("RunnableSequence", "CHAIN", {kind: "CHAIN", "input.value": query, "output.value": prompt[:1_500]}),
        ("Retriever", "RETRIEVER", {kind: "RETRIEVER", "input.value": query} | documents),
        ("Prompt", "CHAIN", {kind: "CHAIN", "input.value": query, "output.value": prompt[:1_500]}),
        ("ChatModel", "LLM", {kind: "LLM", "llm.model_name": "m", "llm.token_count.prompt": 500,
                              "llm.token_count.completion": 80,
                              "llm.input_messages.0.message.role": "user",
                              "llm.input_messages.0.message.content": prompt,
                              "llm.output_messages.0.message.role": "assistant",
                              "llm.output_messages.0.message.content": answer}),
    ]  # fmt: skip


def rows(count: int, ours: bool) -> list[dict[str, Any]]:
    source, found = random.Random(1), []
    for number in range(count // 4):
        trace_id = f"{source.getrandbits(128) | 1:032x}"
        root = None
        for name, _, attributes in trace(number, source, ours):
            span_id = f"{source.getrandbits(64) | 1:016x}"
            start = 1_790_000_000_000_000_000 + number * 1_000_000
            found.append({"trace_id": trace_id, "span_id": span_id, "parent_span_id": root, "name": name,
                          "start": start, "attributes": attributes})  # fmt: skip
            root = root or span_id
    return found


def protobuf(found: list[dict[str, Any]], path: Path, size: int = MESSAGE) -> Path:
    out = bytearray()
    for place in range(0, len(found), size):
        request = ExportTraceServiceRequest()
        holder = request.resource_spans.add()
        holder.resource.attributes.add(key="service.name").value.string_value = "app"
        scoped = holder.scope_spans.add()
        scoped.scope.name = "openinference.instrumentation.langchain"
        for row in found[place : place + size]:
            span = scoped.spans.add(
                trace_id=bytes.fromhex(row["trace_id"]), span_id=bytes.fromhex(row["span_id"]), name=row["name"],
                parent_span_id=bytes.fromhex(row["parent_span_id"] or ""), kind=1,
                start_time_unix_nano=row["start"], end_time_unix_nano=row["start"] + 1_000_000,
            )  # fmt: skip
            for key, value in row["attributes"].items():
                holds = span.attributes.add(key=key).value
                if isinstance(value, str):
                    holds.string_value = value
                elif isinstance(value, float):
                    holds.double_value = value
                else:
                    holds.int_value = value
        message = request.SerializeToString()
        out += len(message).to_bytes(4, "big") + message
    path.write_bytes(out)
    return path


def segments(found: list[dict[str, Any]], folder: Path) -> tuple[list[Path], pa.Table]:
    table = pa.Table.from_pylist(
        [
            {
                "trace_id": r["trace_id"], "span_id": r["span_id"], "parent_span_id": r["parent_span_id"],
                "name": r["name"], "kind": "INTERNAL",
                "start_time_ns": r["start"], "end_time_ns": r["start"] + 1_000_000, "status": "OK",
                "status_message": None, "service": "app", "scope": "ragtrace",
                "attributes": orjson.dumps(r["attributes"]).decode(), "events": "[]",
                "resource": '{"service.name":"app"}',
            }
            for r in found
        ],
        schema=segment_schema(),
    )  # fmt: skip
    spool = SpoolExporter(folder / "traces.duckdb", "full")
    for place in range(0, table.num_rows, SEGMENT):
        spool.write(table.slice(place, SEGMENT))
    return sorted(spool.folder.glob("*.parquet")), table


def measured(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock, and of processors: the second is what it costs where others use the machine too."""
    clock, processors = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processors


def bare(table: pa.Table, path: Path) -> tuple[float, float]:
    """DuckDB's own insertion of the same Arrow table, without a key."""
    with duckdb.connect(str(path)) as connection:
        connection.register("incoming", table)
        connection.execute("CREATE TABLE t AS FROM incoming LIMIT 0")
        return measured(lambda: connection.execute("INSERT INTO t FROM incoming").fetchall())


def merged(paths: list[Path], path: Path, count: int) -> tuple[float, float]:
    with ragtrace.open(path) as connection:
        took = measured(lambda: add(connection, paths))
        assert connection.execute("SELECT count(*) FROM span_data").fetchall() == [(count,)]
    return took


def imported(file: Path, path: Path, count: int) -> tuple[float, float]:
    with ragtrace.open(path) as connection:
        took = measured(lambda: import_files(connection, [file]))
        held = connection.execute("SELECT count(*), count(stage) FROM span_data").fetchall()
    assert held == [(count, count // 2)]
    return took


def main(count: int = 40_000) -> int:
    def say(what: str, took: list[tuple[float, float]]) -> float:
        clock, processor = (statistics.median(column) for column in zip(*took, strict=True))
        rates = sorted(count / each for each, _ in took)
        print(
            f"{what}: median {count / clock:,.0f} spans/s ({rates[0]:,.0f} to {rates[-1]:,.0f}; "
            f"{1e6 * processor / count:.0f} us of processor each)"
        )
        return clock

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = protobuf(rows(count, ours=False), folder / "spans.bin")
        print(f"{count} spans of OTLP/protobuf, {file.stat().st_size / count:.0f} bytes each")
        first, *took = [imported(file, folder / f"foreign-{i}.duckdb", count) for i in range(ROUNDS)]
        print(f"the first import of a process: {count / first[0]:,.0f} spans/s")
        say("import (OpenInference)", took)
        paths, table = segments(rows(count, ours=True), folder)
        print(f"{count} of ours in {len(paths)} segments, {table.nbytes / count:.0f} bytes each")
        both = [
            (bare(table, folder / f"bare-{i}.duckdb"), merged(paths, folder / f"ours-{i}.duckdb", count))
            for i in range(ROUNDS + 1)
        ]
        alone, ours = zip(*both[1:], strict=True)
        ratio = say("DuckDB's own insertion", alone) / say("merge of our segments", ours)
        each = sorted(100 * one[0] / other[0] for one, other in both[1:])
        print(f"merge / DuckDB: {100 * ratio:.0f} % of the rate (by round: {each[0]:.0f} to {each[-1]:.0f} %)")
    return 0 if ratio >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
