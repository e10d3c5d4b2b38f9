"""Blind baseline: can members be told from non-members by the targets' texts alone, without asking the pipeline?

Where they can, members and non-members are not of one distribution, and an attack's number is not all leakage (Das et
al. 2406.16201, Duan et al. 2402.07841, Meeus et al. 2406.17975); every membership number of the same attack and corpus
is then stored with a warning. The features are words, character n-grams, lengths and the shares of digits, capitals and
punctuation, given to a logistic regression.

Each score is out of fold, by *progressive* validation: targets are dealt into blocks of members and non-members, and a
block is judged by what was fitted on the blocks before it. In ordinary cross-validation each pair of targets judges
one another both ways, so that chance similarities count twice: of 200 draws from one distribution, the interval of
the cross-validated AUC held ½ in 80 to 86 % at a nominal 95 %; the progressive one in 94 to 96 % (of 300 to 1,000).
A score is the rank within its block (blocks have models of their own), in (0, 1). The first blocks are only fitted on.

No defense moves it: the results stand in the undefended arm, whatever arms there are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.metrics._membership import area, sample
from ragtrace.metrics._read import cells
from ragtrace.metrics.base import Result, Score
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    import duckdb

    from ragtrace.stats.results import Bools, Floats, Indices
    from ragtrace.types import Channel, Hook

UNDEFENDED = "none"
LEAST = 20
"""Documents a side below which nothing is said."""
BLOCKS = 10
BLOCK = 8
"""Documents a side in a block, at least: a block of few has ranks of its own that the interval does not know of."""
SEED = 0
CHARACTERS = 400
"""Of a text, so many characters are looked at in n-grams; all its words are."""
MOST_FEATURES = 20_000
STYLE_WEIGHT = 0.3
"""Of a standardised length or share, beside n-gram vectors of length 1."""


class _Target(NamedTuple):
    probe_id: str
    document: str
    text: str
    is_member: bool


class Blind:
    """One result for each attack and corpus that has probes of members and non-members."""

    name = "blind_roc_auc"
    score_name = "blind"
    channel: Channel = "query"
    """It sees what an attacker has before the first query."""
    moved_by: tuple[Hook, ...] = HOOKS
    """None can; it is never judged, since its results have no defense."""
    observes = "whether members and non-members differ in their texts alone, without the pipeline"

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        """One score a target, in one arm; no data for the targets of the first blocks."""
        known: dict[tuple[_Target, ...], list[float | None]] = {}  # attacks mostly aim at the same targets
        found = []
        for (arm, attack, _), targets in _targets(db, run_id).items():
            key = tuple(t._replace(probe_id="") for t in targets)
            if key not in known:
                known[key] = progressive(
                    [t.text for t in targets], [t.is_member for t in targets], [t.document for t in targets]
                )
            for target, value in zip(targets, known[key], strict=True):
                found.append(Score(run_id, target.probe_id, arm, attack, self.score_name, value))
        return found

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        """AUC with its interval, or NULL where there are fewer than :data:`LEAST` documents on a side."""
        used = {key: {t.probe_id for t in targets} for key, targets in _targets(db, run_id).items()}
        results = []
        for cell in cells(db, run_id, self.score_name):
            probes = used.get(cell[:3])
            if probes is None:
                continue
            own = cell._replace(arm=UNDEFENDED, rows=tuple(r for r in cell.rows if r.probe_id in probes))
            scored = sample(own.rows)
            said: dict[str, Any] = {"validation": "progressive", "blocks": f"3 to {BLOCKS}", "split_seed": SEED}
            if not len(scored.values):
                why = f"no data: it needs the texts of at least {LEAST} members and {LEAST} non-members"
                results.append(own.result(run_id, self.name, 0, parameters=said, reasons=[why]))
                continue
            estimate, more = area(scored)
            fitted = f"{len(own.rows) - len(scored.values)} of {len(own.rows)} targets only served to fit"
            ends = (estimate.low, estimate.high)
            reasons = [estimate.reason, fitted]
            results.append(
                own.result(run_id, self.name, len(scored.values), estimate.value, ends, said | more, reasons)
            )
        return results


def _targets(db: duckdb.DuckDBPyConnection, run_id: str) -> dict[tuple[str, str, str], list[_Target]]:
    """(arm, attack, corpus) → its targets that have a text. Of the arms the undefended one, else the first."""
    rows = db.execute(
        """
        WITH asked AS (
            SELECT arm, attack, corpus, probe_id, any_value(target_id) AS target,
                coalesce(any_value(target_text), '') AS text, any_value(is_member) AS is_member
            FROM probes WHERE run_id = $run AND is_member IS NOT NULL AND NOT contains(probe_id, '/')
            GROUP BY arm, attack, corpus, probe_id
        )
        SELECT arm, attack, corpus, probe_id, coalesce(target, probe_id), text, is_member FROM asked
        QUALIFY arm = first_value(arm) OVER (PARTITION BY attack, corpus ORDER BY arm <> $none, arm)
        ORDER BY arm, attack, corpus, probe_id
        """,
        {"run": run_id, "none": UNDEFENDED},
    ).fetchall()
    found: defaultdict[tuple[str, str, str], list[_Target]] = defaultdict(list)
    for arm, attack, corpus, *target in rows:
        found[arm, attack, corpus].append(_Target(*target))
    return dict(found)


def progressive(texts: list[str], members: list[bool], documents: list[str]) -> list[float | None]:
    """A score for each target, higher for what looks like a member; ``None`` where it was only fitted on, or for all
    where there are too few. Rows of one document stay together.
    """
    import numpy as np

    labels = np.array(members, dtype=bool)
    usable = np.array([bool(text.strip()) for text in texts], dtype=bool)
    sides = [len({d for d, use in zip(documents, usable & side, strict=True) if use}) for side in (labels, ~labels)]
    result: list[float | None] = [None] * len(texts)
    if min(sides) < LEAST:
        return result
    at = np.flatnonzero(usable)
    features = _features([texts[i] for i in at])
    blocks = max(3, min(BLOCKS, min(sides) // BLOCK))
    block = _deal([documents[i] for i in at], labels[at], blocks)
    for now in range(max(1, blocks // 5), blocks):
        before, here = block < now, block == now
        for i, value in zip(at[here], _ranks(features, labels[at], before, here), strict=True):
            result[i] = float(value)
    return result


def _deal(documents: list[str], labels: Bools, blocks: int) -> Indices:
    """(n,) block of each row; those that are members, others and both are dealt in turn, in a seeded order."""
    import numpy as np

    sides: defaultdict[str, set[bool]] = defaultdict(set)
    for document, label in zip(documents, labels.tolist(), strict=True):
        sides[document].add(label)
    rng = np.random.default_rng(SEED)
    of: dict[str, int] = {}
    for kind in ({True}, {False}, {True, False}):
        same = sorted(d for d, side in sides.items() if side == kind)
        of |= {same[j]: i % blocks for i, j in enumerate(rng.permutation(len(same)))}
    return np.array([of[d] for d in documents], dtype=np.intp)


def _ranks(features: Any, labels: Bools, before: Bools, here: Bools) -> Floats:
    import numpy as np
    from scipy.stats import rankdata
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(solver="liblinear", dual=True, tol=1e-3, max_iter=1_000, random_state=SEED)
    scores = model.fit(features[before], labels[before]).decision_function(features[here])
    return np.asarray((rankdata(scores) - 0.5) / len(scores), dtype=np.float64)


def _features(texts: list[str]) -> Any:
    """(n, features) sparse. Its vocabulary and weights are of all targets; no label goes into them."""
    import numpy as np
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    shared = {"max_features": MOST_FEATURES, "sublinear_tf": True}
    style = np.array([_style(text) for text in texts])
    spread = style.std(axis=0)
    parts = [STYLE_WEIGHT * (style - style.mean(axis=0)) / np.where(spread > 0, spread, 1)]
    for given, vectorizer in (
        (texts, TfidfVectorizer(ngram_range=(1, 2), min_df=2, **shared)),
        ([t[:CHARACTERS] for t in texts], TfidfVectorizer(analyzer="char", ngram_range=(2, 4), min_df=2, **shared)),
    ):
        try:
            parts.append(vectorizer.fit_transform(given))
        except ValueError:  # no word, or no n-gram, is in two of the texts
            continue
    return sparse.hstack([sparse.csr_array(part) for part in parts]).tocsr()


def _style(text: str) -> list[float]:
    from math import log1p

    words = text.split()
    many, chars = max(len(words), 1), max(len(text), 1)
    return [
        log1p(len(text)),
        log1p(len(words)),
        sum(map(len, words)) / many,
        len(set(words)) / many,
        sum(c.isdigit() for c in text) / chars,
        sum(c.isupper() for c in text) / chars,
        sum(not c.isalnum() and not c.isspace() for c in text) / chars,
        log1p(text.count("\n")),
    ]


METRIC = Blind()
