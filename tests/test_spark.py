"""Spark, a real local cluster of two executor processes, beside DuckDB on the same lake: the same rows.

Each test runs Spark in a process of its own, as a user does; it needs pyspark and Java.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from store_fixtures import Bench, rows
from test_lake import audit
from test_lake_views import differing, filled

import ragtrace
from ragtrace.engine import engine, java
from ragtrace.engine.relations import MAPPED
from ragtrace.errors import UsageError
from ragtrace.lake import Lake, add
from ragtrace.lake.layout import VERSION_KEY, schema
from ragtrace.scaled import score_lake

pyspark = pytest.importorskip("pyspark")
try:
    java.check()
except UsageError as missing:
    pytest.skip(str(missing), allow_module_level=True)

# Jobs this short are mostly spent on compiling Java well and on threads that clean up after them: less of both.
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLUSTER = {
    "RAGTRACE_SPARK_MASTER": "local-cluster[2,1,1024]",
    "SPARK_HOME": str(Path(pyspark.__file__).parent),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_SUBMIT_ARGS": f"--conf 'spark.driver.extraJavaOptions={SHORT}' "
    f"--conf 'spark.executor.extraJavaOptions={SHORT}' --conf spark.ui.enabled=false "
    "--conf spark.sql.shuffle.partitions=4 pyspark-shell",  # not 200: the lake is small
}
# Of views that are made in the same way and have the same types one is enough: each takes a second or more.
VIEWS = sorted(
    {*MAPPED, "verdicts"}
    - {
        "canaries",
        "claims",
        "generations",
        "probes",
        "requests",
        "roots",
        "session_traces",
        "stages",
        "trace_questions",
    }
)
PORTABLE = [
    "SELECT status, kind, count(*) AS n FROM spans GROUP BY ALL ORDER BY ALL",
    "SELECT run_id, arm, count(DISTINCT trace_id) AS traces FROM spans WHERE run_id IS NOT NULL "
    "GROUP BY ALL ORDER BY ALL",
    "SELECT json_extract_string(attributes, '$.\"ragtrace.stage\"') AS stage, count(*) AS n FROM spans "
    "GROUP BY ALL ORDER BY n DESC, stage",
    "SELECT name, min(end_time_ns - start_time_ns) >= 0 AS forward FROM spans GROUP BY name ORDER BY name LIMIT 3",
    "SELECT count(*) FILTER (path = 'stream') AS streams, count(*) AS n FROM spans",
    "SELECT CAST(make_timestamp(start_time_ns // 1000) AS DATE) >= DATE '2026-01-01' AS new, count(*) AS n "
    "FROM spans GROUP BY ALL",
]
ASK = """
import json, sys
from datetime import date
import pyarrow.parquet as pq
from ragtrace.engine import Days, engine
from ragtrace.engine.asking import ask
from ragtrace.errors import RagtraceError
from ragtrace.lake import Lake
lake, queries, traffic, views, out, odd = sys.argv[1:]
made = engine("spark", Lake(lake))
print(json.dumps([ask(made, query).to_pylist() for query in json.loads(queries)]))
old = engine("spark", Lake(lake), Days(until=date(1999, 12, 31)))
print(json.dumps(ask(old, "SELECT count(*) AS n FROM spans").to_pylist()))
of_traffic = engine("spark", Lake(traffic))
for view in json.loads(views):
    pq.write_table(ask(of_traffic, f"SELECT * FROM {view}"), f"{out}/{view}.parquet")
try:
    ask(engine("spark", Lake(odd)), "SELECT count(*) AS n FROM documents")
except RagtraceError as error:
    print(json.dumps(str(error)))
"""
SCORE = """
import os, signal, sys
import ragtrace
from ragtrace import scaled
metrics = None
if sys.argv[3:]:
    scaled.score = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    metrics = ["bleu_*"]  # what is not stored need not be much
with ragtrace.open(sys.argv[2]) as db:
    scaled.score_lake(sys.argv[1], "spark", db, metrics=metrics)
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Files with spans in common."""
    folder = tmp_path_factory.mktemp("lake")
    bench = Bench(folder / "t.duckdb")
    audit(bench)
    made = Lake(str(folder / "lake"))
    add(made, [bench.write()])
    with bench.open() as db:
        add(made, database=db)
    return made


def child(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=os.environ | CLUSTER, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def asked(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path, Path]:
    """What one session says: lines of JSON; the views of another lake, in a folder; that lake's database."""
    folder, out = tmp_path_factory.mktemp("traffic"), tmp_path_factory.mktemp("out")
    traffic, database = filled(folder)
    two = tmp_path_factory.mktemp("odd") / "lake"
    shutil.copytree(lake.url, two)
    odd = schema().with_metadata({VERSION_KEY: b"7"}).empty_table()
    pq.write_table(odd, Path(Lake(str(two)).files()[0]).with_name("zz.parquet"))
    done = child(ASK, lake.url, json.dumps(PORTABLE), traffic.url, json.dumps(VIEWS), str(out), str(two))
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("[", '"'))], out, database


def test_sql_has_the_same_answer(lake: Lake, asked: tuple[list[Any], Path, Path]) -> None:
    with closing(engine("duckdb", lake)) as computing:
        expected = [computing.sql(query).to_pylist() for query in PORTABLE]
    assert asked[0][0] == expected
    assert all(expected)
    assert asked[0][1] == [{"n": 0}]


def test_a_lake_of_two_versions_is_refused_by_the_workers(asked: tuple[list[Any], Path, Path]) -> None:
    assert "layout version 7, expected 1" in asked[0][2]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_the_rows_of_a_database(view: str, asked: tuple[list[Any], Path, Path]) -> None:
    _, out, database = asked
    found = pq.read_table(out / f"{view}.parquet")
    with duckdb.connect(str(database), read_only=True) as db:
        assert found.num_rows
        assert differing(db, view, found) == []


def test_results_are_the_same_and_a_killed_job_leaves_none(lake: Lake, tmp_path: Path) -> None:
    database = tmp_path / "spark.duckdb"
    killed = child(SCORE, lake.url, str(database), "kill")
    assert killed.returncode == -9, killed.stderr[-2_000:]
    with ragtrace.open(database) as db:
        assert rows(db, "FROM results") == rows(db, "FROM scores") == []
    done = child(SCORE, lake.url, str(database))
    assert done.returncode == 0, done.stderr[-2_000:]
    with ragtrace.open(database) as db, ragtrace.open(tmp_path / "duckdb.duckdb") as alone:
        assert score_lake(lake.url, "duckdb", alone) > 20
        for view in ("results", "scores", "spans", "entities", "canary_hits", "verdicts"):
            assert rows(db, f"FROM {view} ORDER BY ALL") == rows(alone, f"FROM {view} ORDER BY ALL"), view


def test_what_spark_has_no_word_for_is_said() -> None:
    from ragtrace.engine.spark import translated

    with pytest.raises(UsageError, match="no translation for Spark"):
        translated("SELECT FROM WHERE")
    for query in ("SELECT 1; SELECT 2", "DROP TABLE spans", "SET x = 1", ""):
        with pytest.raises(UsageError, match="expected one SELECT"):
            translated(query)
