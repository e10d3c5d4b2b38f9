"""Every file in examples/ runs as it stands, says what it says, and is in their README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {
    "ci_gate.py": (
        "pass: defenses_act",
        "breach: no_canary\n  masked · email: 1 of 1 canaries of family email recovered, in 2 requests",
        "pass: losses",
        "no release",
    ),
    "fastapi_app.py": (
        "answers: {'200 Write to [e-mail].': 100, '200 Write to ann.lee@corp.com.': 100}",
        "house-mask at response: bypassed on astream",
        "ainvoke: 100 answers, 0 without the mask",
        "astream: 100 answers, 100 without the mask",
        "spans lost: 0",
    ),
    "foreign_traces.py": (
        "4 spans from 1 file\n",
        "retrieval · openinference · Who signs?",
        "EMAIL_REAL ann.lee@corp.com: from a document",
        "PIIGuard: unknown, seen at work in 1 spans of openinference",
    ),
    "langgraph_bypass.py": (
        "urgent=False: Ask Ann Lee, [e-mail].",
        "urgent=True: Ask Ann Lee, ann.lee@corp.com.",
        "mask-node at response: bypassed",
        "crossed without it in 1 of 3 crossings (path invoke)",
    ),
    "llama_index_pii_postprocessor.py": (
        "with it, the answer has the address: False",
        "with it, the sources have it still: True",
        "without it: True",
        "PIINodePostprocessor at content: bypassed",
        "crossed without it in 1 of 2 crossings (path stream)",
    ),
    "own_defense.py": (
        "answer: Ann Lee: [phone].",
        "content: active, changed 1 of 1",
        "response: dormant, changed 0 of 1",
        "response: stub",
    ),
    "own_metric.py": (
        "none: 0.50 [0.34, 0.66], n = 40, interpretable",
        "hide-phones: 0.00 [0.00, 0.09], n = 40, interpretable",
    ),
    "own_sql.py": (
        "│hours       │ 3    │",
        "Ann Lee: from a document",
        "Bob Ray: nobody told the model",
        "generation: 0 of 4",
    ),
    "pii_middleware.py": (
        "invoke: The contract is signed by Ann Lee, [REDACTED_EMAIL].",
        "stream: The contract is signed by Ann Lee, ann.lee@corp.com.",
        "PIIMiddleware · response · bypassed · stream",
        "stream · raw text had left before it ran",
        "invoke · masked",
    ),
    "quickstart.py": (
        "invoke: Write to [e-mail].",
        "stream: Write to ann.lee@corp.com.",
        "house-mask at response: bypassed (path stream)",
        "its hook was crossed without it in 1 of 2 crossings (path stream)",
    ),
}
ENDS_WITH = {"ci_gate.py": 1}  # a gate that stops the release


def test_the_readme_names_each_of_them_once() -> None:
    named = re.findall(r"^\| `([\w.-]+)` \|", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(p.name for p in EXAMPLES.iterdir() if p.is_file() and p.name != "README.md")
    assert sorted(SAID) == sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_says_what_it_says(name: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:ragtrace", EXAMPLES / name],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert (run.returncode, "Traceback" in run.stderr) == (ENDS_WITH.get(name, 0), False), run.stdout + run.stderr
    assert [said for said in SAID[name] if said not in run.stdout] == [], run.stdout


def test_foreign_traces_takes_a_file(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"resourceSpans": []}')
    run = subprocess.run(
        [sys.executable, EXAMPLES / "foreign_traces.py", "empty.json"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert run.returncode == 0 and "0 spans from" in run.stdout, run.stdout + run.stderr
