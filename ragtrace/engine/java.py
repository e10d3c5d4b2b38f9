"""Whether there is a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ragtrace.errors import UsageError

LEAST = 17
_FIX = f"install Java {LEAST} or newer (Debian: openjdk-17-jre-headless) and put it on PATH, or set JAVA_HOME"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def check() -> None:
    """:raises UsageError: no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None or not Path(program).exists():
        where = f"JAVA_HOME is {home!r}, and nothing is there" if home else "no java is on PATH"
        raise UsageError(f"Spark needs Java {LEAST} or newer, and {where}; {_FIX}")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    found = _VERSION.search(said.stderr + said.stdout)
    if found is None:
        raise UsageError(f"Spark needs Java {LEAST} or newer; {program} does not say which it is; {_FIX}")
    version = int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 is 8
    if version < LEAST:
        raise UsageError(f"Spark needs Java {LEAST} or newer, {program} is {version}; {_FIX}")
