"""What a lake costs: audits scored, and passive exposure of traffic by its view; DuckDB here, Spark on a local cluster.

Two jobs. ``audit``: `ragtrace score --lake`, over audits of growing size. ``traffic``: one question to the view
`exposure`, over requests of four spans with five documents of 500 characters. Each engine runs in a process of its own,
Spark with two executor processes of one core; both get the same lake, and what they answer is compared row by row.

Prints seconds by the clock (with the engine's start, and for Spark Java's), spans a second, what each span more costs
between one size and the next, and what a billion spans would take: **extrapolated linearly** from the slope between the
largest two sizes, nothing of that size was run. Core-hours are the clock's times two, an upper bound: both cores are
counted as busy all the time. Exit code 1 where the engines differ. Needs the extra ``spark`` and Java 17::

    python tests/benchmarks/lake.py [--job audit traffic] [--sizes 20000 80000 320000] [--engines duckdb spark]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from store_fixtures import Bench  # noqa: E402
from test_lake import audit  # noqa: E402

from ragtrace.lake import Lake, add  # noqa: E402
from ragtrace.record.spool import SpoolExporter, segment_schema  # noqa: E402

CORES = 2
BILLION = 1e9
_MANY = """
SELECT * REPLACE (
    md5(concat(trace_id, ' ', i)) AS trace_id, left(md5(concat(span_id, ' ', i)), 16) AS span_id,
    if(parent_span_id IS NULL, NULL, left(md5(concat(parent_span_id, ' ', i)), 16)) AS parent_span_id,
    replace(attributes, '"ragtrace.probe_id":"', concat('"ragtrace.probe_id":"', i, '-')) AS attributes
) FROM template, range($times::BIGINT) AS t(i)
WHERE i = 0 OR NOT contains(attributes, '"ragtrace.run":')
"""
_AUDIT = """
import sys, ragtrace
from ragtrace.scaled import score_lake
url, engine, out = sys.argv[1:]
with ragtrace.open(out) as db:
    score_lake(url, engine, db, metrics=[
        "bleu_roc_auc", "perplexity_roc_auc", "canary_*", "nel_*", "s2mia_roc_auc", "s2mia_pr_auc"])
"""
_TRAFFIC = """
import sys, duckdb
from ragtrace.engine import engine as made
from ragtrace.engine.asking import ask
from ragtrace.lake import Lake
url, engine, out = sys.argv[1:]
found = ask(made(engine, Lake(url)), '''
    SELECT document_id, path, count(*) AS answers, count(*) FILTER (longest_run > 10) AS quotes,
        max(longest_run) AS longest, round(sum(containment), 6) AS containment, sum(entities_leaked) AS entities
    FROM exposure GROUP BY ALL''')
with duckdb.connect(out) as db:
    db.execute("CREATE TABLE answer AS FROM found")
"""
_SAME = """
SELECT count(*) FROM (FROM a.{0} EXCEPT ALL FROM b.{0})
UNION ALL SELECT count(*) FROM (FROM b.{0} EXCEPT ALL FROM a.{0})
"""
_WORDS = (  # of no language model: a vocabulary with a long tail, and names in it
    "the of and contract room signed report quarterly keeps records office annual figure river bridge mountain".split()
    + [f"word{n}" for n in range(2_000)] + ["Ann Lee", "Bob Stone", "Carla Ruiz", "ann.lee@corp.com"]
)  # fmt: skip


def audits(folder: Path, spans: int) -> list[Path]:
    """Segments of audits: one run, as many probes as it takes."""
    bench = Bench(folder / "t.duckdb")
    audit(bench)
    template = pq.read_table(bench.write())
    with duckdb.connect() as connection:
        connection.register("template", template)
        many = connection.sql(_MANY, params={"times": max(1, spans // template.num_rows)}).to_arrow_table()
    return segments(folder, many)


def traffic(folder: Path, spans: int) -> list[Path]:
    """Segments of requests, each a call, a retrieval, the context and an answer; every fourth quotes a document."""
    source = random.Random(1)
    texts = []
    for _ in range(3_000):
        text = " ".join(source.choices(_WORDS, k=110))
        texts.append(text[:500])
    made: list[dict[str, object]] = []
    for number in range(max(1, spans // 4)):
        *read, own = source.sample(range(len(texts)), 6)
        answer = texts[own]
        if number % 4 == 0:
            answer = f"{answer[:170]} {' '.join(texts[read[0]].split()[5:25])} {answer[170:]}"[:500]
        found = [{"id": f"d{n}", "score": 0.5, "hash": f"{n:032x}", "chars": 500, "content": texts[n]} for n in read]
        stood = [{"of": place, "id": f"d{n}", "start": 0, "run": 500, "at": 0, "whole": True, "hash": f"{n:032x}"}
                 for place, n in enumerate(read)]  # fmt: skip
        prompt = "\n\n".join(texts[n] for n in read)
        told: list[tuple[str, dict[str, object]]] = [
            ("retrieval", {"gen_ai.retrieval.query.text": f"{number}?", "gen_ai.retrieval.documents": found}),
            ("context", {"ragtrace.documents.in_prompt": stood}),
            ("generation", {"ragtrace.query": f"{number}?", "gen_ai.request.model": "m",
                            "gen_ai.input.messages": [{"role": "user", "parts": [{"content": prompt}]}],
                            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"content": answer}]}]}),
            ("", {"user.id": f"u{number % 1_000}"}),
        ]  # fmt: skip
        trace, ids = f"{source.getrandbits(128) | 1:032x}", [f"{source.getrandbits(64) | 1:016x}" for _ in told]
        start = 1_790_000_000_000_000_000 + number * 10**9
        for (stage, attributes), id in zip(told, ids, strict=True):
            given = {key: json.dumps(v) if isinstance(v, list) else v for key, v in attributes.items()}
            mine = {"ragtrace.path": "invoke"} | ({"ragtrace.stage": stage} if stage else {})
            made.append({
                "trace_id": trace, "span_id": id, "parent_span_id": ids[-1] if stage else None, "name": stage or "ask",
                "kind": "INTERNAL", "start_time_ns": start, "end_time_ns": start + 10**8, "status": "OK",
                "service": "app", "scope": "ragtrace", "attributes": json.dumps(mine | given), "events": "[]",
                "resource": '{"service.name":"app"}',
            })  # fmt: skip
    return segments(folder, pa.Table.from_pylist(made, segment_schema()))


def segments(folder: Path, spans: pa.Table) -> list[Path]:
    fitting = spans.select(segment_schema().names).cast(
        pa.schema(list(segment_schema()), metadata=segment_schema().metadata)
    )
    for start in range(0, fitting.num_rows, 20_000):
        SpoolExporter(folder / "many.duckdb").write(fitting.slice(start, 20_000))
    return sorted((folder / "many.duckdb.spool").glob("*.parquet"))


JOBS = {"audit": (audits, _AUDIT, ("score_data", "result_data")), "traffic": (traffic, _TRAFFIC, ("answer",))}


def run(script: str, lake: Lake, engine: str, out: Path) -> tuple[float, float]:
    """Seconds by the clock, and of processor (Spark's executors are not in it)."""
    environment = dict(os.environ)
    if engine == "spark":
        import pyspark

        environment |= {
            "RAGTRACE_SPARK_MASTER": f"local-cluster[{CORES},1,2048]", "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
        }  # fmt: skip
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, lake.url, engine, str(out)], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{engine} failed: {done.stderr[-2_000:]}")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def differing(one: Path, other: Path, tables: tuple[str, ...]) -> int:
    with duckdb.connect() as db:
        db.execute(f"ATTACH '{one}' AS a (READ_ONLY); ATTACH '{other}' AS b (READ_ONLY)")
        return sum(n for table in tables for (n,) in db.execute(_SAME.format(table)).fetchall())


def measured(job: str, sizes: list[int], engines: list[str]) -> bool:
    """Runs one job; whether the engines agree."""
    make, script, tables = JOBS[job]
    taken: dict[str, list[tuple[int, float]]] = {engine: [] for engine in engines}
    agreed = True
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lake = Lake(str(folder / "lake"))
            spans = add(lake, make(folder, size)).spans
            outs = [folder / f"{engine}.duckdb" for engine in engines]
            for engine, out in zip(engines, outs, strict=True):
                seconds, processor = run(script, lake, engine, out)
                used = f", {processor:.1f} s of processor" if engine == "duckdb" else ""
                print(f"{job:>7} {spans:>9,} spans {engine:>6}: {seconds:7.1f} s{used}, {spans / seconds:,.0f} spans/s",
                      flush=True)  # fmt: skip
                taken[engine].append((spans, seconds))
            if len(outs) == 2 and (rows := differing(*outs, tables)):
                print(f"{job:>7} {rows} rows differ between the engines")
                agreed = False
    for engine, points in taken.items():
        for (few, short), (many, long) in pairwise(points):
            slope = (long - short) / (many - few)
            print(f"{job:>7} {engine:>6}: {slope * 1e6:6.0f} µs by the clock for each span more, {few:,} to {many:,}")
        if len(points) > 1 and slope <= 0:
            print(f"{job:>7} {engine:>6}: the larger took no longer, so these sizes tell nothing of 10^9 spans")
        elif len(points) > 1:
            hours = slope * BILLION / 3600
            print(f"{job:>7} {engine:>6}: 10^9 spans, extrapolated linearly from that slope (not run): "
                  f"{hours:,.0f} h on {CORES} cores, {hours * CORES:,.0f} core-hours at most")  # fmt: skip
    return agreed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 80_000, 320_000], help="of audits")
    parser.add_argument("--traffic-sizes", type=int, nargs="+", default=[20_000, 80_000, 160_000], help="of traffic")
    parser.add_argument("--engines", nargs="+", default=["duckdb", "spark"])
    given = parser.parse_args()
    sizes = {"audit": given.sizes, "traffic": given.traffic_sizes}
    agreed = [measured(job, sizes[job], given.engines) for job in given.job]
    return int(not all(agreed))


if __name__ == "__main__":
    sys.exit(main())
