"""Errors in our log: what and where, and what they say only where every text may be kept anyway."""

from __future__ import annotations

import logging
import traceback
from pathlib import PurePath

from ragtrace.record.scope import Scope, current

_log = logging.getLogger("ragtrace")
_FRAMES = 6


def warn(message: str, error: BaseException, *args: object) -> None:
    """Logs that something failed. The message of an error may quote any text of the app's, so it needs ``full``."""
    here = current()
    if isinstance(here, Scope) and here.recorder is not None and here.recorder.capture.keeps_all:
        _log.warning(message, *args, exc_info=error)
    else:
        _log.warning(message + ": %s", *args, trail(error))


def trail(error: BaseException) -> str:
    """The type of an error and the places that it came through, the innermost first."""
    frames = list(traceback.walk_tb(error.__traceback__))[-_FRAMES:]
    places = [f"{PurePath(f.f_code.co_filename).name}:{line} {f.f_code.co_name}" for f, line in reversed(frames)]
    return f"{type(error).__qualname__} at {' < '.join(places)}"
