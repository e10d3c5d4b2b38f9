"""The usual views over a lake: the same rows as in a database of the same spans, and never a wrong answer."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_traffic import SECRET, fill
from store_fixtures import CONTRACT, Bench, rows
from typer.testing import CliRunner

from ragtrace.cli import app
from ragtrace.engine import Days, Engine, engine, portions
from ragtrace.engine.asking import Rows, ask
from ragtrace.engine.counting import COUNTED, summed
from ragtrace.engine.relations import _ELSEWHERE, MAPPED, SUMMED, named, offered, shape
from ragtrace.engine.small import plain
from ragtrace.errors import InputError, UsageError
from ragtrace.lake import Lake, add
from ragtrace.store import in_memory
from ragtrace.store.exposure import measure

VIEWS = [*MAPPED, *SUMMED]
DAY = 86_400 * 10**9
# Views whose rows need more than one trace. What reads them must say so.
ACROSS = {"part_hooks", "canaries", "foreign_parts", "verdict_paths", "verdicts", "sessions", "outputs", "switched_on",
          "paired"}  # fmt: skip


def filled(folder: Path) -> tuple[Lake, Path]:
    """A lake with every span twice, and a database of the same spans of which all is measured."""
    bench = Bench(folder / "t.duckdb")
    fill(bench)
    lake = Lake(str(folder / "lake"))
    add(lake, [bench.write()])
    with bench.open() as db:
        measure(db)
        add(lake, database=db)
    return lake, bench.database


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Path]:
    return filled(tmp_path_factory.mktemp("views"))


@pytest.fixture(scope="module")
def database(made: tuple[Lake, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    copy = made[1].with_name("copy.duckdb")  # the file itself is opened by a test
    copy.write_bytes(made[1].read_bytes())
    with duckdb.connect(str(copy), read_only=True) as db:
        yield db


@pytest.fixture(params=["whole", "trace by trace"])
def computing(made: tuple[Lake, Path], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param != "whole":
        monkeypatch.setattr(portions, "_ROWS", 1)
    with closing(engine("duckdb", made[0])) as found:
        yield found


def differing(db: duckdb.DuckDBPyConnection, view: str, found: pa.Table) -> list[Any]:
    """Rows that only one of both has."""
    expected = plain(db, view)
    assert found.column_names == expected.column_names
    with duckdb.connect() as compared:
        compared.register("a", found)
        compared.register("b", expected)
        return compared.execute("(FROM a EXCEPT ALL FROM b) UNION ALL (FROM b EXCEPT ALL FROM a)").fetchall()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_the_rows_of_a_database(view: str, computing: Engine, database: duckdb.DuckDBPyConnection) -> None:
    found = ask(computing, f"SELECT * FROM {view}")
    assert found.num_rows
    assert differing(database, view, found) == []
    assert found.schema.types == shape(view).types


def test_the_traffic_shows_what_depends_on_other_traces(database: duckdb.DuckDBPyConnection) -> None:
    """Else the rows would be the same without that."""

    def one(query: str) -> Any:
        return database.execute(query).fetchall()

    assert one("SELECT DISTINCT hook FROM effects WHERE defense = 'Ranker' AND status = 'unchanged'") == [
        ("retrieval",)
    ]
    assert (True,) in one("SELECT ran FROM coverage WHERE defense = 'Ranker'")
    assert one(f"SELECT count(*) > 0 FROM canary_hits WHERE probe_id IS NULL AND canary = '{SECRET}'") == [(True,)]
    assert {(True,), (False,), (None,)} == set(one("SELECT DISTINCT in_control FROM entities"))
    assert one("SELECT session, traces FROM sessions WHERE kind = 'conversation' ORDER BY ALL") == [
        ("conversation c1", 2), ("conversation c2", 2),
    ]  # fmt: skip
    assert one("SELECT DISTINCT defense FROM foreign_parts") == [("TheirRanker",)]
    assert {"bypassed", "unknown"} <= {v for (v,) in one("SELECT verdict FROM verdicts")}
    assert one("SELECT count(*) > 0 FROM verdicts WHERE evidence LIKE '%TimeoutError%'") == [(True,)]
    assert one("SELECT count(*) > 0 FROM exposure WHERE longest_run > 3") == [(True,)]
    assert one("SELECT count(*) > 0 FROM spans WHERE duplicate_of IS NOT NULL") == [(True,)]


def test_every_view_is_made_or_the_error_says_where_it_is_asked(database: duckdb.DuckDBPyConnection) -> None:
    views = {v for (v,) in database.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()}
    assert {*CONTRACT} <= {*offered(), *_ELSEWHERE} <= views
    for view in _ELSEWHERE:
        with pytest.raises(UsageError, match=rf"^`{view}` .*`ragtrace s(core|ql) "):
            named(f"SELECT * FROM {view}")
    for view in views.difference(offered(), _ELSEWHERE):
        with pytest.raises(UsageError, match=rf"no `{view}`; it has: canaries"):
            named(f"SELECT * FROM {view}")


def test_what_is_mapped_reads_other_traces_only_where_that_is_said() -> None:
    """By the views' own text: whoever changes a view so that it needs more than a trace learns it here."""
    read: dict[str, set[str]] = {view: set() for view in MAPPED}
    with in_memory() as db:
        for gone in ACROSS:
            db.execute(f"BEGIN; DROP VIEW {gone}")
            for view in MAPPED:
                try:
                    db.sql(f"FROM {view}")
                except duckdb.CatalogException as error:
                    assert f"name {gone} does not exist" in str(error)
                    read[view] |= {gone} - {view}
            db.execute("ROLLBACK")
    assert read == {view: set(relation.facts) for view, relation in MAPPED.items()}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT nothing FROM documents", 'column "nothing" not found'),
        ("FROM documents; FROM documents", "expected one SELECT over canaries"),
        ("DROP TABLE documents", "expected one SELECT"),
        ("", "expected one SELECT"),
        ("FROM exposure_data", "a lake has no `exposure_data`"),
        ("FROM verdicts_between('2026-01-01', '2026-01-02')", "verdicts_between does not exist"),
        ("FROM '/etc/hosts'", "a lake has no `/etc/hosts`"),
        ("FROM read_csv('/etc/hosts')", "disabled"),
        ("FROM given", "a lake has no `given`"),
    ],
)
def test_a_wrong_question_is_said_before_anything_is_read(query: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        named(query)


def test_views_and_spans_in_one_question(computing: Engine, database: duckdb.DuckDBPyConnection) -> None:
    query = (
        "WITH talk AS (SELECT trace_id, query FROM generations) SELECT t.query, count(*) AS n, max(d.content) AS c "
        "FROM talk t JOIN main.documents d ON d.trace_id = t.trace_id WHERE d.trace_id IN (SELECT trace_id FROM {}) "
        "GROUP BY ALL ORDER BY ALL"
    )
    found = ask(computing, query.format("Spans")).to_pylist()
    assert found == rows(database, query.format("spans")) and len(found) > 3


def test_days(tmp_path: Path) -> None:
    """A trace counts whole on the day on which it began; what is read is what that takes."""
    bench = Bench(tmp_path / "t.duckdb")
    with bench.request(), bench.stage("generation"):
        pass
    segment = bench.write()
    table = pq.read_table(segment)

    def moved(days: list[int], trace: str) -> Path:
        placed = {"start_time_ns": [n * DAY for n in days], "trace_id": [trace * 32] * 2}
        changed = table
        for name, values in placed.items():
            place = table.schema.get_field_index(name)
            changed = changed.set_column(
                place, table.schema.field(place), pa.array(values, table.schema.field(name).type)
            )
        path = segment.with_name(f"{trace}.parquet")
        pq.write_table(changed, path)
        return path

    lake = Lake(str(tmp_path / "lake"))
    for trace, days in {"1": [1, 1], "2": [2, 1], "3": [3, 2], "4": [3, 3], "9": [9, 9]}.items():
        add(lake, [moved(days, trace)])
    Path(next(path for path in lake.files() if "date=1970-01-10" in path)).write_bytes(b"torn")

    def traces(since: int | None, until: int | None) -> list[tuple[str, int]]:
        start = date(1970, 1, 1)
        within = Days(*(None if n is None else start + timedelta(days=n) for n in (since, until)))
        with closing(engine("duckdb", lake, within)) as computing:
            found = ask(computing, "SELECT left(trace_id, 1) AS t, count(*) AS n FROM spans GROUP BY ALL ORDER BY ALL")
        return [(row["t"], row["n"]) for row in found.to_pylist()]

    assert traces(1, 1) == [("1", 2), ("2", 2)]
    assert traces(2, 2) == [("3", 2)]
    assert traces(None, 2) == [("1", 2), ("2", 2), ("3", 2)]
    assert traces(2, 3) == [("3", 2), ("4", 2)]
    with pytest.raises(InputError, match="cannot be read"):
        traces(3, None)


def test_a_trace_of_several_probes_is_no_wrong_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    with bench.span("outer", scope="app"):
        for probe in ("p1", "p2"):
            with bench.request(run_id="r", probe_id=probe, arm="none"):
                pass
    lake = Lake(str(tmp_path / "lake"))
    add(lake, [bench.write()])
    with closing(engine("duckdb", lake)) as computing:
        with pytest.raises(UsageError, match="belongs to several probes"):
            ask(computing, "FROM entities")
        assert ask(computing, "FROM roots").num_rows == 2


def test_an_empty_lake_answers(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with closing(engine("duckdb", Lake(str(tmp_path / "lake")))) as computing:
        for view in ("documents", "exposure", "sessions", "canary_hits", "verdicts"):
            assert ask(computing, f"FROM {view}").num_rows == 0, view


def test_what_is_counted_is_there_as_often() -> None:
    """Counts of many digits; by hand: 1,002,003 runs, of which the view counts each."""
    row = {"kind": "ledger", "defense": "d", "hook": "response", "path": "invoke", "part": False}
    counted = [row | {"status": "changed", "times": 1_002_003}, row | {"status": "error", "error": "E", "times": 1_000}]
    [verdict] = summed("verdicts", pa.Table.from_pylist(counted, COUNTED)).to_pylist()
    assert (verdict["runs"], verdict["changed"], verdict["errors"]) == (1_003_003, 1_002_003, 1_000)


def test_portions_end_where_a_key_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "_ROWS", 4)
    keys = [*"aabbbbbbbbbbbbccd", None, None, None, None, None]
    table = pa.table({"k": pa.array(keys, pa.string()), "n": range(len(keys))})
    seen = []

    def work(portion: pa.Table) -> pa.Table:
        seen.append(portion["n"].to_pylist())
        return portion

    out = list(portions.worked(table.to_batches(3), "k", work, pa.schema([("n", pa.int64())])))
    assert pa.concat_tables(out)["n"].to_pylist() == list(range(len(keys)))
    parts = [[keys[n] for n in part] for part in seen]
    assert parts == [[*"aa"], [*"bbbbbbbbbbbbccd"], [None] * 5]  # two keys or more, and each whole
    assert not list(portions.worked([], "k", work, table.schema))


def test_what_is_mapped_travels() -> None:
    with in_memory() as db:
        work = Rows("effects", {"part_hooks": plain(db, "part_hooks")})
    assert pickle.loads(pickle.dumps(work)) == work


def test_json_from_the_command_line(made: tuple[Lake, Path], tmp_path: Path) -> None:
    run, lake = CliRunner().invoke, str(tmp_path / "lake")
    first, again = (run(app, ["lake", "add", "--db", str(made[1]), "--lake", lake, "--json"]) for _ in range(2))
    told = json.loads(first.stdout)
    assert told == {"lake": lake, "spans": told["spans"], "files": 1, "known": 0, "failed": []} and told["spans"] > 50
    assert json.loads(again.stdout) == told | {"spans": 0, "files": 0, "known": 1}
    (tmp_path / "torn.json").write_text('{"resourceSpans": [')
    torn = run(app, ["lake", "add", str(tmp_path / "torn.json"), "--lake", lake, "--json"])
    assert torn.exit_code == 1 and len(json.loads(torn.stdout)["failed"]) == 1
    asked = ["lake", "sql", "SELECT verdict FROM verdicts WHERE defense = 'TheirRanker'", "--lake", lake, "--json"]
    assert json.loads(run(app, asked).stdout) == [{"verdict": "unknown"}]
    assert json.loads(run(app, [*asked, "--to", "1999-12-31"]).stdout) == []
    for more, says in (
        (["--format", "csv"], "both --json and --format csv"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "earlier day first"),
    ):
        with pytest.raises(UsageError, match=says):
            run(app, [*asked, *more], catch_exceptions=False, standalone_mode=False)
