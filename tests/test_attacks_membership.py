"""The membership attacks end to end: asked of a real pipeline, stored, and scored from the store alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from membership_audit import audited, corpus, sides

import ragtrace
from ragtrace import metrics
from ragtrace.attacks import load
from ragtrace.attacks.interrogation import Interrogation
from ragtrace.attacks.s2mia import S2MIA
from ragtrace.audit import Arm
from ragtrace.controls import CONTROLS, REFERENCE
from ragtrace.score import score

ATTACKS = ("rag_mia", "rag_mia_prob", "mba", "interrogation", "menta", "difficulty_calibrated", "dcmi", "dcmi_prob")
METRICS = [f"{name}_{statistic}" for name in ATTACKS for statistic in ("roc_auc", "pr_auc", "balanced_accuracy")]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 members and 12 non-members, all attacks, without defense, with the controls and the references."""
    database = tmp_path_factory.mktemp("membership") / "t.duckdb"
    arms = {arm.name: arm for arm in (Arm("none"), *CONTROLS, *REFERENCE)}
    asked = load() | {"interrogation": Interrogation(questions=8)}  # 30 take their time
    audited(database, list(arms.values()), [asked[name] for name in ATTACKS])
    return database


@pytest.fixture(scope="module")
def scored(database: Path) -> Iterator[Any]:
    with ragtrace.open(database) as db:
        score(db, metrics=METRICS)
    with ragtrace.open(database) as db:  # nothing is left but the store
        yield db


def _results(db: Any, metric: str) -> dict[str, tuple[Any, ...]]:
    found = db.execute("SELECT arm, value, n, reason FROM results WHERE metric = ?", [metric]).fetchall()
    return {arm: rest for arm, *rest in found}


@pytest.mark.parametrize("name", ATTACKS)
def test_it_tells_members_with_retrieval_and_nothing_without(scored: Any, name: str) -> None:
    found = _results(scored, f"{name}_roc_auc")
    assert found["none"][:2] == [1.0, 24]
    members, others = sides(scored, name, "none")
    assert min(members) > max(others)  # type: ignore[type-var]
    # without the documents both sides answer alike: all tied, which is an area of ½ and no result
    members, others = sides(scored, name, "no_retrieval")
    assert len(members) == len(others) == 12 and len({*members, *others}) == 1 and None not in members
    assert found["no_retrieval"][0] is None and "tied" in found["no_retrieval"][2]


@pytest.mark.parametrize(
    ("name", "member", "other"),
    [
        ("rag_mia", 1.0, 0.0),
        ("rag_mia_prob", 0.7, -0.7),  # .6 + .2 - .1, and .1 - (.7 + .1)
        ("mba", 1.0, 0.0),
        ("interrogation", 1.0, -5.0),
        ("menta", 1.0, 0.0),
        ("difficulty_calibrated", 101 / 102, 1 / 102),  # b = 100 and 0, the references 100 and 0
        ("dcmi", 1.0, 0.0),
        ("dcmi_prob", 0.7, 0.0),  # .8 - .1
    ],
)
def test_the_scores_are_those_that_the_answers_give(scored: Any, name: str, member: float, other: float) -> None:
    members, others = sides(scored, name, "none")
    assert members == pytest.approx([member] * 12)
    assert others == pytest.approx([other] * 12)


def test_without_its_target_a_member_scores_as_a_non_member(scored: Any) -> None:
    for name in ("rag_mia", "mba", "interrogation", "dcmi"):
        members, others = sides(scored, name, "without_target")
        assert members == others
    members, others = sides(scored, "rag_mia", "with_target")
    assert members == others == [1.0] * 12


def test_the_references_of_the_difficulty_are_scored_by_no_arm_of_their_own(scored: Any) -> None:
    found = _results(scored, "difficulty_calibrated_roc_auc")
    assert sorted(found) == ["no_retrieval", "none", "with_target", "without_target"]
    for arm in ("with_target", "without_target"):
        value, n, reason = found[arm]
        assert (value, n) == (None, 0)
        assert "ragtrace.controls.REFERENCE" in reason and "24 of 24 probes have no score" in reason


def test_scoring_again_from_the_closed_store_changes_nothing(database: Path, scored: Any, tmp_path: Path) -> None:
    before = scored.execute("SELECT * FROM scores ORDER BY ALL").fetchall()
    score(scored, metrics=METRICS)
    assert scored.execute("SELECT * FROM scores ORDER BY ALL").fetchall() == before
    assert len(before) == 4 * 24 * len(ATTACKS)


def test_shared_probes_are_sent_once(scored: Any) -> None:
    asked = dict(scored.execute("SELECT attack, count(*) FROM probes WHERE arm = 'none' GROUP BY 1").fetchall())
    assert asked["rag_mia"] == asked["mba"] == asked["s2mia"] == 24
    assert (asked["dcmi"], asked["menta"]) == (2 * 24, 5 * 24)
    assert asked["interrogation"] == 8 * 24
    assert set(asked) == {"rag_mia", "mba", "s2mia", "dcmi", "menta", "interrogation"}


def test_the_calibrated_attack_asks_just_what_s2mia_asks() -> None:
    aimed = corpus()
    for options in ({}, {"count": 6, "fraction": 0.25, "split": "position"}):
        own = type(load()["difficulty_calibrated"])(**options)
        assert list(own.probes(aimed, 7)) == list(S2MIA(**options).probes(aimed, 7))  # type: ignore[arg-type]


def test_without_the_reference_arms_there_is_no_number_and_the_reason_is_said(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    audited(database, [Arm("none")], [load()["difficulty_calibrated"], load()["rag_mia"]], capture="digest")
    with ragtrace.open(database) as db:
        score(db, metrics=["difficulty_calibrated_*", "rag_mia_*"])
        value, n, reason = _results(db, "difficulty_calibrated_roc_auc")["none"]
        assert (value, n) == (None, 0) and "with_target" in reason
        value, n, reason = _results(db, "rag_mia_prob_roc_auc")["none"]
        assert (value, n) == (None, 0) and "capture 'full' or 'masked'" in reason
        assert db.execute("SELECT count(*) FROM generations WHERE first_token IS NOT NULL").fetchone() == (0,)
    shutil.rmtree(tmp_path)


def test_the_form_with_sentence_vectors_is_made_on_request_only() -> None:
    asked_for = {name: getattr(metric, "on_request", False) for name, metric in metrics.load().items()}
    assert asked_for["menta_embedding_roc_auc"] is True and asked_for["menta_roc_auc"] is False
