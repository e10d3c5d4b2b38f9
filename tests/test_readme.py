"""Every code block of the README is executed, in order."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
BIN = Path(sys.executable).parent


def _run(command: list[str], folder: Path) -> str:
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def _of(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def test_every_block_has_a_language_that_is_executed_here() -> None:
    assert {kind for kind, _ in BLOCKS} <= {"sh", "python", "sql", "text", "toml"}
    assert len(_of("sh")) == 2
    assert len(_of("python")) == 3
    assert len(_of("sql")) == 3


def test_python_and_sql_blocks(tmp_path: Path) -> None:
    first, *others = _of("python")
    printed = _run([sys.executable, "-c", first], tmp_path)
    assert printed.splitlines() == ["Write to [e-mail].", "Write to ann.lee@corp.com."]
    for other in others:
        _run([sys.executable, "-c", other], tmp_path)
    verdicts, generations, documents = (
        json.loads(_run(["ragtrace", "sql", "--format", "json", query.strip()], tmp_path)) for query in _of("sql")
    )
    assert [(v["defense"], v["hook"], v["verdict"], v["bypassed_paths"]) for v in verdicts] == [
        ("house-mask", "response", "bypassed", "stream")
    ]
    assert {g["path"] for g in generations} == {"invoke", "stream"}
    assert {d["phase"] for d in documents} == {"retrieved", "in_prompt"}


def test_the_audit_file(tmp_path: Path) -> None:
    """Every name in it is known: a dry run builds corpus, attacks and arms, and asks nothing."""
    (audit,) = _of("toml")
    (tmp_path / "AUDIT.toml").write_text(audit)
    assert "5 arms, 5 seeds: at most 2800 requests" in _run(["ragtrace", "audit", "AUDIT.toml", "--dry-run"], tmp_path)


def test_the_example_says_what_the_readme_shows(tmp_path: Path) -> None:
    shown, _ = _of("text")
    printed = _run([sys.executable, str(ROOT / "examples" / "pii_middleware.py")], tmp_path)
    assert [line for line in shown.splitlines() if line not in printed] == []


@pytest.mark.model
def test_shell_blocks_print_what_the_readme_shows(tmp_path: Path) -> None:
    demo, question = _of("sh")
    if not (ROOT / ".venv" / "bin" / "ragtrace").exists():
        pytest.skip("needs the checkout's own .venv, which `make test` makes")
    out = ROOT / "ragtrace-demo"
    shutil.rmtree(out, ignore_errors=True)
    printed = _run(["bash", "-ec", demo], ROOT)
    assert "saved: same prompt, same model, greedy" in printed
    answered = _run(["bash", "-ec", question], ROOT)
    _, shown = _of("text")
    rows = [tuple(line.split(" · ")) for line in shown.splitlines()]
    assert rows
    for row in rows:
        assert any(all(cell in line for cell in row) for line in answered.splitlines()), (row, answered)
    names = "SELECT value, interpretable FROM results WHERE metric = 'nel_person' AND arm = 'entity_substitution'"
    canaries = "SELECT value FROM results WHERE metric = 'canary_recovery_person' AND arm = 'entity_substitution'"
    command = ["ragtrace", "sql", "--db", str(out / "traces.duckdb"), "--format", "json"]
    assert {(r["value"], r["interpretable"]) for r in json.loads(_run([*command, names], ROOT))} == {(0.0, "entangled")}
    assert all(row["value"] > 0 for row in json.loads(_run([*command, canaries], ROOT)))
