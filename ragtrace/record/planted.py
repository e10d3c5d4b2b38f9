"""The canaries that the app is told of: strings that were planted, looked for in every text that crosses.

The file that ``ragtrace canary plant`` writes (JSON lines with ``text`` and ``family``), or one canary a line, as
``ragtrace canary mint`` prints them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ragtrace.errors import UsageError
from ragtrace.types import Canary

_log = logging.getLogger("ragtrace")
VARIABLE = "RAGTRACE_CANARIES"
"""The environment variable that names a file of canaries."""
LEAST = 6
"""Characters of a canary: shorter strings stand in many a text by chance."""
MOST = 100_000
"""Canaries that are looked for."""
READ = 1_000_000
"""Characters that are looked through in each text."""

_STRIDE = 6
_CERTAIN = 2 * _STRIDE - 1  # so long a string holds a whole window of any text that it stands in, windows side by side
_FEW = 50  # so many are looked for one by one


class Planted(NamedTuple):
    """One canary."""

    text: str
    family: str = "unknown"


class Canaries:
    """Canaries to look for: in a time that depends on the text's length, and hardly on how many there are."""

    def __init__(self, planted: Iterable[Planted]) -> None:
        self.all = tuple(dict.fromkeys(planted))
        few = len(self.all) <= _FEW
        self._one_by_one = [c for c in self.all if few or len(c.text) < _CERTAIN]
        self._windows: dict[str, list[Planted]] = {}
        for canary in () if few else self.all:
            for at in range(len(canary.text) - _STRIDE + 1) if len(canary.text) >= _CERTAIN else ():
                self._windows.setdefault(canary.text[at : at + _STRIDE], []).append(canary)

    def within(self, text: str) -> list[Planted]:
        """Those that stand in ``text``, literally."""
        text = text[:READ]
        found = [c for c in self._one_by_one if c.text in text]
        if self._windows:
            windows = {text[at : at + _STRIDE] for at in range(0, len(text), _STRIDE)}
            near = {c for window in windows & self._windows.keys() for c in self._windows[window]}
            found += sorted(c for c in near if c.text in text)
        return found


def canaries(given: Iterable[str | Canary] | str | Path | None) -> Canaries | None:
    """What ``setup(canaries=…)`` was given, else the file that the variable names; ``None`` where there are none.

    :raises UsageError: canaries that cannot be looked for, or a file that cannot be read. A file that only the variable
        names is a matter for the log: the app starts all the same.
    """
    if given is None:
        if not (named := os.environ.get(VARIABLE)):
            return None
        try:
            return _checked(_read(Path(named)), named)
        except UsageError as error:
            _log.error("ragtrace looks for no canaries (%s): %s", VARIABLE, error)
            return None
    if isinstance(given, str | Path):
        return _checked(_read(Path(given)), str(given))
    if not isinstance(given, Iterable):
        raise UsageError(f"canaries={type(given).__name__}; expected a list of strings, or the path of a file")
    found = []
    for one in given:
        if isinstance(one, Canary):
            found.append(Planted(one.text, one.family))
        elif isinstance(one, str):
            found.append(Planted(str(one)))
        else:
            raise UsageError(f"canaries holds a {type(one).__name__}; expected strings (or ragtrace.Canary)")
    return _checked(found, "setup(canaries=…)")


def _read(file: Path) -> list[Planted]:
    try:
        lines = file.expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"canaries cannot be read from {str(file)!r}: {why}; expected a file of canaries") from None
    return [_planted(line, f"{str(file)!r} line {at}") for at, line in enumerate(lines, 1) if line.strip()]


def _planted(line: str, where: str) -> Planted:
    if not line.lstrip().startswith("{"):
        return Planted(line.strip())
    try:
        row = json.loads(line)
        return Planted(str(row["text"]), str(row.get("family") or "unknown"))
    except (ValueError, RecursionError, KeyError):  # the line itself is not for any log
        raise UsageError(f"{where} is no canary; expected a JSON object with text and family") from None


def _checked(found: list[Planted], where: str) -> Canaries:
    if not found:
        raise UsageError(f"{where} holds no canaries; expected at least one")
    if len(found) > MOST:
        raise UsageError(f"{where} holds {len(found)} canaries; expected at most {MOST}")
    if short := sum(len(canary.text) < LEAST for canary in found):
        raise UsageError(
            f"{where} holds {short} canaries of fewer than {LEAST} characters, which stand in texts by chance; "
            "expected longer ones, as `ragtrace canary mint` makes them"
        )
    return Canaries(found)
