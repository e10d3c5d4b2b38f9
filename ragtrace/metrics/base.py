"""What a metric is: numbers read from the store, with what they observe and what may move them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import duckdb

    from ragtrace.types import Channel, Hook


Resamples = Literal["probes", "documents"]


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
    ``parameters`` go into the signature. ``reversal`` says that the sign is the other way round, where a metric finds
    that otherwise than by its ``chance``.
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
    reversal: str | None = None


class Metric(Protocol):
    """One file a metric; what it declares is enough for its results to be judged (Mind the Hook, step 2).

    ``channel`` is what it observes, ``observes`` the same in one sentence; ``moved_by`` are the hooks whose work may
    legitimately move it. Where they apply, a metric also has:

    - ``chance``: the value of guessing, where twice that minus a value is what an attacker who flips the sign has
      (½ for a ROC AUC). An interval below it is a ``reversal``.
    - ``types``: the types of ``ragtrace.ner`` that it counts. A defense that writes words by which the classifier
      counts or leaves out these is ``entangled`` with it.
    - ``certified_by``: the canary families that decide instead of it.
    - ``membership``: true where it infers membership; it is then read beside the blind baseline.
    - ``resamples``: what its interval speaks of, other ``probes`` to the same documents (else), or other ``documents``;
      those of membership metrics always resample documents. ``over_documents(db, run_id)`` gives a second interval,
      by (arm, attack, corpus), of a metric whose own resamples probes.
    - ``by_target``: true where a probe's score depends on nothing but the traces of its own target's probes, in all
      arms, and on what the run says of itself; such scores can be computed on many machines (``ragtrace.scaled``).
    - ``on_request``: true where it is computed only if it is named (``ragtrace score --metric``): variants, and what
      needs a model of its own.
    - ``scored_by``: what several metrics share where their :meth:`scores` are the same; they are computed once. A
      tuple holds the parts, each with ``scores``, that the metric's scores are made of.
    """

    name: str
    channel: Channel
    moved_by: tuple[Hook, ...]
    observes: str

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """One number a probe, for every arm of the run."""
        ...

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """One number an arm with its interval, computed from the stored ``scores``."""
        ...
