"""Our own spool segments, wherever they were copied to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragtrace.errors import InputError
from ragtrace.record.spool import SUFFIX


def segments_at(paths: Sequence[Path]) -> list[Path]:
    """The segments among files and folders.

    :raises InputError: a path that does not exist, or one that holds no segment; before anything is merged.
    """
    found: list[Path] = []
    for path in (given.expanduser() for given in paths):
        if not path.exists():
            raise InputError(f"{path} does not exist; expected a spool folder (*.spool) or a {SUFFIX} segment")
        here = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path] if path.suffix == SUFFIX else []
        if not here:
            raise InputError(f"no {SUFFIX} segment in {path}; expected a folder written by ragtrace.setup()")
        found += here
    return found
