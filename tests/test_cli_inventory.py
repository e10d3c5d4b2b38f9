"""``ragtrace inventory``: what it prints, and what ``verdicts`` gains from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ragtrace_langchain import translate
from typer.testing import CliRunner

import ragtrace
from ragtrace.cli import app

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
