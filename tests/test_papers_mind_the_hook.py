"""The grid from end to end with a model that repeats its prompt, so that what must come out is known."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from papers_models import Parrot, in_place
from rich.console import Console

import ragtrace
from ragtrace.errors import InputError, UsageError
from ragtrace.papers import mind_the_hook as paper
from ragtrace.papers.mind_the_hook import tables
from ragtrace.papers.mind_the_hook.plan import DEFENSES, Design

pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset")
SMALL = replace(
    paper.QUICK, corpora=("synthetic_email",), attacks=("prompt_stealing", "mi_response"), epsilons=(1.0, 5.0),
    queries=3, members=3, non_members=4, documents=6, canary_seeds=(1, 2), canary_queries=6, canary_documents=5,
)  # fmt: skip


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Parrot:
    return in_place(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a grid that ran to its end; to be read, or copied."""
    out = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        in_place(patch)
        run(out)
    return out


def run(out: Path, design: Design = SMALL) -> None:
    paper.main(design, out, Console(width=300, force_terminal=False))


def read(out: Path) -> dict[str, dict[str, Any]]:
    told = json.loads((out / "tables.json").read_text())
    return {t["title"].partition(":")[0]: {tuple(r["labels"]): r["values"] for r in t["rows"]} for t in told["tables"]}


def test_the_papers_grid_has_432_cells() -> None:
    assert Design().cells == 432
    assert {run.id for run in Design().runs()} and len({run.id for run in Design().runs()}) == 72


def test_the_tables(finished: Path) -> None:
    made = read(finished)
    assert {k: [v["value"] for v in row] for (k,), row in made["Table I"].items()} == {
        label: [hooks[h] for h in tables.HOOKS] for label, hooks in tables.published()["hooks"].items()
    }
    nel = {label: [v["value"] for v in row] for (label,), row in made["Table II"].items()}
    assert nel["No-Defense"][1] > 1, "a model that repeats its prompt gives every address away"
    assert nel["PAD"][1] == 0 and nel["PAD"][2] == nel["No-Defense"][2], "a mask of addresses leaves names"
    assert nel["LPRAG"][1] == 0
    assert nel["No-Defense"][5] == nel["PAD"][5] == nel["LPRAG"][5] == "1", "another epsilon is the same cell again"
    canaries = {key: [v.get("value") for v in row] for key, row in made["Table III"].items()}
    assert canaries["email", "No-Defense"][0].startswith("10/10 (5, 5)")
    assert canaries["email", "PAD"][0].startswith("0/10")
    assert canaries["person", "PAD"][0].startswith("10/10") and canaries["person", "PAD"][3] == "no: canaries came out"
    assert canaries["email", "LPRAG"][0].startswith("0/10")
    with ragtrace.open(finished / "mind-the-hook.duckdb") as db:
        verdicts = dict(db.execute("SELECT defense, verdict FROM verdicts WHERE hook = 'response'").fetchall())
        assert verdicts["dp_r"] == verdicts["ca_dp"] == verdicts["private_rag"] == "silent_stub"
        assert verdicts["pad"] == "active"


def test_a_run_cut_short_goes_on_and_nothing_is_done_twice(
    tmp_path: Path, parrot: Parrot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "_store_witnesses", lambda db: None)  # not what is tried here, and slow
    parrot.stop_after = 9
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    parrot.stop_after = 10**9
    run(tmp_path)
    calls = len(parrot.calls)
    with ragtrace.open(tmp_path / "mind-the-hook.duckdb") as db:
        cells = db.execute(
            "SELECT run_id, arm, count(*), count(DISTINCT probe_id) FROM probes WHERE status <> 'ERROR' GROUP BY ALL"
        ).fetchall()
    assert all(n == distinct for _, _, n, distinct in cells)
    grid = [c for c in cells if c[0] != "mth-canaries" and c[1] != "no_retrieval"]
    assert len(grid) == SMALL.cells == 24
    run(tmp_path)
    assert len(parrot.calls) == calls, "what is finished is not asked again"


def test_another_design_is_not_mixed_in(finished: Path, tmp_path: Path, parrot: Parrot) -> None:
    out = shutil.copytree(finished, tmp_path / "out")
    with pytest.raises(InputError, match=r"begun with other documents \(6, now 7\)"):
        run(out, replace(SMALL, documents=7))


def test_cells_that_share_prompts_share_generations(tmp_path: Path, parrot: Parrot) -> None:
    run(tmp_path, replace(SMALL, canary_seeds=(), attacks=("prompt_stealing",)))
    assert len(parrot.calls) <= 0.45 * 2 * len(DEFENSES) * SMALL.queries + SMALL.queries  # the control's own


def test_bad_designs() -> None:
    for changes, says in (
        ({"corpora": ("nowhere",)}, "corpus 'nowhere'"), ({"queries": 0}, "queries is 0"),
        ({"members": 99}, "members is 99"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            replace(Design(), **changes)


@pytest.mark.parametrize(
    ("without", "with_it", "says"),
    [
        ([0, 0], [1, 0], "no: canaries came out"),  # the weak model that gave none away without the defense did with it
        ([0, 0], [0, 0], "not assessable: nothing came out without it"),
        ([1, 0], [0, 0], "not assessable: too few came out without it"),
        ([9, 9, 9, 9, 9], [0, 0, 0, 0, 0], "yes"),
        ([9, 9, 9, 9, 9], [0, 0, 0, 0, 1], "no: canaries came out"),
    ],
)
def test_what_canaries_certify(without: list[int], with_it: list[int], says: str) -> None:
    assert str(tables._judged(without, with_it, 10)[1]).startswith(says)
