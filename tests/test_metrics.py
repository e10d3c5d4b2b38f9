"""Canaries, entities and utility over a store made by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sacrebleu
from metric_store import Store
from scipy.stats import binomtest

from ragtrace.canaries import FAMILIES
from ragtrace.metrics import load

CANARIES = [f"canary_recovery_{family}" for family in FAMILIES]


@pytest.fixture
def store() -> Iterator[Store]:
    s = Store()
    yield s
    s.db.close()


def test_channels_of_ours() -> None:
    metrics = load()
    assert metrics["canary_recovery_email"].channel == metrics["nel_strict"].channel == "response"
    assert metrics["s2mia_roc_auc"].moved_by == ("query", "retrieval", "content")
    assert all(
        metric.results(Store().db, "nobody") == [] for metric in (metrics["nel_strict"], metrics["s2mia_m_pr_auc"])
    )


def test_canary_recovery_counts_distinct_canaries_in_responses(store: Store) -> None:
    for i in range(20):
        store.add("canaries", run_id="r", canary=f"mail{i}", family="email", document_id=f"d{i}")
        store.add("canaries", run_id="r", canary=f"Name{i}", family="person", document_id=f"d{i}")
    store.add("canaries", run_id="other", canary="mail99", family="email", document_id="d")
    one = store.answer("p1", "none", "canary", "mail0 mail1")
    two = store.answer("p2", "none", "canary", "mail1", query="what of mail2 and")
    store.answer("p3", "none", "canary", None)
    ask = store.answer("b1", "none", "benign", "Name3")
    store.answer("p1", "mask", "canary", "nothing")
    for trace, canary in (
        (one, "mail0"),
        (one, "mail1"),
        (two, "mail1"),
        (two, "mail2"),
        (one, "mail99"),
        (ask, "Name3"),
    ):
        store.hit(trace, canary)
    store.hit(one, "mail5", channel="content")
    found = store.run("canary_recovery_email", "canary_recovery_person", "canary_benign_rate")

    email = found["canary_recovery_email", "none", "canary"]
    # mail2 was in the query, mail5 only in a document, mail99 is another run's
    assert (email.value, email.n, email.parameters["recovered"]) == (2 / 20, 20, 2)
    expected = binomtest(2, 20).proportion_ci(method="exact")
    assert (email.ci_low, email.ci_high) == pytest.approx((expected.low, expected.high))
    assert email.reason == "1 of 3 probes have no response (kept as it was, or looked through in the app)"
    assert found["canary_recovery_person", "none", "canary"].value == 0
    masked = found["canary_recovery_email", "mask", "canary"]
    assert masked.value == 0 and masked.ci_high == pytest.approx(binomtest(0, 20).proportion_ci(method="exact").high)
    benign = found["canary_benign_rate", "none", "benign"]
    assert (benign.value, benign.n) == (1 / 40, 40)
    assert store.scores("canary_hits") == {
        ("none", "p1"): 2, ("none", "p2"): 1, ("none", "p3"): None, ("none", "b1"): 1, ("mask", "p1"): 0,
    }  # fmt: skip


def test_each_family_has_its_recovery(store: Store) -> None:
    planted = {
        "email": "a@b.net",
        "person": "Bre Mak",
        "phone": "(912) 555-0101",
        "id": "BCD-00012345",
        "phrase": "pa tik",
    }
    for family, canary in planted.items():
        store.add("canaries", run_id="r", canary=canary, family=family, document_id="d")
    trace = store.answer("p1", "none", "canary", "…")
    store.hit(trace, planted["phone"])
    store.hit(trace, planted["phrase"])
    found = store.run(*CANARIES)
    values = {metric: r.value for (metric, _, _), r in found.items() if metric.startswith("canary_recovery_")}
    assert values == {f"canary_recovery_{f}": float(f in ("phone", "phrase")) for f in planted}


def test_a_family_that_the_run_did_not_plant_has_no_row(store: Store) -> None:
    store.add("canaries", run_id="r", canary="m", family="phone", document_id="d")
    store.answer("p1", "none", "canary", "text")
    recoveries = {metric for metric, *_ in store.run(*CANARIES) if metric.startswith("canary_recovery_")}
    assert recoveries == {"canary_recovery_phone"}


def test_canary_without_data_is_null(store: Store) -> None:
    store.answer("p1", "none", "canary", "text")
    assert "no canaries of family email" in str(store.run(*CANARIES)["canary_recovery_email", "none", "canary"].reason)
    store.add("canaries", run_id="r", canary="m", family="email", document_id="d")
    store.answer("p1", "broken", "canary", None)
    found = store.run("canary_recovery_email")
    assert found["canary_recovery_email", "none", "canary"].value == 0
    assert found["canary_recovery_email", "broken", "canary"].value is None
    store.answer("p2", "none", "canary", "text", corpus="another")
    results = load()["canary_recovery_email"].results(store.db, "r")
    assert [r.value for r in results] == [None] * 3
    assert all("corpora" in str(r.reason) or "response" in str(r.reason) for r in results)


def test_the_last_model_call_of_the_last_trace_answers(store: Store) -> None:
    trace = store.answer("p1", "none", "s2mia", "first", 2.0, target_text="final", is_member=True)
    store.call(trace, "f", "final", 3.0, minute=1)
    store.call(trace, "inner", "a model inside a model", 9.0, minute=2, nested=True)
    store.run("perplexity_roc_auc")
    assert store.scores("perplexity") == {("none", "p1"): 3.0}
    store.add(
        "probes", run_id="r", probe_id="p1", arm="none", attack="s2mia", corpus="c", seed=1, trace_id="again",
        query="q", is_member=True, target_text="final",
    )  # fmt: skip
    store.call("again", "x", "again", 4.0, minute=5)
    store.db.execute("DELETE FROM score_data")
    store.run("perplexity_roc_auc")
    assert store.scores("perplexity") == {("none", "p1"): 4.0}


def test_entity_leakage(store: Store) -> None:
    trace = store.answer("p1", "none", "canary", "…")
    store.entity(trace, "EMAIL_REAL", "a@b.org")
    store.entity(trace, "EMAIL_REAL", "A@b.org")  # the same one
    store.entity(trace, "PERSON_NAME", "Ada Ree")
    store.entity(trace, "PERSON_NAME", "Echo Ed", in_query=True)
    store.entity(trace, "PERSON_NAME", "Made Up", in_documents=False)
    store.entity(trace, "ORG_TITLE", "Acme")
    store.answer("p2", "none", "canary", "nothing in it")
    store.answer("p3", "none", "canary", None)
    store.answer("p1", "mute", "canary", None)
    found = store.run("nel_strict", "nel_email", "nel_person")
    strict = found["nel_strict", "none", "canary"]
    assert (strict.value, strict.n) == (1.0, 2)
    assert strict.reason == "1 of 3 probes have no score; 1 echoes of the query left out"
    assert found["nel_email", "none", "canary"].value == found["nel_person", "none", "canary"].value == 0.5
    assert store.scores("nel_strict") == {
        ("none", "p1"): 2, ("none", "p2"): 0, ("none", "p3"): None, ("mute", "p1"): None,
    }  # fmt: skip
    mute = found["nel_strict", "mute", "canary"]
    assert (mute.value, mute.n) == (None, 0) and "no data" in str(mute.reason)


def test_equal_responses_give_no_interval(store: Store) -> None:
    for i in range(5):
        store.answer(f"p{i}", "none", "canary", "nothing")
    result = store.run("nel_strict")["nel_strict", "none", "canary"]
    assert (result.value, result.ci_low, result.ci_high) == (0, None, None)
    assert "no interval" in str(result.reason)


def test_utility_against_the_undefended_arm(store: Store) -> None:
    pairs = [
        ("the plan is late by a week", "the plan is late"),
        ("nothing was agreed upon", "I cannot say"),
        ("x", None),
    ]
    for i, (plain, defended) in enumerate(pairs):
        store.answer(f"b{i}", "none", "benign", plain)
        store.answer(f"b{i}", "on", "benign", defended)
    store.answer("b9", "on", "benign", "without a counterpart")
    found = store.run("utility_bleu_to_undefended")
    assert list(found) == [("utility_bleu_to_undefended", "on", "benign")]
    (result,) = found.values()
    expected = [sacrebleu.sentence_bleu(h, [r]).score for r, h in pairs[:2] if h]
    assert result.value == pytest.approx(np.mean(expected))
    assert (result.n, result.reason) == (2, "2 of 4 probes have no score")
