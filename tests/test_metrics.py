"""Metrics over a store made by hand: the columns of DESIGN section 4, and generations.nested and start_time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, roc_auc_score

from ragtrace.metrics import _threshold as threshold
from ragtrace.metrics import load
from ragtrace.metrics.base import Result
from ragtrace.metrics.s2mia import bleu_auc, remaining

SCHEMA = """
CREATE TABLE probes (run_id TEXT, probe_id TEXT, arm TEXT, attack TEXT, corpus TEXT, seed INT, query TEXT,
    target_id TEXT, target_text TEXT, is_member BOOL, canary TEXT, detail TEXT, trace_id TEXT);
CREATE TABLE generations (trace_id TEXT, span_id TEXT, query TEXT, prompt TEXT, response TEXT, model TEXT,
    completion_tokens INT, mean_logprob DOUBLE, perplexity DOUBLE, first_token TEXT, path TEXT, nested BOOL, start_time TIMESTAMP);
CREATE TABLE canary_hits (trace_id TEXT, span_id TEXT, canary TEXT, family TEXT, channel TEXT,
    run_id TEXT, probe_id TEXT, arm TEXT);
CREATE TABLE canaries (run_id TEXT, canary TEXT, family TEXT, document_id TEXT);
CREATE TABLE entities (trace_id TEXT, span_id TEXT, type TEXT, text TEXT, in_query BOOL, in_documents BOOL);
CREATE TABLE score_data (run_id TEXT, probe_id TEXT, arm TEXT, attack TEXT, metric TEXT, value DOUBLE);
CREATE VIEW scores AS FROM score_data;
"""


class Store:
    """An in-memory store with a line for each thing that a test says happened."""

    def __init__(self) -> None:
        self.db = duckdb.connect()
        self.db.execute(SCHEMA)

    def add(self, table: str, **row: Any) -> None:
        columns = ", ".join(row)
        self.db.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", list(row.values()))

    def answer(
        self, probe: str, arm: str, attack: str, response: str | None, perplexity: float | None = None, **probe_row: Any
    ) -> str:
        trace = f"{arm}/{probe}"
        row = {"query": "q", "corpus": "c", "seed": 1, **probe_row}
        self.add("probes", run_id="r", probe_id=probe, arm=arm, attack=attack, trace_id=trace, **row)
        self.call(trace, "g", response, perplexity)
        return trace

    def call(
        self,
        trace: str,
        span: str,
        response: str | None,
        perplexity: float | None,
        minute: int = 0,
        nested: bool = False,
    ) -> None:
        self.add(
            "generations", trace_id=trace, span_id=span, response=response, perplexity=perplexity, nested=nested,
            start_time=f"2026-01-01 10:{minute:02}:00",
        )  # fmt: skip

    def hit(self, trace: str, canary: str, channel: str = "response") -> None:
        self.add("canary_hits", trace_id=trace, canary=canary, channel=channel)

    def entity(self, trace: str, type: str, text: str, in_query: bool = False, in_documents: bool = True) -> None:
        self.add(
            "entities", trace_id=trace, span_id="g", type=type, text=text, in_query=in_query, in_documents=in_documents
        )

    def run(self, *names: str) -> dict[tuple[str, str, str], Result]:
        """(metric, arm, attack) → result, the scores of all metrics stored before."""
        metrics = load()
        # as ragtrace.score does: what two metrics read is stored once
        for s in dict.fromkeys(s for m in metrics.values() for s in m.scores(self.db, "r")):
            self.add("score_data", **vars(s))
        found = [r for n in names or metrics for r in metrics[n].results(self.db, "r")]
        assert all(r.run_id == "r" and (r.value is not None or r.reason) for r in found)
        return {(r.metric, r.arm, r.attack): r for r in found}

    def scores(self, metric: str) -> dict[tuple[str, str], float | None]:
        rows = self.db.execute("SELECT arm, probe_id, value FROM scores WHERE metric = ?", [metric]).fetchall()
        assert len({r[:2] for r in rows}) == len(rows), "metrics that compute the same score agree"
        return {(arm, probe): value for arm, probe, value in rows}


@pytest.fixture
def store() -> Iterator[Store]:
    s = Store()
    yield s
    s.db.close()


def targets(store: Store, rows: Iterable[tuple[bool, str | None, float | None]], arm: str = "none") -> None:
    for i, (member, response, perplexity) in enumerate(rows):
        store.answer(
            f"s-{i:03d}", arm, "s2mia", response, perplexity, target_id=f"d{i}", is_member=member,
            target_text=f"the target number {i} has words of its own such as w{i} and v{i}",
            query=f"Continue: the target number {i}",
        )  # fmt: skip


def graded(n: int, seed: int = 0, flip: bool = False, perplexity: bool = True) -> list[tuple[bool, str, float | None]]:
    """n members and n others; members repeat more of the target and are more certain, with overlap."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[bool, str, float | None]] = []
    for i in range(2 * n):
        member = i % 2 == 0
        share = int(np.clip(rng.normal(9 if member != flip else 5, 2.5), 0, 14))
        words = [*f"the target number {i} has words of its own such as w{i} and v{i}".split()[:share], "and", "more"]
        value = float(np.exp(rng.normal(0.5 if member != flip else 1.0, 0.4)))
        rows.append((member, " ".join(words), value if perplexity else None))
    return rows


def test_channels_of_ours() -> None:
    metrics = load()
    assert metrics["canary_recovery_email"].channel == metrics["nel_strict"].channel == "response"
    assert metrics["s2mia_roc_auc"].moved_by == ("query", "retrieval", "content")
    assert all(metric.results(Store().db, "nobody") == [] for metric in metrics.values())


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
    assert email.reason == "1 of 3 probes have no response"
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
    found = store.run()
    values = {metric: r.value for (metric, _, _), r in found.items() if metric.startswith("canary_recovery_")}
    assert values == {f"canary_recovery_{f}": float(f in ("phone", "phrase")) for f in planted}


def test_a_family_that_the_run_did_not_plant_has_no_row(store: Store) -> None:
    store.add("canaries", run_id="r", canary="m", family="phone", document_id="d")
    store.answer("p1", "none", "canary", "text")
    recoveries = {metric for metric, *_ in store.run() if metric.startswith("canary_recovery_")}
    assert recoveries == {"canary_recovery_phone"}


def test_canary_without_data_is_null(store: Store) -> None:
    store.answer("p1", "none", "canary", "text")
    assert "no canaries of family email" in str(store.run()["canary_recovery_email", "none", "canary"].reason)
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
    store.run()
    assert store.scores("perplexity") == {("none", "p1"): 3.0}
    store.add(
        "probes", run_id="r", probe_id="p1", arm="none", attack="s2mia", corpus="c", seed=1, trace_id="again",
        query="q", is_member=True, target_text="final",
    )  # fmt: skip
    store.call("again", "x", "again", 4.0, minute=5)
    store.db.execute("DELETE FROM score_data")
    store.run()
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
    assert (strict.value, strict.n, strict.reason) == (1.0, 2, "1 of 3 probes have no score")
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


def test_areas_equal_scikit_learn(store: Store) -> None:
    rows = graded(40)
    targets(store, rows)
    found = store.run("bleu_roc_auc", "perplexity_roc_auc", "s2mia_roc_auc", "s2mia_pr_auc")
    labels = [m for m, _, _ in rows]
    texts = [f"the target number {i} has words of its own such as w{i} and v{i}" for i in range(80)]
    scores = [sacrebleu.sentence_bleu(r, [t]).score for (_, r, _), t in zip(rows, texts, strict=True)]
    bleu = found["bleu_roc_auc", "none", "s2mia"]
    assert bleu.value == pytest.approx(roc_auc_score(labels, scores))
    assert bleu.n == 80 and bleu.ci_low is not None and bleu.ci_high is not None
    assert bleu.ci_low < bleu.value < bleu.ci_high
    perplexity = found["perplexity_roc_auc", "none", "s2mia"]
    assert perplexity.value == pytest.approx(roc_auc_score(labels, [-float(p or 0) for _, _, p in rows]))

    rule = found["s2mia_roc_auc", "none", "s2mia"]
    precision = found["s2mia_pr_auc", "none", "s2mia"]
    assert rule.n == precision.n == rule.parameters["n_reference"] == 40
    assert rule.parameters["features"] == ["bleu", "perplexity"] and precision.parameters["prevalence"] == 0.5
    # again by definition: the strictest rule of the reference envelope that accepts a target
    y, s, p = np.array(labels), np.array(scores), np.array([p for _, _, p in rows], dtype=float)
    fit, rest = threshold.halves(y)
    rules = threshold.envelope(y[fit], s[fit], p[fit])
    rank = [
        -min((k for k, r in enumerate(rules) if a >= r.sem and b <= r.gen), default=len(rules))
        for a, b in zip(s[rest], p[rest], strict=True)
    ]
    assert rule.value == pytest.approx(roc_auc_score(y[rest], rank))
    assert precision.value == pytest.approx(average_precision_score(y[rest], rank))
    sem, gen = rule.parameters["theta_sem"], rule.parameters["theta_gen"]
    says = (s[rest] >= sem) & (p[rest] <= gen)
    assert rule.parameters["tpr"] == pytest.approx(says[y[rest]].mean())
    assert rule.parameters["fpr"] == pytest.approx(says[~y[rest]].mean())
    assert rule.parameters["accuracy"] == pytest.approx((says == y[rest]).mean())


@pytest.mark.parametrize("missing", [None, math.nan])
def test_without_perplexity_the_rule_uses_bleu_alone(store: Store, missing: float | None) -> None:
    targets(store, [(m, r, missing) for m, r, _ in graded(20)])
    found = store.run()
    assert found["perplexity_roc_auc", "none", "s2mia"].value is None
    rule = found["s2mia_roc_auc", "none", "s2mia"]
    assert rule.value is not None and "BLEU only: 40 of 40" in str(rule.reason)
    assert rule.parameters["features"] == ["bleu"] and rule.parameters["theta_gen"] is None


def test_reversal_is_named(store: Store) -> None:
    targets(store, graded(40, flip=True))
    found = store.run()
    bleu = found["bleu_roc_auc", "none", "s2mia"]
    # an area under the ROC curve declares its chance, and the verdict is made from that (test_score.py)
    assert bleu.value is not None and bleu.ci_high is not None and bleu.ci_high < load()["bleu_roc_auc"].chance  # type: ignore[attr-defined]
    rule, precision = found["s2mia_roc_auc", "none", "s2mia"], found["s2mia_pr_auc", "none", "s2mia"]
    # the area under the other curve says nothing of a flipped sign by itself
    assert rule.value is not None and rule.ci_high is not None and rule.ci_high < 0.5
    assert precision.reversal == (
        f"non-members score higher; with the sign flipped the ROC AUC is {1 - rule.value:.3f}"
    )
    assert rule.reversal is None
    targets(upright := Store(), graded(40))
    assert upright.run("s2mia_pr_auc")["s2mia_pr_auc", "none", "s2mia"].reversal is None


def test_no_area_where_none_would_mean_anything(store: Store) -> None:
    targets(store, [(True, "the target number", 2.0)] * 6, arm="members only")
    targets(store, [(i % 2 == 0, "", 2.0) for i in range(20)], arm="all tied")
    targets(store, [(i % 2 == 0, None, None) for i in range(20)], arm="no answer")
    found = store.run("bleu_roc_auc", "perplexity_roc_auc", "s2mia_roc_auc", "s2mia_pr_auc")
    assert len(found) == 12
    for (_, arm, _), result in found.items():
        assert (result.value, result.ci_low, result.ci_high) == (None, None, None), arm
        assert str(result.reason).startswith("no data")
    assert "0 non-members" in str(found["bleu_roc_auc", "members only", "s2mia"].reason)
    assert "score the same" in str(found["bleu_roc_auc", "all tied", "s2mia"].reason)
    assert "20 of 20 probes have no score" in str(found["s2mia_roc_auc", "no answer", "s2mia"].reason)


def test_the_same_targets_in_every_arm_are_the_reference() -> None:
    labels = np.array([True, False, True] * 10)
    fit, rest = threshold.halves(labels, 5)
    assert (fit ^ rest).all() and fit[labels].sum() == 10 and fit[~labels].sum() == 5
    assert (fit == threshold.halves(labels.copy(), 5)[0]).all() and (fit != threshold.halves(labels, 6)[0]).any()


FEATURES = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 5)), min_size=2, max_size=12).filter(
    lambda rows: len({m for m, _, _ in rows}) == 2
)


@given(FEATURES)
@settings(max_examples=80, deadline=None)
def test_envelope_equals_brute_force(rows: list[tuple[bool, int, int]]) -> None:
    labels = np.array([m for m, _, _ in rows])
    bleu, ppl = np.array([b for _, b, _ in rows], float), np.array([p for _, _, p in rows], float)

    def point(rule: threshold.Rule) -> tuple[int, int]:
        yes = rule.accepts(bleu, ppl)
        return int((yes & ~labels).sum()), int((yes & labels).sum())

    points = {point(threshold.Rule(b, p)) for b in set(bleu) for p in set(ppl)}
    # not dominated: no other rule has fewer alarms and as many hits, or as few alarms and more hits
    best = {(f, t) for f, t in points if t and not any((g <= f and u >= t and (g, u) != (f, t)) for g, u in points)}
    rules = threshold.envelope(labels, bleu, ppl)
    assert [point(r) for r in rules] == sorted(best)

    rule = threshold.greedy(labels, bleu, ppl)

    def gain(r: threshold.Rule) -> float:
        f, t = point(r)
        return t / labels.sum() - f / (~labels).sum()

    # a local optimum: moving one threshold alone gains nothing
    assert all(gain(threshold.Rule(b, rule.gen)) <= gain(rule) + 1e-9 for b in set(bleu))
    assert all(gain(threshold.Rule(rule.sem, p)) <= gain(rule) + 1e-9 for p in set(ppl))


@given(st.text(max_size=40), st.integers(0, 40), st.sampled_from(["{}", "Continue: {}", "{} and so on"]))
@settings(max_examples=80, deadline=None)
def test_remaining_text(target: str, cut: int, frame: str) -> None:
    query = frame.format(target[:cut])
    rest = remaining(target, query)
    longest = max(k for k in range(len(target) + 1) if target[:k] in query)
    assert rest == target[longest:] and len(rest) <= len(target[cut:])


def test_bleu_against_the_remaining_text(store: Store) -> None:
    targets(store, graded(3))
    metric = bleu_auc("remaining")
    first = metric.scores(store.db, "r")[0]
    assert (metric.name, first.metric) == ("bleu_remaining_roc_auc", "bleu_remaining")
    response = graded(3)[0][1]
    assert first.value == pytest.approx(
        sacrebleu.sentence_bleu(response, [" has words of its own such as w0 and v0"]).score
    )
