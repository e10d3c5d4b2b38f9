"""May a number be read? The verdict on each result, and a metric of somebody else's."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from runs import Run
from scipy.stats import fisher_exact
from store_fixtures import Bench

import ragtrace
from ragtrace.errors import UsageError
from ragtrace.metrics import load
from ragtrace.metrics.base import Result, Score
from ragtrace.score import check_packages, score
from ragtrace.types import HOOKS


class Fixed:
    """A metric whose results a test gives, one for each arm."""

    name = "fixed"
    channel = "response"
    moved_by: tuple[Any, ...] = ("content", "response")
    observes = "what the test says"

    def __init__(self, *results: Result, **declared: Any) -> None:
        self._results = results
        vars(self).update(declared)

    def scores(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Score]:
        return []

    def results(self, db: duckdb.DuckDBPyConnection, run_id: str) -> list[Result]:
        return list(self._results)


def number(
    arm: str, value: float | None = 0.4, low: float | None = 0.3, high: float | None = 0.5, **more: Any
) -> Result:
    return replace(Result("r", arm, "canary", "c", "fixed", value, low, high, 4, "1", {}), **more)


def read(run: Run, *results: Result, **declared: Any) -> dict[str, tuple[str, str, str | None]]:
    """arm → (interpretable, reason, path of effect)."""
    with run.open() as db:
        score(db, metrics=[Fixed(*results, **declared)])
        rows = db.execute("SELECT arm, interpretable, reason, path_of_effect FROM results").fetchall()
    return {arm: (readable, reason, path) for arm, readable, reason, path in rows}


def twins(run: Run, arm: str, hook: str | None, answers: list[tuple[str, str]], attack: str = "canary") -> None:
    """(undefended, defended) answers; the arm's defense, named like the arm, changes something at ``hook``."""
    for i, (plain, defended) in enumerate(answers):
        run.ask("none", f"p{i}", plain, attack=attack)
        run.ask(arm, f"p{i}", defended, [(arm, hook)] if hook else [], attack=attack)


@pytest.mark.parametrize("hook, expected", [
    ("query", "retrieval"), ("retrieval", "retrieval"), ("content", "retrieval"), ("prompt", "generation"),
    ("response", "generation"), (None, None),
])  # fmt: skip
def test_the_path_of_the_effect(bench: Bench, hook: str | None, expected: str | None) -> None:
    run = Run(bench, {"none": [], "d": ["d"]})
    twins(run, "d", hook, [("a", "b")])
    found = read(run, number("none"), number("d"))
    assert (found["none"][2], found["d"][2]) == (None, expected)


def test_an_effect_on_both_paths(bench: Bench) -> None:
    run = Run(bench, {"none": [], "d": ["one", "two"]})
    run.ask("none", "p", "a")
    run.ask("d", "p", "b", [("one", "query"), ("two", "response"), ("Reranker", "retrieval")])
    readable, reason, path = read(run, number("d"))["d"]
    assert (readable, path) == ("interpretable", "both")
    assert "acts at response" in reason


def test_indirect_says_in_how_many_probes_and_through_which_hook(bench: Bench) -> None:
    run = Run(bench, {"none": [], "d": ["d"]})
    twins(run, "d", "retrieval", [("a", "b"), ("c", "c"), ("e", "f")])
    run.ask("none", "other", "x", attack="benign")
    run.ask("d", "other", "y", [("d", "retrieval")], attack="benign")  # another attack's probe does not count here
    readable, reason, _ = read(run, number("d"))["d"]
    assert readable == "indirect"
    assert reason == (
        "acts only at retrieval, not where this metric may be moved (content, response); "
        "the answer differs from the undefended one in 2 of 3 probes: in 2 through retrieval"
    )


def test_nuisance_where_the_answer_was_changed_at_the_response_itself(bench: Bench) -> None:
    run = Run(bench, {"none": [], "d": ["d"]})
    twins(run, "d", "response", [("a", "b"), ("c", "c")])
    readable, reason, _ = read(run, number("d"), channel="retrieval", moved_by=("query", "retrieval", "content"))["d"]
    assert readable == "nuisance"
    assert "in 1 of 2 probes: in 1 directly at response" in reason


def test_nuisance_where_nothing_acted_or_nothing_changed(bench: Bench) -> None:
    run = Run(bench, {"none": [], "still": ["still"], "d": ["d"]})
    twins(run, "still", None, [("a", "b")])
    run.ask("d", "p0", "a", [("d", "prompt")])
    found = read(run, number("still"), number("d"))
    assert found["still"][0] == found["d"][0] == "nuisance"
    assert "was not seen to act at any hook" in found["still"][1]
    assert "in 1 although no defense changed anything" in found["still"][1]
    assert "equals the undefended one in all of 1 probes" in found["d"][1]


@pytest.mark.parametrize("changed, indirect", [(20, True), (6, False)])
def test_what_repeats_of_the_undefended_arm_do_too_is_no_effect(bench: Bench, changed: int, indirect: bool) -> None:
    run = Run(bench, {"none": [], "d": ["d"]})
    for i in range(20):
        run.ask("none", f"p{i}", f"first {i}" if i < 5 else f"{i}")  # 5 of 20 pairs of repeats differ
        run.ask("none", f"p{i}", f"{i}")
        run.ask("d", f"p{i}", f"other {i}" if i < changed else f"{i}", [("d", "retrieval")])
    readable, reason, _ = read(run, number("d"))["d"]
    p = float(fisher_exact([[changed, 20 - changed], [5, 15]], alternative="greater").pvalue)
    assert (p < 0.05) is indirect
    assert readable == ("indirect" if indirect else "nuisance")
    assert "repeats of the undefended arm differ in 5 of 20 pairs" in reason
    assert f"in {changed} of 20 probes" in reason
    assert ("no more often than without a defense" in reason) is not indirect
    assert indirect or f"p = {p:.2g}" in reason


def test_two_questions_of_one_probe_are_no_repeats(bench: Bench) -> None:
    run = Run(bench, {"none": [], "d": ["d"]})
    for arm in ("none", "d"):
        run.ask(arm, "p", "hello", query="hello?")
        run.ask(arm, "p", f"answer in {arm}", [("d", "retrieval")] if arm == "d" else [], query="why?")
    readable, reason, _ = read(run, number("d"))["d"]
    assert readable == "indirect" and "repeats" not in reason


REVERSED = {"value": 0.2, "ci_low": 0.1, "ci_high": 0.4}


@pytest.mark.parametrize("arm, hook, expected", [
    ("none", None, "reversal"), ("d", "response", "reversal"), ("d", "retrieval", "indirect"), ("d", None, "nuisance"),
])  # fmt: skip
def test_a_reversal_is_named_and_the_channel_comes_first(
    bench: Bench, arm: str, hook: str | None, expected: str
) -> None:
    run = Run(bench, {"none": [], "d": ["d"]})
    twins(run, "d", hook, [("a", "b")])
    readable, reason, _ = read(run, number(arm, **REVERSED), chance=0.5)[arm]
    assert readable == expected
    assert "reversal: the whole interval lies below chance (0.5); an attacker who flips the sign has 0.800" in reason


def test_a_metric_that_knows_its_reversal_says_it(bench: Bench) -> None:
    run = Run(bench, {"none": []})
    run.ask("none", "p", "a")
    found = read(run, number("none", reversal="it is the other way round"))
    assert found["none"][:2] == ("reversal", "reversal: it is the other way round; the undefended baseline")


@pytest.mark.parametrize("high, chance", [(0.5, 0.5), (0.9, 0.5), (None, 0.5), (0.4, None)])
def test_no_reversal(bench: Bench, high: float | None, chance: float | None) -> None:
    run = Run(bench, {"none": []})
    run.ask("none", "p", "a")
    readable, reason, _ = read(run, number("none", high=high), chance=chance)["none"]
    assert readable == "interpretable" and "reversal" not in reason


def test_no_data_comes_before_everything(bench: Bench) -> None:
    run = Run(bench, {"none": [], "d": ["d"]}, constants={"d": ["John Doe"]})
    twins(run, "d", None, [("a", "b")])
    found = read(run, number("d", None, reason="no data: none"), types=("PERSON_NAME",), chance=0.5)
    assert found["d"][:2] == ("no data", "no data: none")


def test_entangled_comes_before_reversal(bench: Bench) -> None:
    run = Run(bench, {"none": [], "d": ["d"]}, constants={"d": ["John Doe"]})
    twins(run, "d", "response", [("a", "b")])
    assert read(run, number("d", **REVERSED), types=("PERSON_NAME",), chance=0.5)["d"][0] == "entangled"


def test_an_arm_of_the_audit_without_a_defense(bench: Bench) -> None:
    run = Run(bench, {"none": [], "again": []})
    run.ask("none", "p", "a")
    run.ask("again", "p", "a")
    assert read(run, number("again"))["again"] == ("interpretable", "an arm without a defense", None)


def test_without_a_manifest_the_ledger_says_what_an_arm_is(bench: Bench) -> None:
    run = Run(bench)
    run.ask("none", "p", "a", [("Reranker", "retrieval")])
    run.ask("guarded", "p", "b", [("Reranker", "retrieval"), ("mask", "response")])
    with run.open() as db:
        score(db, metrics=[Fixed(number("guarded"))])
        found = db.execute("SELECT defense, interpretable, path_of_effect FROM results").fetchall()
    assert found == [("mask", "interpretable", "generation")]


# --- metrics of others ------------------------------------------------------------------------------------------------

PLUGIN = """
from ragtrace.metrics.base import Result


class Length:
    name = "answer_length"
    channel = "response"
    moved_by = {moved_by}
    observes = "how long the answers are"

    def scores(self, db, run_id):
        return []

    def results(self, db, run_id):
        rows = db.execute(
            "SELECT p.arm, p.attack, avg(length(g.response)), count(*) "
            "FROM probes p JOIN generations g USING (trace_id) WHERE p.run_id = ? GROUP BY ALL ORDER BY ALL", [run_id]
        ).fetchall()
        return [Result(run_id, arm, attack, "c", self.name, v, None, None, n, "1", {{}}) for arm, attack, v, n in rows]


METRIC = Length()
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a distribution with one metric: a file, and the entry point that names it."""

    def install(moved_by: str) -> None:
        folder = tmp_path / "site"
        info = folder / "length-1.dist-info"
        info.mkdir(parents=True)
        (folder / "length_metric.py").write_text(PLUGIN.format(moved_by=moved_by))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: length\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[ragtrace.metrics]\nlength = length_metric:METRIC\n")
        monkeypatch.syspath_prepend(str(folder))

    yield install
    sys.modules.pop("length_metric", None)


def test_one_file_with_its_channels_is_enough_to_be_judged(bench: Bench, plugin: Any) -> None:
    plugin("('prompt', 'response')")
    run = Run(bench, {"none": [], "mask": ["mask"], "dp": ["dp"]})
    twins(run, "mask", "response", [("long answer", "short")])
    run.ask("dp", "p0", "longer answer", [("dp", "retrieval")])
    with run.open() as db:
        score(db)
        found = db.execute(
            "SELECT arm, value, channel, interpretable, path_of_effect FROM results WHERE metric = 'answer_length' "
            "ORDER BY arm"
        ).fetchall()
    assert found == [
        ("dp", 13.0, "response", "indirect", "retrieval"),
        ("mask", 5.0, "response", "interpretable", "generation"),
        ("none", 11.0, "response", "interpretable", None),
    ]


@pytest.mark.parametrize("moved_by", ["('reponse',)", "()", "'response'", "None", "5"])
def test_a_metric_that_does_not_say_what_moves_it_is_left_out(plugin: Any, moved_by: str) -> None:
    plugin(moved_by)
    with pytest.warns(UserWarning, match=r"metric 'answer_length' left out: moved_by = .*query, retrieval, content"):
        assert "answer_length" not in load()


def test_every_metric_declares_its_channel() -> None:
    metrics = load()
    assert {"canary_recovery_email", "nel_strict", "s2mia_roc_auc", "utility_bleu_to_undefended"} <= set(metrics)
    for name, metric in metrics.items():
        assert metric.channel in HOOKS, name
        assert metric.moved_by and set(metric.moved_by) <= set(HOOKS), name
        assert len(metric.observes.split()) >= 5, name
    chances = {n: c for n, m in metrics.items() if (c := getattr(m, "chance", None)) is not None}
    assert {"bleu_roc_auc", "perplexity_roc_auc", "s2mia_roc_auc"} <= set(chances)
    assert set(chances.values()) == {0.5} and all(name.endswith("_roc_auc") for name in chances)


def test_a_database_of_before_gains_the_columns_and_keeps_its_rows(bench: Bench) -> None:
    with bench.open() as db:
        for column in ("path_of_effect", "certified", "certificate"):
            db.execute(f"ALTER TABLE result_data DROP COLUMN {column}")
        db.execute("INSERT INTO result_data (run_id, metric, value) VALUES ('r', 'm', 0.5)")
        db.execute("UPDATE ragtrace_meta SET value = 'old' WHERE key = 'definitions'")
    with ragtrace.open(bench.database) as db:
        found = db.execute("SELECT run_id, value, path_of_effect, certified, certificate FROM results").fetchall()
    assert found == [("r", 0.5, None, None, None)]


def test_metrics_are_listed_without_numpy() -> None:
    """`ragtrace battery` joins defenses with what metrics observe, and needs no statistics for it."""
    script = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "scipy", "sklearn", "sacrebleu"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from ragtrace.metrics import load
print(len(load()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100


def test_what_scoring_needs_is_asked_for_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("ragtrace.score.find_spec", lambda name: None if name == "scipy" else real(name))
    with pytest.raises(UsageError, match=r"scoring needs the package 'scipy'.*ragtrace-audit\[audit\]"):
        check_packages()
