"""One file a metric family: each exposes ``METRIC``; third parties use the entry point group ``ragtrace.metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.plugins import scan

if TYPE_CHECKING:
    from ragtrace.metrics.base import Metric


def load() -> dict[str, Metric]:
    """Everything found, by name."""
    return scan(__name__, "METRIC", "ragtrace.metrics")
