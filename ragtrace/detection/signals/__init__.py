"""One file a signal: each exposes ``SIGNAL``; third parties use the entry point group ``ragtrace.signals``."""

from __future__ import annotations

from functools import cache

from ragtrace.detection.signals.base import Signal
from ragtrace.plugins import scan


@cache
def load() -> dict[str, Signal]:
    """Every signal found, by name."""
    return scan(__name__, "SIGNAL", "ragtrace.signals")
