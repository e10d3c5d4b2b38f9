"""Every file in examples/ runs as it stands, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {
    "pii_middleware.py": (
        "invoke: The contract is signed by Ann Lee, [REDACTED_EMAIL].",
        "stream: The contract is signed by Ann Lee, ann.lee@corp.com.",
        "PIIMiddleware · response · bypassed · stream",
        "stream · raw text had left before it ran",
        "invoke · masked",
    ),
}


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_says_what_it_says(name: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:ragtrace", EXAMPLES / name],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert [line for line in SAID[name] if line not in run.stdout] == []
