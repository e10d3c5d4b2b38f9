"""What the metrics read: each probe's answer, the scores stored for it, and cells of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.metrics.base import Result, Score

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb

ANSWERS = """
answers AS (
    -- one row a probe and arm; where a trace holds several model calls (a paraphrased query) the last one answers,
    -- and where a probe was sent again (a resumed audit) the last time counts
    SELECT p.run_id, p.probe_id, p.arm, p.attack, p.corpus, p.seed, p.query, p.target_id, p.target_text, p.is_member,
           p.detail, p.trace_id, g.span_id, g.prompt, g.response, g.perplexity, g.first_token,
           g.is_whole, coalesce(g.canaries_readable, false) AS canaries_readable,
           coalesce(g.entities_readable, false) AS entities_readable
    FROM probes p
    LEFT JOIN generations g ON g.trace_id = p.trace_id AND NOT g.nested
    WHERE p.run_id = $run
    QUALIFY row_number() OVER (
        PARTITION BY p.arm, p.attack, p.probe_id
        ORDER BY g.start_time DESC NULLS LAST, p.trace_id DESC, g.span_id DESC
    ) = 1
)"""
"""Common table expression over the views ``probes`` and ``generations``; its parameter is ``$run``."""


class Answer(NamedTuple):
    """A probe and what came back; ``response`` is ``None`` where nothing readable did."""

    probe_id: str
    arm: str
    query: str
    target_text: str | None
    response: str | None
    perplexity: float | None


class Reply(NamedTuple):
    """What came back for one query of a target.

    ``response`` is ``None`` where nothing readable did; ``first_token`` are the model's candidates for the first
    token with their log-probabilities, most likely first (empty where the model gave none).
    """

    query: str
    detail: dict[str, Any]
    prompt: str | None
    response: str | None
    perplexity: float | None
    first_token: tuple[tuple[str, float], ...]


class Target(NamedTuple):
    """A target in one arm, with the replies to its queries in the order in which they were made."""

    probe_id: str
    arm: str
    text: str
    replies: tuple[Reply, ...]


class Row(NamedTuple):
    """A probe with one of its stored scores; ``value`` is ``None`` where there is none."""

    arm: str
    attack: str
    corpus: str
    seed: int
    probe_id: str
    target_id: str | None
    is_member: bool | None
    value: float | None


class Cell(NamedTuple):
    """All rows of one arm, attack and corpus, in the order of seeds and probe ids (the same in every arm)."""

    arm: str
    attack: str
    corpus: str
    rows: tuple[Row, ...]

    @property
    def scored(self) -> tuple[Row, ...]:
        return tuple(r for r in self.rows if r.value is not None)

    def result(
        self,
        run_id: str,
        metric: str,
        n: int,
        value: float | None = None,
        ci: tuple[float | None, float | None] = (None, None),
        parameters: dict[str, object] | None = None,
        reasons: Iterable[str | None] = (),
    ) -> Result:
        """A ``Result`` of this cell; ``reasons`` that are ``None`` are left out."""
        seeds = ",".join(str(s) for s in sorted({r.seed for r in self.rows}))
        said = "; ".join(r for r in reasons if r) or None
        low, high = ci
        return Result(
            run_id, self.arm, self.attack, self.corpus, metric, value, low, high, n, seeds, parameters or {}, said
        )

    def missing(self) -> str | None:
        """What is not there, as a reason."""
        count = len(self.rows) - len(self.scored)
        return f"{count} of {len(self.rows)} probes have no score" if count else None


def asked(db: duckdb.DuckDBPyConnection, run_id: str, attack: str) -> bool:
    """Whether the run has probes of the attack: what reads none need not read the run's answers."""
    found = db.execute("SELECT 1 FROM probes WHERE run_id = ? AND attack = ? LIMIT 1", [run_id, attack]).fetchone()
    return found is not None


def answers(db: duckdb.DuckDBPyConnection, run_id: str, attack: str) -> list[Answer]:
    """Every probe of the attack with its answer, in all arms."""
    if not asked(db, run_id, attack):
        return []
    rows = db.execute(
        f"WITH {ANSWERS} SELECT probe_id, arm, query, target_text, response, perplexity "  # noqa: S608 (a constant)
        "FROM answers WHERE attack = $attack ORDER BY arm, seed, probe_id",
        {"run": run_id, "attack": attack},
    ).fetchall()
    return [Answer(*row) for row in rows]


def targets(db: duckdb.DuckDBPyConnection, run_id: str, attack: str) -> dict[str, dict[str, Target]]:
    """The attack's targets: id of the first probe → arm → replies to all its queries (``x``, ``x/1``, ``x/2`` …)."""
    if not asked(db, run_id, attack):
        return {}
    rows = db.execute(
        f"""
        WITH {ANSWERS}
        SELECT split_part(probe_id, '/', 1) AS target, arm, coalesce(target_text, ''),
            query, detail, prompt, response, perplexity, first_token
        FROM answers WHERE attack = $attack
        ORDER BY target, arm, coalesce(try_cast(split_part(probe_id, '/', 2) AS INT), 0)
        """,  # noqa: S608 (a constant)
        {"run": run_id, "attack": attack},
    ).fetchall()
    found: defaultdict[str, dict[str, Target]] = defaultdict(dict)
    for (target, arm, text), group in groupby(rows, key=lambda r: r[:3]):
        replies = tuple(
            Reply(query, json.loads(detail or "{}"), prompt, response, perplexity, _candidates(first))
            for *_, query, detail, prompt, response, perplexity, first in group
        )
        found[target][arm] = Target(target, arm, text, replies)
    return dict(found)


def _candidates(first: str | None) -> tuple[tuple[str, float], ...]:
    return tuple((str(token), float(logprob)) for token, logprob in json.loads(first or "[]"))


def cells(db: duckdb.DuckDBPyConnection, run_id: str, metric: str, attack: str | None = None) -> Iterator[Cell]:
    """The probes of the run with their stored ``metric``, a cell for each arm, attack and corpus."""
    if attack is not None and not asked(db, run_id, attack):
        return
    rows = db.execute(
        f"""
        WITH {ANSWERS}, stored AS (
            SELECT probe_id, arm, any_value(value) AS value
            FROM scores WHERE run_id = $run AND metric = $metric GROUP BY ALL
        )
        SELECT arm, attack, corpus, seed, probe_id, target_id, is_member, value
        FROM answers LEFT JOIN stored USING (probe_id, arm)
        {"" if attack is None else "WHERE attack = $attack"}
        ORDER BY arm, attack, corpus, seed, probe_id
        """,  # noqa: S608 (constants)
        {"run": run_id, "metric": metric} | ({} if attack is None else {"attack": attack}),
    ).fetchall()
    for (arm, name, corpus), group in groupby((Row(*r) for r in rows), key=lambda r: r[:3]):
        yield Cell(arm, name, corpus, tuple(group))


def score(run_id: str, attack: str, metric: str, answer: Answer | Target, value: float | None) -> Score:
    """A ``Score``; what is not a finite number is no data."""
    finite = value if value is not None and math.isfinite(value) else None
    return Score(run_id, answer.probe_id, answer.arm, attack, metric, finite)


def indexed(db: duckdb.DuckDBPyConnection, run_id: str) -> dict[int | None, int]:
    """Seed → number of indexed documents, from the run's manifest; ``None`` where that names no seed."""
    rows = db.execute(
        "SELECT attributes->>'ragtrace.run' AS run FROM own_spans "
        "WHERE stage IS NULL AND run_id = ? AND run IS NOT NULL",
        [run_id],
    ).fetchall()
    found: dict[int | None, int] = {}
    for (text,) in rows:
        told: dict[str, Any] = json.loads(text)
        members, seed = told.get("members"), told.get("seed")
        count = len(members) if isinstance(members, list) else members
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            found[seed if isinstance(seed, int) else None] = count
    return found


def mean_result(
    run_id: str, metric: str, cell: Cell, parameters: dict[str, object] | None = None, told: Iterable[str | None] = ()
) -> Result:
    """The mean score of a cell with a bootstrap interval over its probes; ``told`` is said in the reason too."""
    from ragtrace import stats

    values = [r.value for r in cell.scored]
    if not values:
        return cell.result(run_id, metric, 0, reasons=[f"no data: {cell.missing()}"], parameters=parameters)
    interval = stats.bootstrap_mean([v for v in values if v is not None])
    return cell.result(
        run_id,
        metric,
        len(values),
        sum(v for v in values if v is not None) / len(values),
        (interval.low, interval.high),
        {**(parameters or {}), "interval": interval.method},
        [
            cell.missing(),
            "all probes score the same, so they give no interval" if interval.low is None else None,
            *told,
        ],
    )
