"""Running a page of the documentation as its reader would: every block, in order, in a folder of its own.

- ``python``: run; where its first line is a comment with a file's name (``# rag.py``), saved under it instead.
- ``toml``, ``yaml``: saved under the name in the first line, or read alone.
- ``sh``: run by bash, stopped by the first failure. What would take long, wait for ever or install is run in the form
  that :data:`INSTEAD` names.
- ``sql``: asked of ``traces.duckdb``, unless a comment in it names another (``-- audit.duckdb``).
- ``text``: what the block before it prints, in these lines; `` · `` stands between the cells of a table.

A page with tabs is run once for each of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
LANGUAGES = {"python", "sh", "sql", "toml", "yaml", "text"}
INSTEAD = {
    r"ragtrace (papers s2mia|collect|demo|ui|watch)\b.*": r"ragtrace \1 --help",  # needs data, waits, takes long
    r"(gunicorn|uvicorn) (\w+):(\w+)\b.*": r'python -c "import \2; \2.\3"',  # serves for ever: only that it loads
}
"""What a line of a shell block is replaced by: pattern of the whole line → what is run."""
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w+)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^:{3,}\{tab-item\} (.+?)$.*?^:{3,}$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^# ([\w./-]+\.(?:py|toml|yaml|yml))$")
_DATABASE = re.compile(r"^-- ([\w.-]+\.duckdb)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block; ``tab`` is that of the tab it stands in."""

    language: str
    text: str
    tab: str | None
    line: int

    @property
    def file(self) -> str | None:
        """The name it is saved under."""
        named = _NAMED.match(self.text.partition("\n")[0]) if self.language in ("python", "toml", "yaml") else None
        return named[1] if named else None


def pages() -> list[str]:
    """All pages, by their path below ``docs``."""
    return sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md") if "_build" not in p.parts)


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, without directives."""
    text = (DOCS / page).read_text("utf-8")
    items = [(m.start(), m.end(), m[1].strip()) for m in _ITEM.finditer(text)]
    found = []
    for m in _FENCE.finditer(text):
        tab = next((name for start, end, name in items if start < m.start() < end), None)
        found.append(Block(m["language"], m["text"], tab, text[: m.start()].count("\n") + 1))
    return found


def tabs(page: str) -> list[str | None]:
    """The ways through a page; one without a name where it has no tabs."""
    return list(dict.fromkeys(b.tab for b in blocks(page) if b.tab is not None)) or [None]


def run(page: str, tab: str | None, folder: Path) -> int:
    """Runs the page's blocks for one tab, and returns how many there were."""
    printed, count = None, 0
    for block in blocks(page):
        if block.tab not in (None, tab):
            continue
        count += 1
        where = f"docs/{page}:{block.line}"
        if block.language == "text":
            assert printed is not None, f"{where}: a text block shows what the block before it prints"
            shown(block.text, printed, where)
        elif block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, "utf-8")
            printed = None
        else:
            printed = _run(block, folder, where)
    return count


def _run(block: Block, folder: Path, where: str) -> str | None:
    if block.language == "toml":
        tomllib.loads(block.text)
        return None
    if block.language == "python":
        return command([sys.executable, "-W", "error", "-c", block.text], folder, where)
    if block.language == "sql":
        named = _DATABASE.search(block.text)
        database = named[1] if named else "traces.duckdb"
        question = _DATABASE.sub("", block.text).strip()
        return command(["ragtrace", "sql", "--db", database, question], folder, where)
    assert block.language == "sh", f"{where}: {block.language} is not run; use one of {', '.join(sorted(LANGUAGES))}"
    lines = [instead(line, where) for line in block.text.splitlines()]
    return command(["bash", "-ec", "\n".join(lines)], folder, where)


def instead(line: str, where: str) -> str:
    """What is run in place of a shell line, which is mostly the line."""
    if line.startswith("python -m pip install "):
        installable(line, where)
        return "true"
    for pattern, other in INSTEAD.items():
        if (found := re.fullmatch(pattern, line)) is not None:
            return found.expand(other)
    return line


def installable(line: str, where: str) -> None:
    """Every extra that the line asks for is one of ours."""
    told = metadata("ragtrace-audit")
    for extras in re.findall(r"(?:ragtrace-audit|\.)\[([\w,-]+)\]", line):
        unknown = set(extras.split(",")) - set(told.get_all("Provides-Extra") or ())
        assert not unknown, f"{where}: no extra {unknown}"


def command(told: list[str], folder: Path, where: str) -> str:
    """What the command prints."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(told, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def shown(text: str, printed: str, where: str) -> None:
    """Each line of a text block is one that was printed."""
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in printed.splitlines()]
    for line in text.splitlines():
        cells = line.split(" · ")
        assert cells in rows or (len(cells) == 1 and line in printed), f"{where} shows {line!r}; printed\n{printed}"
