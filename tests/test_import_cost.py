"""``import ragtrace`` loads nothing heavy: checked in a process of its own."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("duckdb", "pyarrow", "torch", "langchain_core", "llama_index", "opentelemetry.sdk", "numpy")


def loaded(code: str) -> str:
    script = f"import sys\n{code}\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    assert loaded("import ragtrace") == "[]"


def test_nor_do_defenses_and_observe() -> None:
    code = "import ragtrace\nragtrace.defend, ragtrace.Defense, ragtrace.Document, ragtrace.declare\n"
    code += "@ragtrace.observe(hook='response')\ndef mask(text): return text\nmask('x')"
    assert loaded(code) == "[]"
