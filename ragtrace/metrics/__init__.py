"""One file a metric family: each exposes ``METRIC``; third parties use the entry point group ``ragtrace.metrics``.

A membership attack brings its own metrics along (``ragtrace.attacks``).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ragtrace.plugins import scan
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    from ragtrace.metrics.base import Metric


def load() -> dict[str, Metric]:
    """Everything found, by name. A metric that does not say what it observes cannot be judged: it is left out with a
    warning.
    """
    from ragtrace import attacks

    found: dict[str, Metric] = scan(__name__, "METRIC", "ragtrace.metrics")
    for attack in attacks.load().values():
        for metric in getattr(attack, "metrics", ()):
            found.setdefault(metric.name, metric)
    for name, metric in list(found.items()):
        if wrong := _undeclared(metric):
            warnings.warn(f"metric {name!r} left out: {wrong}", stacklevel=2)
            del found[name]
    return found


def _undeclared(metric: Metric) -> str | None:
    """What the metric should declare and does not."""
    one_of = f"expected some of {', '.join(HOOKS)}"
    channel, moved_by = getattr(metric, "channel", None), getattr(metric, "moved_by", None)
    if channel not in HOOKS:
        return f"channel = {channel!r}; {one_of.replace('some', 'one')}"
    if not isinstance(moved_by, tuple | list) or not moved_by or not set(moved_by) <= set(HOOKS):
        return f"moved_by = {moved_by!r}; {one_of}, as a tuple"
    if not str(getattr(metric, "observes", "") or "").strip():
        return "it has no `observes`; expected one sentence on what it observes"
    return None
