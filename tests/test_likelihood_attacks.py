"""The six attacks' scores, by hand from what is stored."""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from store_fixtures import Bench
from test_likelihood_fill import NON_MEMBERS, TARGETS, Words, audit

import ragtrace
from ragtrace.attacks import load
from ragtrace.attacks._likelihood import Likelihoods, lowest_mean, mean
from ragtrace.attacks.min_k_plus_plus import ATTACK as MIN_K_PLUS_PLUS
from ragtrace.attacks.recall import ATTACK as RECALL
from ragtrace.attacks.s2mia import S2MIA
from ragtrace.corpora.synthetic_email import build
from ragtrace.likelihood import Passage, TokenLikelihoods, fill
from ragtrace.likelihood.filling import ALL
from ragtrace.metrics import load as load_metrics
from ragtrace.score import score

NAMES = ("loss", "zlib_entropy", "min_k", "min_k_plus_plus", "neighbourhood", "recall")


class Random(Words):
    """Seeded by what it is asked; members' own text is not seen in any way."""

    def one(self, p: Passage) -> TokenLikelihoods:
        rng = np.random.default_rng(zlib.crc32(repr(p[:3]).encode()))
        n = len(p.text.split())
        given = [-rng.exponential(3, n), -rng.exponential(3, n), rng.uniform(0.5, 2, n)]
        rows = [tuple(float(np.float32(v)) for v in values) for values in given]
        return TokenLikelihoods(*rows) if p.moments else TokenLikelihoods(rows[0])


def expected(asked: dict[tuple[str, str, str], TokenLikelihoods], text: str, prompt: str) -> dict[str, float]:
    x = asked[prompt, text, ""]
    logp, mu, sigma = (np.array(v, dtype=np.float64) for v in (x.logprobs, x.mu, x.sigma))
    k = max(1, int(0.2 * len(logp)))
    return {
        "loss": logp.mean(),
        "zlib_entropy": logp.mean() / len(zlib.compress(text.encode())),
        "min_k": np.sort(logp)[:k].mean(),
        "min_k_plus_plus": np.sort((logp - mu) / sigma)[:k].mean(),
        "recall": np.mean(asked[prompt, text, "\n\n".join(NON_MEMBERS)].logprobs) / logp.mean(),
    }


def prompts(mask: bool = True) -> dict[str, dict[str, str | None]]:
    given: dict[str, dict[str, str | None]] = {"none": {p: f"doc: {t}" for p, t in TARGETS.items()}}
    return given | ({"mask": dict.fromkeys(TARGETS, "doc: ***")} if mask else {})


def test_scores_by_hand(bench: Bench) -> None:
    model = Random()
    with audit(bench, prompts()).open() as db:
        fill(db, "r", model, kinds=ALL)
        score(db, "r", [f"{name}_*" for name in NAMES])
        stored = {
            (p, arm, m): v for p, arm, m, v in db.execute("SELECT probe_id, arm, metric, value FROM scores").fetchall()
        }
        neighbours = db.execute(
            "SELECT probe_id, coalesce(arm, ''), kind, logprobs FROM likelihood_data WHERE kind LIKE 'neigh%'"
        ).fetchall()
    asked = dict(zip([p[:3] for p in model.asked], [model.one(p) for p in model.asked], strict=True))
    assert len(stored) == 3 * 2 * 12
    for probe, text in TARGETS.items():
        for arm, prompt in (("none", f"doc: {text}"), ("mask", "doc: ***")):
            for suffix, given in (("", prompt), ("_alone", "")):
                for name, value in expected(asked, text, given).items():
                    assert stored[probe, arm, name + suffix] == pytest.approx(value, rel=1e-6), name
                wanted = (probe, arm if not suffix else "", f"neighbour{suffix}")
                others = [np.mean(lp) for *key, lp in neighbours if tuple(key) == wanted]
                assert len(others) == 25
                value = np.mean(asked[given, text, ""].logprobs) - np.mean(others)
                assert stored[probe, arm, f"neighbourhood{suffix}"] == pytest.approx(value, rel=1e-6)


def test_higher_is_member() -> None:
    seen, not_seen = Likelihoods("some text", [-1.0] * 5, [-3.0] * 5, [1.0] * 5, [-4.0], -3.0), None
    not_seen = Likelihoods("some text", [-3.0] * 5, [-3.0] * 5, [1.0] * 5, [-4.0], -4.0)
    attacks = load()
    for name in NAMES:
        assert attacks[name].value(seen) > attacks[name].value(not_seen), name  # type: ignore[attr-defined]


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 1), (9, 1), (10, 2), (99, 19)])
def test_how_many_tokens_are_the_lowest(n: int, k: int) -> None:
    values = list(np.random.default_rng(n).normal(size=n))
    assert lowest_mean(values) == pytest.approx(np.mean(np.sort(values)[:k]), rel=1e-12)
    assert lowest_mean([]) is mean([]) is None


def test_places_that_leave_no_choice_and_ratios_by_nothing() -> None:
    assert MIN_K_PLUS_PLUS.value(Likelihoods("x", [0.0, -1.0], [0.0, -2.0], [0.0, 0.5])) == 2.0
    assert MIN_K_PLUS_PLUS.value(Likelihoods("x", [0.0], [0.0], [0.0])) is None
    assert RECALL.value(Likelihoods("x", [0.0], prefixed=-1.0)) is None
    assert RECALL.value(Likelihoods("x", [-1.0])) is None


def test_no_likelihoods_no_score_and_how_to_make_them(bench: Bench) -> None:
    with audit(bench, prompts(mask=False)).open() as db:
        score(db, "r", [f"{name}_*" for name in NAMES])
        assert db.execute("SELECT count(*), count(value) FROM scores").fetchone() == (36, 0)
        rows = db.execute("SELECT metric, value, n, interpretable, reason FROM results").fetchall()
    assert len(rows) == 72 and all(row[1:4] == (None, 0, "no data") for row in rows)
    reasons = {metric: reason for metric, *_, reason in rows}
    make = "make them with ragtrace.likelihood.fill(db, run_id, kinds="
    assert f"{make}('context',))" in reasons["loss_roc_auc"]
    assert f"{make}('context', 'neighbour'))" in reasons["neighbourhood_roc_auc"]
    assert f"{make}('alone', 'prefixed_alone')); the corpus must have" in reasons["recall_alone_pr_auc"]


def test_one_target_that_gives_nothing(bench: Bench) -> None:
    class Empty(Random):
        def one(self, p: Passage) -> TokenLikelihoods:
            return TokenLikelihoods(note="nothing to score") if p.text.startswith("Ann") else super().one(p)

    with audit(bench, prompts(mask=False)).open() as db:
        fill(db, "r", Empty())
        score(db, "r", ["loss_*"])
        values = dict(db.execute("SELECT probe_id, value FROM scores WHERE metric = 'loss'").fetchall())
        row = db.execute("SELECT n, reason, signature FROM results WHERE metric = 'loss_roc_auc'").fetchone()
    assert [v is None for _, v in sorted(values.items())] == [True, False, False]
    assert row is not None and row[0] == 2 and "1 of 3 probes have no score" in row[1]
    assert "scorer:words" in row[2] and "condition:context" in row[2] and "noted:1" in row[2]


def test_two_models_are_not_mixed(bench: Bench) -> None:
    class Double(Words):
        def one(self, p: Passage) -> TokenLikelihoods:
            return TokenLikelihoods((-7.0,), (-1.0,), (1.0,))

    with audit(bench, prompts(mask=False)).open() as db:
        fill(db, "r", Double("a"), kinds=["alone"])
        fill(db, "r", Words("b"), kinds=["context", "neighbour"])
        fill(db, "r", Double("c"), kinds=["neighbour"])  # without the targets themselves
        score(db, "r", ["loss_*", "neighbourhood_roc_auc"])
        found = db.execute("SELECT DISTINCT metric, round(value, 6) FROM scores ORDER BY ALL").fetchall()
    assert ("loss", -0.5) in found and ("loss_alone", -7.0) in found
    assert [m for m, v in found if v is None] == [] and "neighbourhood" in dict(found)


def test_probes_are_those_of_one_attack_and_ask_what_s2mia_asks() -> None:
    corpus = build(20, 4, 20)
    attacks: dict[str, Any] = load()
    probes = [list(attacks[name].probes(corpus, 3)) for name in NAMES]
    assert all(p == probes[0] for p in probes)
    assert {p.attack for p in probes[0]} == {"likelihood"}
    assert [p.query for p in probes[0]] == [p.query for p in S2MIA().probes(corpus, 3)]
    assert [p.target_id for p in probes[0]] == [p.target_id for p in S2MIA().probes(corpus, 3)]
    one_word = ragtrace.types.Corpus(  # type: ignore[attr-defined]
        "c", 0, (ragtrace.Document("word", "m"),), (ragtrace.Document("other", "n"),)
    )
    assert len(list(attacks["loss"].probes(one_word, 0))) == 2


def test_metrics_and_cards() -> None:
    metrics, attacks = load_metrics(), load()
    for name in NAMES:
        assert not getattr(metrics[f"{name}_roc_auc"], "on_request", False)
        assert getattr(metrics[f"{name}_alone_roc_auc"], "on_request", False)
        assert attacks[name].card.access == "target likelihoods" and "arXiv" in attacks[name].card.paper


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; import ragtrace.likelihood, ragtrace.attacks; ragtrace.attacks.load(); "
        "print([m for m in ('numpy', 'torch', 'transformers', 'duckdb', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
