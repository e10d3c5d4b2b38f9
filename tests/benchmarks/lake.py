"""What it costs to score a lake, by DuckDB on this machine and by Spark on a local cluster of two executor processes.

The lake holds audits (spans as the SDK writes them, ids varied) in doubling sizes; both engines score the same one, and
their results are compared row by row. Prints seconds by the clock, and what a billion spans would take at the slope
between the largest two. Needs the extra ``spark`` and Java 17::

    python tests/benchmarks/lake.py [--sizes 20000 80000] [--engines duckdb spark]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
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

_MANY = """
SELECT * REPLACE (
    md5(concat(trace_id, ' ', i)) AS trace_id, left(md5(concat(span_id, ' ', i)), 16) AS span_id,
    if(parent_span_id IS NULL, NULL, left(md5(concat(parent_span_id, ' ', i)), 16)) AS parent_span_id,
    replace(attributes, '"ragtrace.probe_id":"', concat('"ragtrace.probe_id":"', i, '-')) AS attributes
) FROM template, range($times::BIGINT) AS t(i)
WHERE i = 0 OR NOT contains(attributes, '"ragtrace.run":')
"""
_SCORE = """
import sys, ragtrace
from ragtrace.scaled import score_lake
with ragtrace.open(sys.argv[3]) as db:
    score_lake(sys.argv[1], sys.argv[2], db, metrics=["bleu_*", "perplexity_*", "canary_*", "nel_*", "s2mia_*auc"])
"""
_SAME = """
SELECT count(*) FROM (FROM a.{0} EXCEPT ALL FROM b.{0})
UNION ALL SELECT count(*) FROM (FROM b.{0} EXCEPT ALL FROM a.{0})
"""


def _lake(folder: Path, spans: int) -> Lake:
    bench = Bench(folder / "t.duckdb")
    audit(bench)
    template = pq.read_table(bench.write())
    with duckdb.connect() as connection:
        connection.register("template", template)
        many = connection.sql(_MANY, params={"times": max(1, spans // template.num_rows)}).to_arrow_table()
    made = many.select(segment_schema().names).cast(
        pa.schema(list(segment_schema()), metadata=segment_schema().metadata)
    )
    for start in range(0, made.num_rows, 20_000):
        SpoolExporter(folder / "many.duckdb").write(made.slice(start, 20_000))
    lake = Lake(str(folder / "lake"))
    add(lake, sorted((folder / "many.duckdb.spool").glob("*.parquet")))
    return lake


def _seconds(lake: Lake, engine: str, database: Path) -> float:
    import pyspark

    cluster = {
        "RAGTRACE_SPARK_MASTER": "local-cluster[2,1,2048]", "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCORE, lake.url, engine, str(database)], check=True,
        env=os.environ | cluster, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - began


def _differing(one: Path, other: Path) -> int:
    with duckdb.connect() as db:
        db.execute(f"ATTACH '{one}' AS a (READ_ONLY); ATTACH '{other}' AS b (READ_ONLY)")
        return sum(n for t in ("score_data", "result_data") for (n,) in db.execute(_SAME.format(t)).fetchall())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 80_000])
    parser.add_argument("--engines", nargs="+", default=["duckdb", "spark"])
    given = parser.parse_args()
    taken: dict[str, list[float]] = {engine: [] for engine in given.engines}
    failed = False
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as name:
            lake = _lake(Path(name), size)
            made = [Path(name, f"{engine}.duckdb") for engine in given.engines]
            for engine, database in zip(given.engines, made, strict=True):
                taken[engine].append(_seconds(lake, engine, database))
                print(f"{size:>9} spans, {engine:>6}: {taken[engine][-1]:6.1f} s", flush=True)
            if len(made) == 2 and (differing := _differing(*made)):
                print(f"{differing} rows of scores and results differ between the engines")
                failed = True
    if len(given.sizes) > 1:
        for engine, seconds in taken.items():
            slope = (seconds[-1] - seconds[-2]) / (given.sizes[-1] - given.sizes[-2])
            hours = slope * 1e9 / 3600
            print(f"{engine:>6}: {slope * 1e6:.0f} µs a span more; 10^9 spans of an audit: {hours:.0f} h on 2 cores")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
