"""Notebooks: the code cells as one module, each line with the cell it is from."""

from __future__ import annotations

import json
import re
from typing import Any

_MAGIC = re.compile(r"^\s*(%|!|\?)|^\s*[\w.]+\?{1,2}\s*$")
_ASSIGNED = re.compile(r"^(\s*[\w.,\[\] ]+=\s*)[!%].*$")


def code_of(raw: bytes) -> tuple[str, list[tuple[int, int]]]:
    """The source, and for each of its lines (cell, line in it), from 1.

    :raises ValueError: for what is no notebook.
    """
    try:
        found: Any = json.loads(raw)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"no valid notebook: {error}") from error
    cells = found.get("cells") if isinstance(found, dict) else None
    if cells is None and isinstance(found, dict) and isinstance(found.get("worksheets"), list):  # format 3
        cells = [c for sheet in found["worksheets"] if isinstance(sheet, dict) for c in sheet.get("cells", ())]
    if not isinstance(cells, list):
        raise ValueError("no valid notebook: it has no list of cells")
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        text = cell.get("source", cell.get("input", ""))
        text = "".join(map(str, text)) if isinstance(text, list) else str(text)
        own = _plain(text.split("\n"))
        if not _parses("\n".join(own)):
            own = ["" for _ in own]  # an unfinished cell must not cost the others
        lines += own
        places += [(number, i) for i in range(1, len(own) + 1)]
    return "\n".join(lines) + "\n", places


def _plain(lines: list[str]) -> list[str]:
    """Magics and shell commands emptied; a cell that is another language altogether, too."""
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not re.match(r"%%(time|timeit|capture|prun)\b", first):
        return ["" for _ in lines]
    plain: list[str] = []
    for line in lines:
        if assigned := _ASSIGNED.match(line):
            line = f"{assigned[1]}None"
        elif _MAGIC.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            line = f"{indent}pass" if indent else ""
        plain.append(line)
    return plain


def _parses(text: str) -> bool:
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
