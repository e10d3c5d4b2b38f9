"""What a metric is: numbers read from the store, with what they observe and what may move them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import duckdb

    from ragtrace.types import Channel, Hook


@dataclass(frozen=True)
class Score:
    """One probe's number: a row of the ``scores`` view. ``value`` is ``None`` where there is no data."""

    run_id: str
    probe_id: str
    arm: str
    attack: str
    metric: str
    value: float | None


@dataclass(frozen=True)
class Result:
    """One arm's number: a row of the ``results`` view, before interpretability is joined to it.

    ``value`` is ``None`` (never 0) where there is no data, and ``reason`` then says why.
    ``parameters`` go into the signature.
    """

    run_id: str
    arm: str
    attack: str
    corpus: str
    metric: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    seed: str
    parameters: dict[str, Any]
    reason: str | None = None


class Metric(Protocol):
    """One file a metric.

    ``channel`` is what it observes; ``moved_by`` are the hooks whose work may legitimately move it
    (Mind the Hook, step 2).
    """

    name: str
    channel: Channel
    moved_by: tuple[Hook, ...]

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """One number a probe, for every arm of the run."""
        ...

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """One number an arm with its interval, computed from the stored ``scores``."""
        ...
