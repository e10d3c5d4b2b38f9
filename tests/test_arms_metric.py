"""Differences between arms: paired, against DeLong's by hand, and adjusted for their number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from metric_store import Store

from ragtrace import stats
from ragtrace.metrics import load


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.db.close()


def fill(store: Store, arm: str, values: list[float], members: list[bool], metric: str = "rag_mia_prob") -> None:
    for i, (value, member) in enumerate(zip(values, members, strict=True)):
        store.answer(f"r-{i:03d}", arm, "rag_mia", "yes", target_id=f"d{i}", is_member=member, target_text="t")
        store.add(
            "score_data", run_id="r", probe_id=f"r-{i:03d}", arm=arm, attack="rag_mia", metric=metric, value=value
        )


def test_each_arm_against_the_undefended_one(store: Store) -> None:
    rng = np.random.default_rng(1)
    members = [i % 2 == 0 for i in range(120)]
    bare = [float(rng.normal(1.5 if m else 0)) for m in members]
    hidden = [float(rng.normal()) for _ in members]
    alike = [v + float(rng.normal(0, 0.05)) for v in bare]
    for arm, values in (("none", bare), ("hidden", hidden), ("alike", alike)):
        fill(store, arm, values, members)
    found = {r.arm: r for r in load()["membership_roc_auc_change"].results(store.db, "r")}
    assert set(found) == {"hidden", "alike"}
    for arm, values in (("hidden", hidden), ("alike", alike)):
        expected = stats.auc_difference(np.array(members), np.array(values), np.array(bare))
        result = found[arm]
        assert result.metric == "rag_mia_prob_roc_auc_change" and result.n == 120
        assert (result.value, result.ci_low, result.ci_high) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )
        assert result.parameters["p"] == pytest.approx(expected.p)
        assert result.parameters["p_holm"] >= result.parameters["p"]
    assert found["hidden"].value is not None and found["hidden"].value < -0.2
    assert "differs from the undefended arm" in str(found["hidden"].reason)
    assert "no difference" in str(found["alike"].reason)
    both = sorted(r.parameters["p"] for r in found.values())
    assert sorted(r.parameters["p_holm"] for r in found.values()) == pytest.approx(sorted(stats.holm(both)))


def test_without_an_undefended_arm_there_is_nothing_to_compare_with(store: Store) -> None:
    members = [True, False] * 4
    fill(store, "a", [float(i) for i in range(8)], members)
    fill(store, "b", [float(-i) for i in range(8)], members)
    assert load()["membership_roc_auc_change"].results(store.db, "r") == []


def test_perplexity_counts_the_other_way_round(store: Store) -> None:
    members = [True, False] * 20
    certain = [1.0 + i / 100 if m else 5.0 + i / 100 for i, m in enumerate(members)]
    level = [float((i * 7) % 40) for i in range(40)]
    for arm, values in (("none", certain), ("masked", level)):
        fill(store, arm, values, members, "perplexity")
    (result,) = load()["membership_roc_auc_change"].results(store.db, "r")
    assert result.value is not None and result.value < 0, "without the defense members are told by their low perplexity"
