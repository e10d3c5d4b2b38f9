"""``ragtrace inventory``: what it prints, and what ``verdicts`` gains from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ragtrace_langchain import translate
from typer.testing import CliRunner

import ragtrace
from ragtrace.cli import app, main

STUB = """
import ragtrace

class Mask(ragtrace.Defense):
    name = "mask"

    def on_response(self, query, documents, response):
        # TODO: mask names
        return response
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    file = tmp_path / "defenses.py"
    file.write_text(STUB)
    return file


def test_json_has_the_contract_shape(target: Path) -> None:
    run = CliRunner().invoke(app, ["inventory", str(target), "--json"])
    assert run.exit_code == 0, run.output
    [found] = json.loads(run.stdout)
    assert (found["defense"], found["kind"], found["file"]) == ("defenses.Mask", "ragtrace", str(target))
    assert [(h["hook"], h["status"], h["line"]) for h in found["hooks"]] == [("response", "stub", 7)]
    assert set(found["hooks"][0]) == {"hook", "status", "file", "line", "reason"}


def test_with_a_database_the_verdict_gains_the_source(target: Path, tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    for _ in range(2):  # a second reading replaces the first
        run = CliRunner().invoke(app, ["inventory", str(target), "--db", str(database)])
        assert run.exit_code == 0, run.output
        assert "stub" in run.stdout
    with ragtrace.open(database) as db:
        assert db.execute("SELECT defense, hook, source_status, runtime_status, verdict FROM verdicts").fetchall() == [
            ("mask", "response", "stub", "not_run", "silent_stub")
        ]


def test_the_end_of_text_token_counts_on_no_path() -> None:
    """Some servers send it with ``invoke`` and leave it out of ``stream``: the mean must be the same."""
    told = [{"token": "a", "logprob": -1.0}, {"token": "", "logprob": -9.0}]
    assert translate.logprobs({"logprobs": {"content": told}}) == [-1.0]


def test_a_table_for_readers_names_status_hook_place_and_reason(target: Path) -> None:
    run = CliRunner().invoke(app, ["inventory", str(target)])
    assert run.exit_code == 0
    [row] = [line for line in run.stdout.splitlines() if "stub" in line]
    for told in ("response", "defenses.Mask", f"{target}:7", "line 8 says `TODO`"):
        assert told in row


def test_names_of_one_s_own_and_import_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house.py").write_text("class X:\n    def cook(self, text):\n        return text.upper()\n")
    (tmp_path / "names.toml").write_text('[methods]\ncook = "prompt"\n')
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["inventory", "house:X", "--json", "--names", "names.toml"])
    assert [(d["defense"], d["kind"], d["hooks"][0]["hook"]) for d in json.loads(run.stdout)] == [
        ("house.X", "duck", "prompt")
    ]
    assert "No defense found" in CliRunner().invoke(app, ["inventory", "house"]).stdout


def test_bad_files_are_told_and_only_nothing_readable_is_an_error(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.py").write_text("print 'x'\n")
    (tmp_path / "esc.py").write_text("x = \x1b[31m\n")
    run = CliRunner().invoke(app, ["inventory", str(tmp_path), "--json"])
    assert run.exit_code == 0 and len(json.loads(run.stdout)) == 1
    assert "old.py: skipped, no valid Python 3" in run.stderr and "\x1b" not in run.output
    monkeypatch.setattr("sys.argv", ["ragtrace", "inventory", str(tmp_path / "old.py")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "old.py" in capsys.readouterr().err
