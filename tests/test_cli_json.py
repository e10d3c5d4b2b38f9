"""``--json`` prints one JSON document and nothing else, at every command that has something to say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click import Command
from report_store import small
from typer.main import get_command
from typer.testing import CliRunner

from ragtrace import cli, demo
from ragtrace.papers import s2mia

SILENT = {"report", "sql", "ask", "ui", "watch"}  # --format json, or a server
MASK = """
import ragtrace
class Mask(ragtrace.Defense):
    def on_response(self, query, documents, response):
        return response
"""
APP = """
import ragtrace

def make(documents):
    @ragtrace.pipeline("echo")
    def ask(question):
        with ragtrace.retrieval(question) as stage:
            stage.documents([ragtrace.Document(d.content, d.id) for d in documents[:2]])
        with ragtrace.generation(question, model="m") as stage:
            return stage.response("It is signed.")
    return ask
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mask.py").write_text(MASK)
    (tmp_path / "documents.jsonl").write_text('{"id": "1", "text": "Ann signs. Bob reads."}\n')
    return small(tmp_path)


def told(*arguments: object, code: int = 0) -> Any:
    """The document on standard output; there is nothing else."""
    run = CliRunner().invoke(cli.app, [*map(str, arguments), "--json"])
    assert run.exit_code == code, run.output
    return json.loads(run.stdout, parse_constant=pytest.fail)


def test_import_says_what_came_and_what_did_not(store: Path) -> None:
    (store.parent / "torn.json").write_text('{"resourceSpans": [')
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "x", "startTimeUnixNano": "1790000000000000000"}
    scoped = [{"scopeSpans": [{"scope": {"name": "theirs"}, "spans": [span]}]}]
    (store.parent / "whole.json").write_text(json.dumps({"resourceSpans": scoped}))
    assert told("import", "whole.json", "--db", "t.duckdb") == {
        "db": "t.duckdb", "spans": 1, "files": 1, "segments": 0, "failed": [], "skipped": [],
    }  # fmt: skip
    run = CliRunner().invoke(cli.app, ["import", "whole.json", "torn.json", "--db", "t.duckdb", "--json"])
    found = json.loads(run.stdout)
    assert (
        run.exit_code == 1 and found["files"] == 1 and len(found["failed"]) == 1 and "torn.json" in found["failed"][0]
    )
    assert "torn.json" in run.stderr


def test_compact_and_forget(store: Path) -> None:
    done = told("compact", "--db", store, "--older-than", "1h")
    assert done["bytes_before"] > 0 < done["bytes_after"] and set(done["removed"]) == {"traces", "spans", "results"}
    assert told("forget", "--db", store, "--trace", "0" * 32) == {
        "db": str(store), "removed": {"traces": 0, "spans": 0, "results": 0},
    }  # fmt: skip


def test_canaries(store: Path) -> None:
    made = told("canary", "mint", "--family", "email", "--family", "id", "--count", 3)
    assert [row["family"] for row in made] == ["email"] * 3 + ["id"] * 3
    assert all(("@" in row["text"]) == (row["family"] == "email") for row in made)
    assert told("canary", "plant", "documents.jsonl", "--family", "id") == {
        "planted": 1, "documents": "planted.jsonl", "canaries": "canaries.jsonl",
    }  # fmt: skip
    hits = told("canary", "scan", "planted.jsonl", "--canaries", "canaries.jsonl", code=1)
    assert [hit["family"] for hit in hits] == ["id"]


def test_those_that_had_it_before(store: Path) -> None:
    assert {"verdicts", "results"} <= set(told("score", "--db", store))
    assert [h["status"] for d in told("inventory", "mask.py") for h in d["hooks"]] == ["pass_through"]
    assert isinstance(told("doctor"), list)
    assert told("check", "--db", store, code=1)


def test_an_audit_ends_in_its_verdicts_and_results(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.parent / "json_app.py").write_text(APP)
    monkeypatch.syspath_prepend(str(store.parent))
    asked = (
        "audit",
        "--app",
        "json_app:make",
        "--members",
        4,
        "--attack",
        "benign",
        "--db",
        "a.duckdb",
        "--no-controls",
    )
    dry = CliRunner().invoke(cli.app, [*map(str, asked), "--dry-run", "--json"])
    assert json.loads(dry.stdout) == {"db": "a.duckdb", "run": None, "verdicts": [], "results": []}
    assert "requests to" in dry.stderr and not Path("a.duckdb").exists()
    found = told(*asked, "--defense", "regex_mask")
    assert found["run"].startswith("run-") and {r["run_id"] for r in found["results"]} == {found["run"]}
    assert ("regex_mask", "response") in {(v["defense"], v["hook"]) for v in found["verdicts"]}


def test_demo_and_papers(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def played(out: Path, console: Any) -> str:
        console.print("a table for people")
        (out / "traces.duckdb").write_bytes(store.read_bytes())
        return "r"

    monkeypatch.setattr(demo, "main", played)
    Path("d").mkdir()
    found = told("demo", "--out", "d")
    assert found["db"] == "d/traces.duckdb" and found["verdicts"] and {r["run_id"] for r in found["results"]} == {"r"}

    def written(design: Any, out: Path, console: Any, **given: Any) -> None:
        console.print("tables for people")
        if not given["dry_run"]:
            out.mkdir()
            (out / "s2mia.duckdb").write_bytes(store.read_bytes())
            (out / "tables.md").write_text("x")

    monkeypatch.setattr(s2mia, "main", written)
    assert told("papers", "s2mia", "--out", "p", "--dry-run") == {
        "db": "p/s2mia.duckdb", "files": [], "verdicts": [], "results": [],
    }  # fmt: skip
    found = told("papers", "s2mia", "--out", "p")
    assert found["files"] == ["p/tables.md"] and found["verdicts"] and found["results"]


def test_collect_says_at_its_end_what_waits(store: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from ragtrace.cli import main; main()",
        "collect",
        "--db",
        "c.duckdb",
        "--port",
        "0",
    ]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"listening on (http://127.0.0.1:\d+)", process.stderr.readline())
        assert found is not None
        httpx.get(found[1], timeout=60)  # it serves, so it is told to stop by whom we think
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert "stopped" in err
    assert json.loads(out) == {"db": "c.duckdb", "spool": str(Path.cwd() / "c.duckdb.spool"), "segments": 0}


def _commands(group: Any, prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Command]]:
    found = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found += _commands(command, (*prefix, name)) if inner else [((*prefix, name), command)]
    return found


def test_every_command_of_ours_has_json_in_one_form_or_another() -> None:
    for path, command in _commands(get_command(cli.app)):
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or "--format" in options or path[-1] in SILENT or path[0] == "entities", path


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", {"COMP_WORDS": "ragtrace comp", "COMP_CWORD": "1"}, "compact"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "ragtrace comp"}, "compact"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "ragtrace canary m"}, "mint"),
        ("bash", {"COMP_WORDS": "ragtrace forget --us", "COMP_CWORD": "2"}, "--user"),
    ],
)
def test_the_shell_completes(shell: str, words: dict[str, str], expected: str) -> None:
    environment = os.environ | words | {"_RAGTRACE_COMPLETE": f"complete_{shell}"}
    ragtrace = Path(sys.executable).with_name("ragtrace")
    done = subprocess.run([ragtrace], capture_output=True, text=True, env=environment, check=True)
    assert expected in done.stdout and "forget " not in done.stdout.replace("--user", "")


def test_with_json_nothing_of_a_terminal_is_written(store: Path) -> None:
    environment = os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-c", "from ragtrace.cli import main; main()", "score", "--db", str(store), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout) and "\x1b" not in done.stdout
