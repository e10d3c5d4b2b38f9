"""The verdict on one number: the hooks at which its arm acted, against the hooks that may move its metric.

In this order, the first that holds: ``no data`` (there is no number); ``entangled`` (the scorer's words are the
defense's); ``nuisance`` or ``indirect`` (the defense does not act where the metric may be moved: the number is not
its work, or it came through another stage); ``reversal`` (the whole interval lies below chance, so an attacker who
flips the sign does better than guessing); ``interpretable``. A reversal that is none of the defense's work stays
``nuisance`` or ``indirect``, and the reason says both.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ragtrace
from ragtrace.reading.certificate import Certificates
from ragtrace.reading.lexicon import shared, written
from ragtrace.reading.paired import Pairs
from ragtrace.store.database import SCHEMA_VERSION
from ragtrace.types import HOOKS, Hook

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from ragtrace.metrics.base import Metric, Result
    from ragtrace.reading.lexicon import Shared

BASELINE = "none"
RETRIEVAL_PATH: frozenset[Hook] = frozenset({"query", "retrieval", "content"})
"""Hooks that the retrieval stage crosses; the generation stage crosses the others (as in the view ``coverage``)."""
_SHOWN = 5
BLIND = "blind_roc_auc"
CHANCE = 0.5


class Reader:
    """Makes rows of ``results`` out of one run's numbers."""

    def __init__(self, db: duckdb.DuckDBPyConnection, run: str, results: Sequence[Result] = ()) -> None:
        self.db, self.run = db, run
        self.blind = {(r.attack, r.corpus): warning for r in results if (warning := blind_warning(r))}
        row = db.execute(
            "SELECT attributes->>'ragtrace.run' AS run FROM own_spans "
            "WHERE stage IS NULL AND run_id = ? AND run IS NOT NULL",
            [run],
        ).fetchone()
        self.manifest: dict[str, Any] = json.loads(row[0]) if row else {}
        # of this run and arm, not the verdict of the whole store: a bypass elsewhere undoes nothing that was done here
        self.acts = db.execute(
            "SELECT DISTINCT arm, defense, hook FROM effects WHERE run_id = ? AND status = 'changed' ORDER BY ALL",
            [run],
        ).fetchall()
        self.models = [m for (m,) in db.execute(
            "SELECT DISTINCT model FROM generations WHERE run_id = ? AND model IS NOT NULL ORDER BY model", [run]
        ).fetchall()]  # fmt: skip
        self._on: dict[str, list[str]] = {}
        self._written: dict[str, frozenset[str]] = {}

    @cached_property
    def pairs(self) -> Pairs:
        """Read where a defended arm has a number: it takes a second for 100,000 answers, as :attr:`certificates`."""
        return Pairs(self.db, self.run)

    @cached_property
    def certificates(self) -> Certificates:
        """Read where a metric is certified by canaries."""
        return Certificates(self.db, self.run)

    def row(self, metric: Metric, result: Result) -> tuple[Any, ...]:
        """``result`` as a row of ``result_data``."""
        defenses = self._defenses(result.arm)
        hooks = self._hooks(result.arm, defenses)
        certified, certificate = None, None
        if families := getattr(metric, "certified_by", ()):
            certified, certificate = self._certify(result, defenses, families)
        readable, reason = self._judge(metric, result, defenses, hooks, certificate)
        if result.value is not None and getattr(metric, "membership", False):
            reason = "; ".join(filter(None, (reason, self.blind.get((result.attack, result.corpus)))))
        signature = "|".join(
            [
                f"ragtrace:{ragtrace.__version__}",
                f"schema:{SCHEMA_VERSION}",
                f"metric:{result.metric}",
                *(f"{name}:{value}" for name, value in result.parameters.items()),
                f"seed:{result.seed}",
                f"n:{result.n}",
                f"model:{','.join(self.models) or 'unknown'}",
            ]
        )
        return (
            result.run_id, result.arm, "+".join(defenses) or None, result.attack, result.corpus, result.metric,
            metric.channel, result.value, result.ci_low, result.ci_high, result.n, readable, reason, signature,
            _path(hooks), certified, certificate,
        )  # fmt: skip

    def _defenses(self, arm: str) -> list[str]:
        """What the audit says is on in the arm; without that, what ran there and not in the undefended arm."""
        said: dict[str, list[str]] = self.manifest.get("arms", {})
        if arm in said or arm == BASELINE:
            return said.get(arm, [])
        if arm not in self._on:
            rows = self.db.execute(
                "SELECT defense FROM switched_on WHERE run_id = ? AND arm = ? ORDER BY ALL", [self.run, arm]
            ).fetchall()
            self._on[arm] = [defense for (defense,) in rows] or [arm]
        return self._on[arm]

    def _hooks(self, arm: str, defenses: list[str]) -> list[Hook]:
        """The hooks at which the arm's defenses changed something, in the pipeline's order."""
        seen = {hook for a, defense, hook in self.acts if a == arm and defense in defenses}
        return [hook for hook in HOOKS if hook in seen]

    def _judge(
        self, metric: Metric, result: Result, defenses: list[str], hooks: list[Hook], certificate: str | None
    ) -> tuple[str, str]:
        if result.value is None:
            return "no data", result.reason or "nothing to compute it from"
        said = f"; {result.reason}" if result.reason else ""
        reversal = _reversal(metric, result)
        if not defenses:
            reason = f"{'the undefended baseline' if result.arm == BASELINE else 'an arm without a defense'}{said}"
            return ("reversal", f"{reversal}; {reason}") if reversal else ("interpretable", reason)
        if found := self._shared(metric, result.arm, hooks):
            decides = f"; {certificate}" if certificate else ""
            return "entangled", f"not certified by this number: {_words(found)}{decides}{said}"
        if reversal:
            said = f"; {reversal}{said}"
        if base := self.pairs.base_rate(result.attack):
            said = f"; {base}{said}"
        overlap = [hook for hook in hooks if hook in metric.moved_by]
        if overlap:
            acts = f"acts at {', '.join(overlap)}, which may move a metric of the {metric.channel} channel"
            return "reversal" if reversal else "interpretable", f"{acts}{said}"
        where = f"acts only at {', '.join(hooks)}" if hooks else "was not seen to act at any hook"
        where = f"{where}, not where this metric may be moved ({', '.join(metric.moved_by)})"
        through, told = self.pairs.told(result.arm, result.attack)
        return "indirect" if through else "nuisance", f"{where}{told}{said}"

    def _shared(self, metric: Metric, arm: str, hooks: list[Hook]) -> Shared | None:
        types = getattr(metric, "types", None)
        if not types:
            return None
        if arm not in self._written:
            constants = self.manifest.get("constants", {}).get(arm, [])
            self._written[arm] = frozenset(constants) | written(self.db, self.run, arm, hooks)
        found = shared(self._written[arm], types)
        return found if found.left_out or found.counted else None

    def _certify(self, result: Result, defenses: list[str], families: tuple[str, ...]) -> tuple[str | None, str | None]:
        """What the canaries of all the families say together: one that refuses is enough to refuse."""
        if not defenses:
            return None, None
        hooks = self._hooks(result.arm, defenses)
        constants = self.manifest.get("constants", {}).get(result.arm, [])
        each = [self.certificates.of(result.arm, family, hooks, constants) for family in families]
        answers = {answer for answer, _ in each}
        together = "no" if "no" in answers else "yes" if answers == {"yes"} else None
        return together, "; ".join(why for _, why in each)


def blind_warning(result: Result) -> str | None:
    """What the blind baseline says against every membership number of its attack and corpus, if anything."""
    low, high = result.ci_low, result.ci_high
    if result.metric != BLIND or result.value is None or low is None or high is None or low <= CHANCE <= high:
        return None
    return (
        f"warning: members and non-members differ in their text alone (blind baseline AUC {result.value:.3f} "
        f"[{low:.3f}, {high:.3f}]), so this number is not all leakage"
    )


def _path(hooks: list[Hook]) -> str | None:
    before, after = not RETRIEVAL_PATH.isdisjoint(hooks), not RETRIEVAL_PATH.issuperset(hooks)
    return "both" if before and after else "retrieval" if before else "generation" if after else None


def _reversal(metric: Metric, result: Result) -> str | None:
    if result.reversal is not None:
        return f"reversal: {result.reversal}"
    chance = getattr(metric, "chance", None)
    if chance is None or result.value is None or result.ci_high is None or result.ci_high >= chance:
        return None
    return (
        f"reversal: the whole interval lies below chance ({chance:g}); "
        f"an attacker who flips the sign has {2 * chance - result.value:.3f}"
    )


def _words(found: Shared) -> str:
    parts = []
    for words, does in ((found.left_out, "leaves out"), (found.counted, "counts")):
        if words:
            more = "" if len(words) <= _SHOWN else f", …: {len(words)} in all"
            parts.append(f"the scorer {does} what this defense writes ({', '.join(words[:_SHOWN])}{more})")
    return " and ".join(parts)
