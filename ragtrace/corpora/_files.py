"""Where the public data sets lie, and reading files of rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ragtrace
from ragtrace.errors import InputError

VARIABLE = "RAGTRACE_DATA"
_SHOWN = 12


def data_file(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """The file in ``folder``, else in that of the variable ``RAGTRACE_DATA``, else in ``../shared/data`` beside the
    checkout that this is.

    :raises InputError: where it is not there.
    """
    chosen = folder or os.environ.get(VARIABLE)
    path = Path(chosen) if chosen else Path(ragtrace.__file__).parents[2] / "shared" / "data"
    if not (path / name).is_file():
        raise InputError(
            f"no file {name!r} in {str(path)!r}; set {VARIABLE} to the folder that holds it, or give the corpus "
            "its folder"
        )
    return path / name


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line from 1 on, its object) for each line that is not blank.

    :raises InputError: for a file that cannot be read, is not UTF-8, or has a line that is no JSON object.
    """
    try:
        with path.open("rb") as file:
            for at, line in enumerate(file, 1):
                if line.strip():
                    yield at, _object(path, at, line)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _object(path: Path, at: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if at == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise not_utf8(path, f"line {at}") from error
    except ValueError as error:
        raise InputError(f"{str(path)!r} line {at} is no JSON ({error}); expected one object a line") from error
    except RecursionError as error:
        raise InputError(f"{str(path)!r} line {at} is nested too deeply; expected one flat object a line") from error
    if not isinstance(found, dict):
        raise InputError(f"{str(path)!r} line {at} is a {type(found).__name__}; expected one object a line")
    return found


def not_utf8(path: Path, where: str) -> InputError:
    """The error for text in another encoding."""
    return InputError(f"{str(path)!r} is not UTF-8 ({where}); convert it, for example: iconv -f LATIN1 -t UTF-8")


def require(path: Path, wanted: list[str], there: list[str], where: str = "") -> None:
    """:raises InputError: where a wanted column is not there."""
    if lacking := [column for column in wanted if column not in there]:
        more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        shown = ", ".join(map(repr, there[:_SHOWN])) or "none"
        raise InputError(f"{str(path)!r}{where} has no column {lacking[0]!r}; it has: {shown}{more}")
