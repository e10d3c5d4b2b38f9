"""What code a run's answers depend on, as digests: a run that was begun with other code is not gone on with."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

FOLLOWED = (
    "ragtrace.attacks", "ragtrace.corpora", "ragtrace.canaries", "ragtrace.defenses", "ragtrace.papers",
    "ragtrace.embedded.pipeline",
)  # fmt: skip
"""Imports from here are followed; the rest (recording, scoring) does not decide what is asked and answered."""
PACKS = "ragtrace.attacks._templates"
"""Who imports it reads the template packs beside it."""


@cache
def digest(*modules: str) -> str:
    """Of the modules' sources and those of what they import in turn."""
    found: dict[str, bytes] = {}
    todo = list(modules)
    while todo:
        name = todo.pop()
        if name in found or (source := _source(name)) is None:
            continue
        found[name] = source
        todo += [one for one in _imports(source) if one.startswith(FOLLOWED)]
    if PACKS in found:
        packs = files("ragtrace.attacks") / "packs"
        found |= {f"packs/{pack.name}": pack.read_bytes() for pack in packs.iterdir() if pack.name.endswith(".toml")}
    told = b"".join(name.encode() + b"\0" + source for name, source in sorted(found.items()))
    return hashlib.sha256(told).hexdigest()[:12]


def _source(name: str) -> bytes | None:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # a name of a module, and no module
        return None
    return Path(spec.origin).read_bytes() if spec and spec.origin else None


def _imports(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
