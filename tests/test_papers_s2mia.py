"""Tables 1 to 4 from end to end with a model that repeats its prompt, on data sets made here."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from papers_models import Parrot, in_place
from rich.console import Console

import ragtrace
from ragtrace import likelihood
from ragtrace.errors import InputError, UsageError
from ragtrace.likelihood import Passage, TokenLikelihoods
from ragtrace.papers import s2mia as paper
from ragtrace.papers.s2mia import conduct, plan, tables

pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset")
SMALL = replace(paper.Design(), size=4, attacks=paper.PAPER_ATTACKS)


class Constant:
    """Every token of every text is as likely as its place says."""

    name = "constant"

    def score(self, passages: Sequence[Passage]) -> list[TokenLikelihoods]:
        found = []
        for passage in passages:
            values = np.array([-0.1 - 0.01 * (len(w) + i) for i, w in enumerate(passage.text.split())])
            found.append(TokenLikelihoods(values, values - 1, np.ones(len(values)), None))
        return found


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Parrot:
    fill = likelihood.fill
    monkeypatch.setattr(likelihood, "fill", lambda db, run, **told: fill(db, run, Constant(), **told))
    return in_place(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = random.Random(1)
    words = [f"{a}{b}" for a in ("mor", "tel", "vin", "sar", "lun", "pek") for b in ("ado", "ine", "ux", "eth", "om")]

    def text(n: int) -> str:
        return " ".join(rng.choices(words, k=n))

    rows = [
        {"id": str(i), "question": f"what is {text(6)} {i}", "answers": [text(2), text(1)], "passage": None}
        for i in range(60)
    ]
    (tmp_path / "nq.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "nq_extra.jsonl").write_text("")
    rows = [r | {"answer": r["answers"][0], "aliases": r["answers"]} for r in rows]
    (tmp_path / "triviaqa.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def run(out: Path, data: Path, design: paper.Design = SMALL) -> dict[str, dict[tuple[str, ...], list[Any]]]:
    paper.main(design, out, Console(width=300, force_terminal=False), data=data)
    told = json.loads((out / "tables.json").read_text())
    return {t["title"]: {tuple(r["labels"]): r["values"] for r in t["rows"]} for t in told["tables"]}


def test_the_tables_have_the_papers_rows_in_its_order(tmp_path: Path, data: Path, parrot: Parrot) -> None:
    made = run(tmp_path / "out", data)
    first = next(t for title, t in made.items() if title.startswith("Table 1: ROC"))
    assert [label for (label,) in first][:7] == list(tables.METRICS)
    assert first["S2MIA-T",][0]["paper"] == [0.892, 0.877, 0.874, 0.881, 0.884]
    for (label,), values in first.items():
        if not label.startswith("control"):
            assert all(v["note"] != "not run" for v in values), label
    fourth = next(t for title, t in made.items() if title.startswith("Table 4"))
    assert list(fourth) == [
        (d, c) for d in ("Paraphrasing", "Prompt Modifying", "Re-ranking") for c in ("ROC AUC", "PR AUC")
    ]
    assert [v["paper"] for v in fourth["Re-ranking", "PR AUC"]] == [[0.674], [0.663], [0.685], [0.667]]
    second = next(t for title, t in made.items() if title.startswith("Table 2"))
    assert len(second) == 8
    markdown = (tmp_path / "out" / "tables.md").read_text()
    assert "no finding" in markdown and "reference set 4 + 4" in markdown
    assert (tmp_path / "out" / "figure2.svg").read_text().startswith("<?xml")
    with ragtrace.open(tmp_path / "out" / "s2mia.duckdb") as db:
        arms = {a for (a,) in db.execute("SELECT DISTINCT arm FROM probes WHERE attack = 's2mia'").fetchall()}
        assert arms == {"none", "no_retrieval", "without_target", "paraphrase", "prompt_modifying", "rerank"}
        ((members, others),) = db.execute(
            "SELECT count(DISTINCT target_id) FILTER (is_member), count(DISTINCT target_id) FILTER (NOT is_member) "
            "FROM probes WHERE attack = 's2mia' AND run_id LIKE 's2mia-natural%'"
        ).fetchall()
        assert (members, others) == (8, 8)


def test_the_plan_is_an_upper_bound_and_what_is_done_is_not_asked_again(
    tmp_path: Path, data: Path, parrot: Parrot
) -> None:
    design = replace(SMALL, datasets=("natural_questions",), attacks=("s2mia",))
    prepared = conduct.prepare(design, design.cells()[0], data)
    run(tmp_path / "out", data, design)
    calls = len(parrot.calls)
    assert 0 < calls <= plan.cost(prepared.arms, prepared.probes).calls
    run(tmp_path / "out", data, design)
    assert len(parrot.calls) == calls


def test_a_dry_run_asks_and_writes_nothing(tmp_path: Path, data: Path, parrot: Parrot, capsys: Any) -> None:
    paper.main(SMALL, tmp_path / "out", Console(width=300), data=data, dry_run=True)
    assert "at most" in capsys.readouterr().out
    assert not parrot.calls and not (tmp_path / "out").exists()


def test_changed_data_are_not_mixed_in(tmp_path: Path, data: Path, parrot: Parrot) -> None:
    design = replace(SMALL, datasets=("natural_questions",), attacks=("s2mia",), defenses=False)
    run(tmp_path / "out", data, design)
    rows = (data / "nq.jsonl").read_text().replace("what is", "who is")
    (data / "nq.jsonl").write_text(rows)
    with pytest.raises(InputError, match="asked another query"):
        run(tmp_path / "out", data, design)


def test_bad_designs(tmp_path: Path) -> None:
    for changes, says in (
        ({"size": 1}, "size is 1"), ({"datasets": ("nq",)}, "dataset 'nq'"), ({"attacks": ("lost",)}, "attack 'lost'"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            replace(SMALL, **changes)
    with pytest.raises(InputError, match=r"no file 'nq\.jsonl'"):
        paper.main(SMALL, tmp_path, Console(), data=tmp_path / "nowhere", dry_run=True)


def test_published_values_of_table_2_repeat_in_tables_1_and_3() -> None:
    """The paper prints the same run of Llama2-7b in three tables: a check of what was typed."""
    printed = tables.published()
    t = {row[0]: row[1:] for row in printed["table_1"]["roc_auc"]["natural_questions"]}
    assert printed["table_2"]["rows"][0][1:] == printed["table_3"]["rows"][0][1:]
    assert printed["table_2"]["rows"][0][1] == t["S2MIA-T"][0] and printed["table_2"]["rows"][0][3] == t["S2MIA-M"][0]
