"""Would a number come out again? Three intervals kept apart, repeats counted once, and what may be called a finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runs import Run
from scipy.stats import bootstrap, sem, t
from store_fixtures import Bench, rows

from ragtrace.canaries import mint
from ragtrace.record import attributes as a
from ragtrace.report.reporting import report
from ragtrace.score import score

NAMES = (
    "Mary Johnson", "James Wilson", "Susan Miller", "Robert Brown", "Linda Davis", "David Moore", "Karen Taylor",
    "Thomas Anderson",
)  # fmt: skip
HELD = [(f"d{i}", f"Signed by {name}.") for i, name in enumerate(NAMES)]


def _manifest(bench: Bench, seed: int, arms: dict[str, list[str]], planted: list[str] | None = None) -> None:
    told = [{"text": c, "family": "email", "document_id": f"d{i}"} for i, c in enumerate(planted or [])]
    facts = {"arms": arms, "constants": {}, "canaries": told, "seed": seed, "members": 20}
    with bench.span("run", {a.RUN_ID: "r", a.RUN: facts}):
        pass


def _read(run: Run, query: str) -> list[dict[str, Any]]:
    with run.open() as db:
        score(db)
        return rows(db, query)


def _leaky(bench: Bench, seeds: list[int], probes: int = 6, arms: tuple[str, ...] = ("none",)) -> Run:
    """Probe i of the seed gives away (i + seed) mod 4 names, the same in every arm."""
    run = Run(bench)
    for seed in seeds:
        _manifest(bench, seed, {arm: [] if arm == "none" else [arm] for arm in arms})
        for arm in arms:
            for i in range(probes):
                given = ", ".join(NAMES[: (i + seed) % 4])
                run.ask(arm, f"s{seed}-{i}", f"It was {given or 'nobody'}.", found=HELD, seed=seed,
                        query=f"question {i} of seed {seed}", attack="prompt_stealing")  # fmt: skip
    return run


PERSON = "FROM replications WHERE metric = 'nel_person' ORDER BY arm"


@pytest.mark.parametrize(("seeds", "standing"), [
    ([1], "case study"), ([1, 2], "preliminary"), ([1, 2, 3, 5], "preliminary"), ([1, 2, 3, 5, 6], "finding"),
])  # fmt: skip
def test_five_seeds_are_needed_for_a_finding(bench: Bench, seeds: list[int], standing: str) -> None:
    [row] = _read(_leaky(bench, seeds), PERSON)
    assert (row["standing"], row["replicates"]) == (standing, len(seeds))
    assert row["seeds"] == (seeds if len(seeds) > 1 else [])


def test_three_intervals_by_independent_references(bench: Bench) -> None:
    [row] = _read(_leaky(bench, [1, 2, 3]), PERSON)
    counts = {seed: [(i + seed) % 4 for i in range(6)] for seed in (1, 2, 3)}
    means = [float(np.mean(c)) for c in counts.values()]
    assert row["seed_values"] == pytest.approx(means) and row["value"] == pytest.approx(np.mean(means))
    between = t.interval(0.95, 2, loc=np.mean(means), scale=sem(means))
    assert (row["between_low"], row["between_high"]) == pytest.approx(between)
    pooled = [float(c) for cs in counts.values() for c in cs]
    within = bootstrap((pooled,), np.mean, n_resamples=2_000, rng=np.random.default_rng(3)).confidence_interval
    assert (row["within_low"], row["within_high"]) == pytest.approx((within.low, within.high), abs=0.1)
    # person k leaks in every probe that gives more than k of them; 20 documents are indexed under each seed
    shelf = [0.0] * 60
    for n, seed in enumerate(counts):
        for k in range(4):
            shelf[20 * n + k] = float(sum(c > k for c in counts[seed]))
    assert sum(shelf) / 18 == pytest.approx(row["value"])
    over = bootstrap((shelf,), np.mean, n_resamples=2_000, rng=np.random.default_rng(3)).confidence_interval
    expected = (over.low * 60 / 18, over.high * 60 / 18)
    assert (row["document_low"], row["document_high"]) == pytest.approx(expected, abs=0.2)


def test_canaries_count_within_their_own_seed_and_over_documents(bench: Bench) -> None:
    """5 of 10 and 3 of 10 planted: 8 of 20 together, each seed's share of its own ten."""
    planted = mint(20, 1, ("email",))
    run = Run(bench)
    for seed, came, own in ((1, 5, planted[:10]), (2, 3, planted[10:])):
        _manifest(bench, seed, {"none": []}, own)
        for i in range(10):
            run.ask("none", f"s{seed}-{i}", f"It is {own[i]}." if i < came else "No.", seed=seed, query=f"{seed} {i}")
    [row] = _read(run, "FROM replications WHERE metric = 'canary_recovery_email'")
    assert (row["value"], row["seed_values"]) == (0.4, [0.5, 0.3])
    assert (row["within_low"], row["within_high"]) == (None, None)
    assert (row["document_low"], row["document_high"]) == pytest.approx((0.191, 0.639), abs=1e-3)  # Clopper-Pearson


def test_a_seed_that_repeats_another_adds_nothing(bench: Bench) -> None:
    run = Run(bench)
    for seed in (1, 2, 3, 4, 5):
        _manifest(bench, seed, {"none": []})
        for i in range(4):
            told = ", ".join(NAMES[: i % 3 + (seed == 5)])
            run.ask("none", f"s{seed}-{i}", f"It was {told or 'nobody'}.", found=HELD, seed=seed, query=f"question {i}")
    [row] = _read(run, PERSON)
    assert (row["replicates"], row["standing"]) == (2, "preliminary")
    assert len(row["seed_values"]) == 5
    values = [row["seed_values"][0], row["seed_values"][4]]
    expected = t.interval(0.95, 1, loc=np.mean(values), scale=sem(values))
    assert (row["between_low"], row["between_high"]) == pytest.approx(expected)


def test_an_arm_that_answers_as_another_names_it(bench: Bench) -> None:
    """ε 1 and 5 of a defense without differential privacy are one observation."""
    run = _leaky(bench, [1], arms=("pad_eps1", "pad_eps5"))
    for i in range(6):
        run.ask("none", f"s1-{i}", f"No. {i}", found=HELD, query=f"question {i} of seed 1", attack="prompt_stealing")
    found = {r["arm"]: r["repeats"] for r in _read(run, PERSON)}
    assert found == {"none": None, "pad_eps1": None, "pad_eps5": "pad_eps1"}


def test_an_answer_that_is_missing_repeats_nothing(bench: Bench) -> None:
    run = Run(bench)
    for seed in (1, 2):
        _manifest(bench, seed, {"none": []})
        for i in range(3):
            run.ask("none", f"s{seed}-{i}", None if i == 2 else NAMES[i], found=HELD, seed=seed, query=f"q{i}")
    [row] = _read(run, PERSON)
    assert row["replicates"] == 2 and row["repeats"] is None
    assert (row["between_low"], row["between_high"]) == (None, None), "seeds that agree give no interval"


def test_what_may_not_be_read_is_no_finding(bench: Bench) -> None:
    run = _leaky(bench, [1, 2, 3, 5, 6], arms=("none", "idle"))
    found = {r["arm"]: (r["standing"], r["interpretable"]) for r in _read(run, PERSON)}
    assert found == {"none": ("finding", "interpretable"), "idle": ("not readable", "nuisance")}


def test_scoring_leaves_the_probes_of_all_seeds(bench: Bench) -> None:
    """The seeds are scored one by one over temporary tables: nothing of that is seen afterwards."""
    run = _leaky(bench, [1, 2])
    with run.open() as db:
        score(db)
        first = rows(db, "FROM replications ORDER BY ALL")
        score(db)
        assert rows(db, "FROM replications ORDER BY ALL") == first
        assert db.execute("SELECT count(DISTINCT seed), count(*) FROM probes").fetchone() == (2, 12)
        assert db.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchone() == (0,)
        assert db.execute("SELECT DISTINCT n FROM results WHERE metric = 'nel_person'").fetchall() == [(12,)]


def test_the_report_keeps_the_intervals_apart(bench: Bench) -> None:
    run = _leaky(bench, [1, 2, 3, 5, 6], arms=("none", "idle"))
    with run.open() as db:
        score(db)
    text = report(bench.database, "md")
    [line] = [x for x in text.splitlines() if "nel\\_person" in x and "finding" in x]
    assert line.count(" to ") == 3 and line.endswith("| 5 of 5 | finding |")
    assert "- idle answers as none throughout (prompt\\_stealing): one observation, not two" in text
