"""The blind baseline: ½ where there is no difference, more where one is planted; beside every membership number."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metric_store import Store

import ragtrace
from ragtrace import audit, stats
from ragtrace.attacks.s2mia import S2MIA
from ragtrace.defenses import RegexMask
from ragtrace.metrics.blind import LEAST, METRIC, progressive
from ragtrace.reading.judge import blind_warning
from ragtrace.score import score
from ragtrace.types import Corpus, Document

WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "ten", "ru") for b in ("ba", "so", "vi", "dre") for c in "nrstl"]


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, weights=range(1, 101), k=rng.randint(6, 12))) + f" {rng.randint(1990, 2020)}."


def plain(x: str, is_member: bool, rng: random.Random) -> str:
    return x


def dates(x: str, is_member: bool, rng: random.Random) -> str:
    return f"{x} Seen in {rng.randint(2019, 2024) if is_member else rng.randint(2015, 2020)}."


def vocabulary(x: str, is_member: bool, rng: random.Random) -> str:
    return f"{x} {rng.choice(('rendum', 'astel', 'poro'))}" if is_member and rng.random() < 0.4 else x


def length(x: str, is_member: bool, rng: random.Random) -> str:
    return " ".join(x.split()[:-2]) if is_member and rng.random() < 0.7 else x


Planted = Callable[[str, bool, random.Random], str]


def drawn(n: int, seed: int, planted: Planted) -> tuple[list[str], list[bool], list[str]]:
    """Texts, labels and ids of n members and n others."""
    rng = random.Random(seed)
    labels = [i % 2 == 0 for i in range(2 * n)]
    return [planted(text(rng), label, rng) for label in labels], labels, [f"d{i}" for i in range(2 * n)]


def estimate(n: int, seed: int, planted: Planted) -> stats.Estimate:
    texts, labels, ids = drawn(n, seed, planted)
    scores = progressive(texts, labels, ids)
    scored = [(label, value) for label, value in zip(labels, scores, strict=True) if value is not None]
    return stats.auc([label for label, _ in scored], [value for _, value in scored])


def test_the_interval_holds_one_half_where_nothing_differs() -> None:
    """Nominally 95 %. Ordinary cross-validation, with the same features, holds it in about 83 %."""
    found = [estimate(40, seed, plain) for seed in range(150)]
    assert all(e.low is not None and e.high is not None for e in found)
    holds = sum(e.low <= 0.5 <= e.high for e in found)  # type: ignore[operator]
    assert holds >= 134, "binomial(150, .95): 134 is three standard deviations below"
    values = [e.value for e in found if e.value is not None]
    assert abs(np.mean(values) - 0.5) < 3.5 * np.std(values) / 150**0.5, "and no bias"


@pytest.mark.parametrize("planted", [dates, vocabulary, length])
def test_a_planted_difference_is_seen(planted: Planted) -> None:
    found = [estimate(150, seed, planted) for seed in range(5)]
    assert all(e.low is not None and e.low > 0.5 for e in found)


def test_scores_are_seeded_and_need_no_order() -> None:
    texts, labels, ids = drawn(40, 1, vocabulary)
    once = dict(zip(ids, progressive(texts, labels, ids), strict=True))
    assert once == dict(zip(ids, progressive(texts, labels, ids), strict=True))
    assert all(v is None or 0 < v < 1 for v in once.values())
    turned = dict(zip(ids[::-1], progressive(texts[::-1], labels[::-1], ids[::-1]), strict=True))
    assert {i for i, v in turned.items() if v is None} == {i for i, v in once.items() if v is None}
    fitted_only = [v is None for v in once.values()]
    assert sum(fitted_only) == 16, "40 a side make five blocks of 8, the first of which is only fitted on"
    assert sum(label for label, none in zip(labels, fitted_only, strict=True) if none) == 8


def test_a_document_stays_in_one_block() -> None:
    """Whoever is asked about under two seeds is not judged by what was fitted on itself."""
    rng = random.Random(3)
    own = [text(rng) for _ in range(120)]
    # each text as member and as other: nothing can tell them apart, and fitted on itself none would be at ½
    texts, labels, ids = own + own, [True] * 120 + [False] * 120, [f"d{i}" for i in range(120)] * 2
    values = progressive(texts, labels, ids)
    assert [values[i] for i in range(120)] == [values[i + 120] for i in range(120)]
    both = [i for i, v in enumerate(values) if v is not None]
    assert stats.roc_auc([labels[i] for i in both], [values[i] for i in both]) == pytest.approx(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "texts",
    [["same"] * 60, [""] * 60, [f"w{i}x" for i in range(60)], ["¿" * (i % 7 + 1) for i in range(60)]],
    ids=["equal", "empty", "nothing in common", "no words"],
)
def test_odd_texts(texts: list[str]) -> None:
    values = progressive(texts, [i % 2 == 0 for i in range(60)], [f"d{i}" for i in range(60)])
    assert any(v is not None for v in values) is any(t.strip() for t in texts)
    if texts[0] == "same":
        assert {v for v in values if v is not None} == {0.5}


def targets(store: Store, n: int, planted: Planted = plain, arms: tuple[str, ...] = ("none", "mask")) -> None:
    texts, labels, ids = drawn(n, 4, planted)
    for arm in arms:
        for i, (content, label, id_) in enumerate(zip(texts, labels, ids, strict=True)):
            for probe in (f"s-{i:04d}", f"s-{i:04d}/1"):
                store.answer(probe, arm, "s2mia", "r", target_id=id_, is_member=label, target_text=content)
        store.answer("b-1", arm, "benign", "r")


def test_one_result_for_each_attack_and_corpus() -> None:
    store = Store()
    targets(store, 40, dates)
    found = store.run("blind_roc_auc")
    assert list(found) == [("blind_roc_auc", "none", "s2mia")]
    result = found["blind_roc_auc", "none", "s2mia"]
    assert result.n == 64 and result.reason == "16 of 80 targets only served to fit"
    scores = store.scores("blind")
    assert {arm for arm, _ in scores} == {"none"} and len(scores) == 80, "one a target, not one a query"
    labels = [i % 2 == 0 for i in range(80) if scores["none", f"s-{i:04d}"] is not None]
    values = [v for i in range(80) if (v := scores["none", f"s-{i:04d}"]) is not None]
    assert result.value == pytest.approx(stats.roc_auc(labels, values), abs=1e-12)
    assert blind_warning(result) is not None


def test_without_an_undefended_arm_it_is_of_no_arm() -> None:
    store = Store()
    targets(store, 30, arms=("b", "a"))
    assert list(store.run("blind_roc_auc")) == [("blind_roc_auc", "none", "s2mia")]
    assert {arm for arm, _ in store.scores("blind")} == {"a"}


def test_too_few_targets_and_no_texts() -> None:
    store = Store()
    targets(store, LEAST - 1)
    result = store.run("blind_roc_auc")["blind_roc_auc", "none", "s2mia"]
    assert result.value is None and result.n == 0
    assert result.reason == "no data: it needs the texts of at least 20 members and 20 non-members"
    store.db.execute("UPDATE probes SET target_text = NULL")
    assert store.run("blind_roc_auc")["blind_roc_auc", "none", "s2mia"].value is None
    store.db.execute("DELETE FROM probes WHERE attack = 's2mia'")
    assert store.run("blind_roc_auc") == {}


def test_the_warning_stands_beside_every_membership_number(tmp_path: Path) -> None:
    texts, _, ids = drawn(80, 2, dates)
    documents = [Document(content, id_) for content, id_ in zip(texts, ids, strict=True)]
    corpus = Corpus("c", 1, tuple(documents[::2]), tuple(documents[1::2]))
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full")

    def app(query: str) -> None:
        with ragtrace.generation(query) as stage:
            stage.response(query)

    audit.run(app, [audit.Arm("mask", (RegexMask(),))], S2MIA(160).probes(corpus, 1), tracing=tracing)
    tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        score(db, metrics=["blind_roc_auc", "s2mia_roc_auc"])
        rows: dict[str, Any] = {
            metric: rest
            for metric, *rest in db.execute(
                "SELECT metric, arm, defense, interpretable, reason, value FROM results"
            ).fetchall()
        }
    arm, defense, interpretable, reason, value = rows["blind_roc_auc"]
    assert (arm, defense, interpretable) == ("none", None, "interpretable") and value > 0.5
    assert "warning" not in reason
    assert rows["s2mia_roc_auc"][-1] is not None
    assert "warning: members and non-members differ in their text alone" in rows["s2mia_roc_auc"][3]
    assert METRIC.score_name == "blind"
