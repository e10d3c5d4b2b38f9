"""The command line: exit codes, messages, and no traceback for what a user may do wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from store_fixtures import Bench, effect
from typer.testing import CliRunner

import ragtrace
from ragtrace import cli

_MAIN = [sys.executable, "-W", "error", "-c", "from ragtrace.cli import main; main()"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "t.duckdb")
    with bench.request(declared={"mask": ["content"]}), bench.stage("retrieval", effects=[effect("mask", "content")]):
        pass
    bench.write()
    return bench


def _main(monkeypatch: Any, capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """``main()`` in this process: exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["ragtrace", *map(str, arguments)])
    monkeypatch.setattr("warnings.formatwarning", None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_help_and_wrong_options() -> None:
    runner = CliRunner()
    answer = runner.invoke(cli.app, ["--help"])
    assert answer.exit_code == 0 and all(command in answer.output for command in ("demo", "sql", "import", "score"))
    for wrong in (["sql"], ["sql", "SELECT 1", "--format", "xml"], ["nothing"], ["import"], []):
        assert runner.invoke(cli.app, wrong).exit_code == 2


@pytest.mark.parametrize("format", ["csv", "json"])
def test_sql_to_standard_output(bench: Bench, format: str) -> None:
    answer = CliRunner().invoke(
        cli.app, ["sql", "--db", str(bench.database), "SELECT defense, changed FROM verdicts", "--format", format]
    )
    expected = {"csv": '"defense","changed"\n"mask",1\n', "json": '[{"defense": "mask", "changed": 1}]\n'}
    assert (answer.exit_code, answer.output) == (0, expected[format])


def test_a_table_in_a_pipe_is_not_folded(bench: Bench) -> None:
    long = "word " * 70
    answer = CliRunner().invoke(cli.app, ["sql", "--db", str(bench.database), f"SELECT '{long}' AS a, '{long}' AS b"])
    assert answer.exit_code == 0 and f"{long.strip()}" in answer.output and "\x1b" not in answer.output
    assert len(answer.output.splitlines()) == 5


def test_sql_errors_keep_their_lines_but_no_escapes(bench: Bench, monkeypatch: Any, capsys: Any) -> None:
    code, out, err = _main(
        monkeypatch, capsys, "sql", "--db", bench.database, "SELECT '\x1b[31m\u202e\x9b' FROM nowhere"
    )
    assert (code, out) == (2, "") and err.startswith(
        "ragtrace: Catalog Error: Table with name nowhere does not exist!\n"
    )
    assert "\nviews: alarms, canaries" in err and not {"\x1b", "\u202e", "\x9b"} & set(err)


def test_missing_databases_are_exit_code_2(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    for command in (["sql", "SELECT 1"], ["score"]):
        code, out, err = _main(monkeypatch, capsys, *command, "--db", tmp_path / "no.duckdb")
        assert (code, out) == (2, "") and "no database at" in err and "ragtrace.setup" in err
    assert list(tmp_path.iterdir()) == []


def test_score_reads_the_spool_of_an_app_that_never_made_the_database(bench: Bench) -> None:
    answer = CliRunner().invoke(cli.app, ["score", "--db", str(bench.database)])
    assert answer.exit_code == 0, answer.output
    assert (
        "mask" in answer.output
        and "changed something in 1 of 1 runs" in answer.output
        and "nothing to score" in answer.output
    )


def test_import_of_folders_and_files(bench: Bench, tmp_path: Path) -> None:
    with bench.span("second"):
        pass
    file = bench.write().rename(tmp_path / "one.parquet")
    target = tmp_path / "new" / "other.duckdb"
    arguments = ["import", str(bench.spool), str(file), "--db", str(target)]
    first, again = (CliRunner().invoke(cli.app, arguments) for _ in range(2))
    assert first.exit_code == again.exit_code == 0
    assert first.output == f"3 spans from 2 segments into {target}\n"
    assert again.output == f"0 spans from 0 segments into {target}\n"
    assert file.exists() and len(list(bench.spool.iterdir())) == 1
    with ragtrace.open(target) as db:
        assert db.execute("SELECT count(*) FROM spans").fetchone() == (3,)


def test_import_of_what_is_not_there_changes_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / "empty").mkdir()
    target = tmp_path / "other.duckdb"
    for wrong, said in (
        ("missing", "does not exist"),
        ("empty", "no file in"),
    ):
        code, _, err = _main(monkeypatch, capsys, "import", bench.spool, tmp_path / wrong, "--db", target)
        assert code == 2 and said in err and wrong in err and not target.exists()


def test_import_of_a_torn_segment_takes_the_rest(bench: Bench, tmp_path: Path) -> None:
    torn = bench.spool / "torn\x1b[31m.parquet"
    torn.write_bytes(b"PAR1")
    done = subprocess.run(
        [*_MAIN[:1], *_MAIN[3:], "import", str(bench.spool), "--db", str(tmp_path / "o.duckdb")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout.startswith("2 spans from 1 segments")
    assert "ragtrace: left where they are, not merged:" in done.stderr and "torn�[31m.parquet" in done.stderr
    assert (
        "1 of 2 segments could not be read" in done.stderr
        and "Traceback" not in done.stderr
        and "\x1b" not in done.stderr
    )


def test_as_a_process_of_its_own(bench: Bench) -> None:
    done = subprocess.run(
        [*_MAIN, "sql", "--db", str(bench.database), "SELECT count(*) AS n FROM spans", "--format", "json"],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
        check=True,
    )
    assert json.loads(done.stdout) == [{"n": 2}] and done.stderr == ""


@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_a_pipe_that_is_closed_early(bench: Bench, format: str) -> None:
    bench.open().close()
    query = "SELECT repeat('x', 300) AS x FROM range(5000)"
    with subprocess.Popen(
        [*_MAIN, "sql", "--db", str(bench.database), query, "--format", format],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""


def test_colour_only_where_it_is_wanted(bench: Bench, monkeypatch: Any) -> None:
    bench.open().close()
    code = "import sys; sys.stdout.isatty = lambda: True; from ragtrace.cli import main; main()"
    command = [sys.executable, "-c", code, "score", "--db", str(bench.database)]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {
        "TERM": "xterm-256color",
        "COLUMNS": "100",
    }
    coloured = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    plain = subprocess.run(
        command, capture_output=True, text=True, env=environment | {"NO_COLOR": "1"}, check=True
    ).stdout
    assert "\x1b[32mactive" in coloured and "\x1b[32m" not in plain and "active" in plain


def test_an_empty_answer_says_why(bench: Bench, tmp_path: Path) -> None:
    def asked(database: Path, query: str) -> tuple[str, str]:
        done = CliRunner().invoke(cli.app, ["sql", query, "--format", "json", "--db", str(database)])
        assert done.exit_code == 0
        return done.stdout, done.stderr

    nothing, undefended = tmp_path / "nothing.duckdb", Bench(tmp_path / "undefended.duckdb")
    ragtrace.open(nothing).close()
    with undefended.request(), undefended.stage("retrieval"):
        pass
    undefended.write()
    verdicts = "SELECT defense FROM verdicts"
    assert asked(nothing, verdicts)[0] == "[]\n" and "no span is here yet" in asked(nothing, verdicts)[1]
    assert "no defense is known here" in asked(undefended.database, verdicts)[1]
    assert asked(undefended.database, "SELECT 1 FROM spans WHERE false") == ("[]\n", "")
    assert asked(bench.database, f"{verdicts} WHERE defense = 'other'") == ("[]\n", "")
