"""The lake: what is written where, once and whole; in a folder and on a real S3 server; scored as a database is."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from report_store import ask
from rich.console import Console
from store_fixtures import Bench, rows
from typer.testing import CliRunner

import ragtrace
from ragtrace.cli import app
from ragtrace.engine import engine, java
from ragtrace.errors import InputError, UsageError
from ragtrace.lake import Lake, add
from ragtrace.lake.layout import VERSION_KEY, schema
from ragtrace.query import show
from ragtrace.scaled import TargetScores, score_lake
from ragtrace.score import score
from ragtrace.store import in_memory

DAY = 86_400 * 10**9


def audit(bench: Bench) -> None:
    """Two arms, two seeds, members and non-members, a canary, and traffic beside it."""
    canary = {"text": "zq-77", "family": "id", "document_id": "d1"}
    with bench.request(run_id="r", **{"ragtrace.run": {"canaries": [canary], "arms": {"none": [], "mask": ["mask"]}}}):
        pass
    for arm in ("none", "mask"):
        for n in range(6):
            member = n % 2 == 0
            text = f"The contract number {n} is signed by Ann Lee and kept in room {n}."
            said = f"It says: {text}" if member and arm == "none" else "I do not know."
            ask(bench, "r", arm, f"s{n}", said, attack="s2mia", target=text, member=member, query=text[:20])
            ask(bench, "r", arm, f"c{n}", f"zq-77, Ann Lee, {n}" if arm == "none" else "No.", attack="canary")
    with bench.request("stream"), bench.stage("retrieval", "stream"):
        pass
    with bench.span("beside", scope="another"):
        pass


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "t.duckdb")
    audit(made)
    return made


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of an empty bucket on an S3 server of this process."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"s3://key:secret@traces/lake?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    system, _ = Lake(url + "&allow_bucket_creation=true").opened()
    system.create_dir("traces")
    yield url
    server.stop()


def filled(bench: Bench, url: str) -> Lake:
    with bench.open() as db:
        done = add(Lake(url), database=db)
        assert done.spans == rows(db, "SELECT count(*) AS n FROM spans")[0]["n"] > 50
    return Lake(url)


def test_a_span_lies_under_the_day_on_which_it_began(bench: Bench, tmp_path: Path) -> None:
    segment = bench.write()
    table = pq.read_table(segment)
    place = table.schema.get_field_index("start_time_ns")
    days = [n % 3 * DAY for n in range(table.num_rows)]
    moved = table.set_column(place, table.schema.field(place), pa.array(days, pa.int64()))
    pq.write_table(moved, segment)
    lake = Lake(str(tmp_path / "lake"))
    add(lake, [segment])
    assert [Path(path).parent.name for path in lake.files()] == [f"date=1970-01-0{n}" for n in (1, 2, 3)]
    for n, path in enumerate(lake.files()):
        assert set(lake.read(path)["start_time_ns"].to_pylist()) == {n * DAY}
        assert Path(path).stat().st_mode & 0o777 == 0o600
    from datetime import date

    assert lake.files(date(1970, 1, 2), date(1970, 1, 2)) == lake.files()[1:2]


def test_what_is_added_again_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    segment, lake = bench.write(), Lake(str(tmp_path / "lake"))
    first = add(lake, [segment])
    again = add(lake, [segment])
    assert (first.files, first.known, again.files, again.known, again.spans) == (1, 0, 0, 1, 0)
    assert len(lake.files()) == 1


def test_a_span_written_twice_is_one(bench: Bench, tmp_path: Path) -> None:
    """From the spool and, merged, from the database: other files, the same spans."""
    segment, lake = bench.write(), Lake(str(tmp_path / "lake"))
    add(lake, [segment])
    filled(bench, lake.url)
    assert len(lake.files()) == 2
    with closing(engine("duckdb", lake)) as computing:
        [counted] = computing.sql(
            "SELECT count(*) AS n, count(DISTINCT (trace_id, span_id)) AS ids FROM spans"
        ).to_pylist()
    written = sum(lake.read(path).num_rows for path in lake.files())
    assert counted["n"] == counted["ids"] == written / 2


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_a_lake_is_scored_as_its_database_is(bench: Bench, tmp_path: Path, where: str, s3: str) -> None:
    lake = filled(bench, s3 if where == "s3" else str(tmp_path / "lake"))
    with bench.open() as db, ragtrace.open(tmp_path / "results.duckdb") as results:
        assert score(db) == score_lake(lake.url, "duckdb", results) > 20
        for view in ("scores", "results", "probes", "entities", "canary_hits"):
            assert rows(results, f"FROM {view} ORDER BY ALL") == rows(db, f"FROM {view} ORDER BY ALL"), view
        assert rows(results, "SELECT DISTINCT run_id FROM own_spans WHERE stage IS NOT NULL") == [{"run_id": "r"}]


def test_scoring_again_gives_the_same_rows_none_twice(bench: Bench, tmp_path: Path) -> None:
    lake = filled(bench, str(tmp_path / "lake"))
    with ragtrace.open(tmp_path / "results.duckdb") as db:
        score_lake(lake.url, "duckdb", db)
        before = rows(db, "FROM results ORDER BY ALL"), rows(db, "FROM spans ORDER BY ALL")
        score_lake(lake.url, "duckdb", db)
        assert (rows(db, "FROM results ORDER BY ALL"), rows(db, "FROM spans ORDER BY ALL")) == before


def test_scores_by_target_are_the_same_in_one_part_or_in_many(bench: Bench, tmp_path: Path) -> None:
    """The property that the engines rest on: a target's scores need nothing but its own spans and the run's facts."""
    lake = filled(bench, str(tmp_path / "lake"))
    with closing(engine("duckdb", lake)) as computing:
        table = computing.sql("SELECT * FROM spans")
    facts = table.filter(pa.compute.is_null(table["probe_id"]))
    work = pickle.loads(pickle.dumps(TargetScores(facts, None)))  # as it travels to a worker
    whole = work(table).to_pylist()
    parts = [
        row
        for probe in pa.compute.unique(table["probe_id"].drop_null()).to_pylist()
        for row in work(table.filter(pa.compute.equal(table["probe_id"], probe))).to_pylist()
    ]
    key = json.dumps
    assert sorted(parts, key=key) == sorted(whole, key=key)
    assert {row["metric"] for row in whole} >= {"bleu", "canary_hits"}


def test_a_file_of_another_version_is_refused(bench: Bench, tmp_path: Path) -> None:
    lake = filled(bench, str(tmp_path / "lake"))
    odd = schema().with_metadata({VERSION_KEY: b"7"}).empty_table()
    pq.write_table(odd, Path(lake.files()[0]).with_name("zz.parquet"))
    with pytest.raises(InputError, match="layout version 7, expected 1"):
        engine("duckdb", lake)


def test_a_torn_file_is_named(bench: Bench, tmp_path: Path) -> None:
    lake = filled(bench, str(tmp_path / "lake"))
    path = Path(lake.files()[0])
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"cannot be read .*move it away"):
        engine("duckdb", lake)


def test_a_broken_source_puts_nothing_into_the_lake(tmp_path: Path, bench: Bench) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}')
    lake = Lake(str(tmp_path / "lake"))
    done = add(lake, [broken, bench.write()])
    assert len(done.failed) == 1
    assert "broken.json" in done.failed[0]
    assert done.files == len(lake.files()) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [("gopher://x/y", "expected a path or an s3:// URL"), ("nowhere/at/all", "no lake at nowhere/at/all")],
)
def test_no_lake(url: str, says: str) -> None:
    with pytest.raises((InputError, UsageError), match=says):
        engine("duckdb", Lake(url))


def test_a_lake_without_an_audit(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    with bench.span("a", scope="app"):
        pass
    lake = Lake(str(tmp_path / "lake"))
    add(lake, [bench.write()])
    with in_memory() as db, pytest.raises(InputError, match="no span of an audit"):
        score_lake(lake.url, "duckdb", db)


def test_wrong_sql_is_said(bench: Bench, tmp_path: Path) -> None:
    lake = filled(bench, str(tmp_path / "lake"))
    with closing(engine("duckdb", lake)) as computing, pytest.raises(UsageError, match="spanz"):
        computing.sql("FROM spanz")


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE lake", "SELECT 1; SELECT 2", "COPY lake TO 'x.csv'", "SET memory_limit = '1TB'", "",
        "FROM read_csv('/etc/hosts')", "FROM '/etc/hosts'", "FROM given", "ATTACH 'x.duckdb'",
    ],
)  # fmt: skip
def test_a_question_reads_the_lake_and_nothing_else(bench: Bench, tmp_path: Path, query: str) -> None:
    lake = filled(bench, str(tmp_path / "lake"))
    with closing(engine("duckdb", lake)) as computing, pytest.raises(UsageError):
        computing.sql(query)
    assert not (Path.cwd() / "x.csv").exists()


def test_from_the_command_line(bench: Bench, tmp_path: Path) -> None:
    run = CliRunner().invoke
    bench.open().close()
    lake, out = str(tmp_path / "lake"), str(tmp_path / "results.duckdb")
    added = run(app, ["lake", "add", "--db", str(bench.database), "--lake", lake])
    assert added.exit_code == 0, added.output
    asked = run(app, ["lake", "sql", "SELECT count(*) AS n FROM spans", "--lake", lake, "--format", "json"])
    assert json.loads(asked.stdout)[0]["n"] > 50
    scored = run(app, ["score", "--lake", lake, "--db", out, "--metric", "canary_*", "--json"])
    assert scored.exit_code == 0, scored.output
    assert "canary_recovery_id" in scored.stdout
    with pytest.raises(UsageError, match="--lake"):
        run(app, ["score", "--engine", "spark"], catch_exceptions=False, standalone_mode=False)
    with pytest.raises(UsageError, match="nothing to add"):
        run(app, ["lake", "add", "--lake", lake], catch_exceptions=False, standalone_mode=False)


def test_parquet_needs_a_file() -> None:
    with pytest.raises(UsageError, match="--out FILE"):
        show(pa.table({"a": [1]}), "parquet", None, Console(file=io.StringIO()))


def _java(folder: Path, says: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o700)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is 11"),
        ('java version "1.8.0_201"', "is 8"),
        ("no idea", "does not say which it is"),
        (None, "nothing is there"),
    ],
)
def test_java_that_spark_cannot_use(
    says: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if says is not None:
        _java(tmp_path, says)
    with pytest.raises(UsageError, match=rf"Java 17 or newer.*{expected}.*JAVA_HOME"):
        java.check()


def test_java_that_spark_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _java(tmp_path, 'openjdk version "21.0.4" 2024-07-16')
    java.check()


def test_no_such_engine(tmp_path: Path) -> None:
    wrong: Any = "hive"
    with pytest.raises(UsageError, match="expected one of duckdb, spark"):
        engine(wrong, Lake(str(tmp_path)))
