"""One question: its answer in four forms, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from store_fixtures import Bench
from typer.testing import CliRunner

import ragtrace
from ragtrace.cli import app
from ragtrace.errors import StoreError, UsageError
from ragtrace.query import ask
from ragtrace.report.terminal import harmless, table


@pytest.fixture
def database(tmp_path: Path) -> Path:
    bench = Bench(tmp_path / "t.duckdb")
    with bench.span("a\x1b[31m\u202eb", {"n": 1}, scope="app"):
        pass
    bench.open().close()
    return bench.database


def _printed(database: Path, query: str, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    ask(database, query, "table", None, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def _written(database: Path, query: str, format: str) -> Path:
    out = database.with_name(f"answer.{format}")
    ask(database, query, format, out, Console())
    return out


ODD = (
    "SELECT 1::HUGEINT h, 1.5::DECIMAL(5,2) d, 'nan'::DOUBLE n, 'inf'::DOUBLE i, {'a': [1, NULL]} s, "
    "[1.5, 'nan'::DOUBLE] l, "
    "DATE '2026-01-02' t, '\\xFF'::BLOB b, NULL z, true o, 1 AS o, 'é\"' q, INTERVAL 1 DAY v, '{\"k\":1}'::JSON j, "
    "'x'::ENUM('x','y') e, uuid() u"
)


def test_json_is_json(database: Path) -> None:
    (row,) = json.loads(_written(database, ODD, "json").read_text(), parse_constant=pytest.fail)
    del row["u"]
    assert row == {
        "h": 1,
        "d": 1.5,
        "n": None,
        "i": None,
        "s": {"a": [1, None]},
        "l": [1.5, None],
        "t": "2026-01-02",
        "b": "ff",
        "z": None,
        "o": True,
        "o_10": 1,
        "q": 'é"',
        "v": row["v"],
        "j": '{"k":1}',
        "e": "x",
    }


def test_csv_holds_every_type(database: Path) -> None:
    header, row = csv.reader(_written(database, ODD, "csv").read_text("utf-8").splitlines())
    assert header == [*"hdnisltbzooqvjeu"]
    assert [row[i] for i in (0, 1, 4, 6, 8, 11, 13, 14)] == [
        "1",
        "1.50",
        '{"a": [1, null]}',
        "2026-01-02",
        "",
        'é"',
        '{"k":1}',
        "x",
    ]


def test_parquet_holds_the_answer_or_says_what_it_cannot(database: Path) -> None:
    out = _written(database, "SELECT name, attributes FROM spans", "parquet")
    assert pq.read_table(out).to_pylist() == [{"name": "a\x1b[31m\u202eb", "attributes": '{"n":1}'}]
    with pytest.raises(UsageError, match=r"Parquet cannot hold this answer .* cast the column"):
        ask(database, "SELECT INTERVAL 1 DAY AS v", "parquet", database.with_name("no.parquet"), Console())
    with pytest.raises(UsageError, match="say where it goes with --out FILE"):
        ask(database, "SELECT 1", "parquet", None, Console())
    assert not list(database.parent.glob("no*")) and not list(database.parent.glob("tmp*"))


def test_a_table_in_a_file_is_tabs_and_whole(database: Path) -> None:
    out = _written(database, "SELECT name, repeat('x', 1000) AS long, NULL AS z FROM spans", "table")
    assert out.read_text() == f"name\tlong\tz\na�[31m�b\t{'x' * 1000}\tNULL\n"


def test_a_query_that_fails_leaves_the_old_answer(database: Path) -> None:
    out = _written(database, "SELECT 1 AS x", "csv")
    for query in ("SELECT nothing", "SELECT CAST(name AS INT) FROM spans"):
        with pytest.raises(UsageError):
            ask(database, query, "csv", out, Console())
    assert out.read_text() == '"x"\n1\n' and not list(database.parent.glob("tmp*"))
    with pytest.raises(UsageError, match=r"cannot write .* choose a file in a folder"):
        ask(database, "SELECT 1", "csv", database.parent / "missing" / "x.csv", Console())


def test_a_table_shows_all_columns_or_each_row_by_itself(database: Path) -> None:
    wide = "SELECT " + ", ".join(f"{i} AS column_{i}" for i in range(40))
    printed = _printed(database, wide, width=80)
    assert "row 1" in printed and all(f"column_{i} " in printed for i in range(40))
    assert "row 1" not in _printed(database, "SELECT 1 AS a, 2 AS a", width=80)
    assert _printed(database, "SELECT 1 AS a, 2 AS a").count("a") == 2


def test_escapes_of_a_trace_are_not_let_through(database: Path) -> None:
    printed = _printed(database, 'SELECT name, name AS "\x1b]0;title\x07" FROM spans')
    assert not {"\x1b", "\u202e", "\x07"} & set(printed) and "a�[31m�b" in printed


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(), max_size=30))
def test_harmless_is_one_line_of_printable_characters(text: str) -> None:
    made = harmless(text)
    assert len(made) == len(text) and len(made.splitlines()) <= 1
    assert not any(
        0 <= ord(c) < 32 or 127 <= ord(c) < 160 or (0x200B <= ord(c) <= 0x202E and c in "\u200e\u200f\u202a\u202e")
        for c in made
    )
    made.encode()


def test_markup_in_a_trace_is_text() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(table(["c"], [["[red]x[/red] [link=http://e]"]]))
    assert "[red]x[/red] [link=http://e]" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO score_data VALUES (1)",
        "UPDATE score_data SET value = 1",
        "DELETE FROM span_data",
        "DROP VIEW spans",
        "CREATE TABLE x (y INT)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "COPY spans TO 'x.csv'",
        "ATTACH ':memory:' AS m",
        "ATTACH 'x.duckdb'",
        "DETACH t",
        "SET threads = 1",
        "RESET threads",
        "PRAGMA threads = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE 'x'",
        "CHECKPOINT",
        "BEGIN",
        "VACUUM",
        "USE t",
        "SET VARIABLE x = 1",
        "CALL pragma_version()",
    ],
)
def test_what_is_no_question_is_refused(database: Path, statement: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(database.parent)
    before = {p.name for p in database.parent.iterdir()}
    with pytest.raises(UsageError, match="expected a question: SELECT"):
        ask(database, statement, "csv", Path("out.csv"), Console())
    assert {p.name for p in database.parent.iterdir()} == before


@pytest.mark.parametrize(
    "source", ["read_csv('/etc/passwd')", "'/etc/passwd'", "glob('*')", "read_text('t.duckdb')", "answer"]
)
def test_a_question_reaches_no_file_and_no_variable(database: Path, source: str) -> None:
    with pytest.raises(UsageError, match=r"(?s)(disabled by configuration|does not exist).*views: .*canaries"):
        ask(database, f"FROM {source}", "csv", database.with_name("out.csv"), Console())


@pytest.mark.parametrize("query", ["", "  ;", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP VIEW spans"])
def test_one_statement_is_expected(database: Path, query: str) -> None:
    with pytest.raises(UsageError, match=r"got [02] SQL statements, expected one"):
        ask(database, query, "table", None, Console())


@pytest.mark.parametrize(
    "query",
    ["SELECT 1;", "FROM spans", "DESCRIBE spans", "SHOW TABLES", "EXPLAIN FROM spans", "VALUES (1)", "SUMMARIZE spans"],
)
def test_questions_of_all_kinds(database: Path, query: str) -> None:
    assert _printed(database, query).strip()


def test_wrong_sql_says_what_is_there(database: Path) -> None:
    with pytest.raises(UsageError, match=r'(?s)Did you mean "spans.*views: .*canaries, .*, verdicts'):
        ask(database, "FROM span", "table", None, Console())
    with pytest.raises(UsageError, match=r'(?s)"tracee".*Candidate bindings: "trace_id"'):
        ask(database, "SELECT tracee FROM spans", "table", None, Console())
    with pytest.raises(UsageError, match=r"(?s)syntax error.*views: "):
        ask(database, "SELEC 1", "table", None, Console())


def test_what_waits_in_the_spool_is_merged_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "new.duckdb")
    with pytest.raises(StoreError, match=r"no database at .*ragtrace\.setup"):
        ask(bench.database, "FROM spans", "table", None, Console())
    for n in (1, 2):
        with bench.span("waiting"):
            pass
        bench.write()
        assert _printed(bench.database, "SELECT name FROM spans").count("waiting") == n
    with ragtrace.open(bench.database) as db, pytest.raises(StoreError, match="already open in this process"):
        assert db
        ask(bench.database, "FROM spans", "table", None, Console())


def test_memory_is_a_setting(database: Path) -> None:
    limit = "SELECT current_setting('memory_limit') AS held"
    for more, held in (([], "1.8 GiB"), (["--memory", "4"], "3.7 GiB"), (["--memory", "0.5"], "476.8 MiB")):
        done = CliRunner().invoke(app, ["sql", limit, "--db", str(database), "--format", "csv", *more])
        assert held in done.output, done.output
    done = CliRunner().invoke(app, ["sql", limit, "--db", str(database), "--memory", "0"])
    assert done.exit_code == 2 and "--memory" in done.output
