"""The grid with what is odd, wrong or changed: it goes on where it can, and says what is the matter where not."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from papers_models import Parrot, in_place
from rich.console import Console

import ragtrace
from ragtrace import audit
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.attacks.mi_response import MIResponse
from ragtrace.attacks.prompt_stealing import PromptStealing
from ragtrace.canaries import plant
from ragtrace.corpora import load as corpora
from ragtrace.embedded.pipeline import TOP_K, rag
from ragtrace.errors import InputError
from ragtrace.papers import mind_the_hook as paper
from ragtrace.papers.mind_the_hook import conduct, plan, sources
from ragtrace.score import score
from ragtrace.types import Document

pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset")
SMALL = replace(
    paper.QUICK, corpora=("synthetic_email",), attacks=("prompt_stealing",), queries=2, members=1, non_members=1,
    documents=6, canary_seeds=(), canary_queries=2, canary_documents=3,
)  # fmt: skip


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Parrot:
    monkeypatch.setattr(paper, "_store_witnesses", lambda db: None)  # not what is tried here, and slow
    return in_place(monkeypatch)


def run(out: Path, design: paper.Design = SMALL, **more: Any) -> dict[str, Any]:
    paper.main(design, out, Console(width=300, force_terminal=False), **more)
    found: dict[str, Any] = json.loads((out / "tables.json").read_text())
    return found


def cells(out: Path) -> list[dict[str, str]]:
    with (out / "cells.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_corpus_smaller_than_top_k(tmp_path: Path, parrot: Parrot) -> None:
    run(tmp_path, replace(SMALL, documents=TOP_K - 3, canary_seeds=(1,)))
    assert {c["status"] for c in cells(tmp_path)} == {"done"}
    with ragtrace.open(tmp_path / "mind-the-hook.duckdb") as db:
        [(most,)] = db.execute(
            "SELECT max(n) FROM (SELECT count(*) AS n FROM documents WHERE phase = 'retrieved' "
            "AND run_id <> 'mth-canaries' GROUP BY trace_id)").fetchall()  # fmt: skip
    assert most == TOP_K - 3


def test_empty_documents(tmp_path: Path, parrot: Parrot) -> None:
    """An index with documents of which nothing is left: planted, attacked and scored like the others."""
    drawn = corpora()["synthetic_email"].build(4, 1, non_members=2)
    bare = (Document("", "empty"), Document(" \n ", "blank"))
    planted, canaries = plant((*drawn.members, *bare), ("email",), 1)
    assert {c.document_id for c in canaries} >= {"empty", "blank"}
    corpus = replace(drawn, members=(*planted[:4], *bare), canaries=canaries[:4])
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full")
    try:
        from langchain_core.embeddings import DeterministicFakeEmbedding

        app = rag(corpus.members, parrot, DeterministicFakeEmbedding(size=16), "s")
        probes = [p for a in (PromptStealing(4), CanaryAttack(4), MIResponse(2, 2)) for p in a.probes(corpus, 1)]
        report = audit.run(
            app, plan.Design().defended(1.0, 1), probes, tracing=tracing, canaries=corpus.canaries,
            facts={"members": 6, "seed": 1},
        )  # fmt: skip
    finally:
        tracing.shutdown()
    assert not report.failures
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        score(db)
        found = dict(db.execute(
            "SELECT metric, value FROM results WHERE arm = 'none' AND attack IN ('prompt_stealing', 'canary')"
        ).fetchall())  # fmt: skip
    assert found["canary_recovery_email"] is not None and found["extraction_coverage"] is not None
    assert 0 < found["extraction_coverage"] <= 4 / 6, "a document without words cannot come out"


def test_a_canary_that_is_in_the_corpus_already_is_not_minted_again() -> None:
    drawn = corpora()["synthetic_email"].build(5, 1).members
    once, first = plant(drawn, ("email", "person"), 7)
    twice, second = plant(once, ("email", "person"), 7)
    assert {c.text for c in first}.isdisjoint(c.text for c in second)
    for canary in (*first, *second):
        assert [d.id for d in twice if canary.text in d.content] == [canary.document_id]


def test_a_run_that_cannot_be_made_is_kept_as_cells_with_their_error(tmp_path: Path, parrot: Parrot) -> None:
    """PubMedQA is not there: its six cells say so, the others are done, and once it is there they are made good."""
    design = replace(SMALL, corpora=("pubmedqa", "synthetic_email"))
    told = run(tmp_path, design, data=tmp_path / "nowhere")
    found = cells(tmp_path)
    assert [(c["corpus"], c["status"]) for c in found] == (
        [("pubmedqa", "failed")] * 6 + [("synthetic_email", "done")] * 6
    )
    assert all("pubmedqa" in c["error"] for c in found[:6])
    assert any(note.startswith("error: mth-pubmedqa") for note in told["notes"])
    data = tmp_path / "data"
    data.mkdir()
    (data / "pubmedqa.jsonl").write_text("".join(
        json.dumps({"pubid": i, "question": f"Does {word} help with case {i}?", "contexts": [f"{word}: {i} times."],
                    "long_answer": f"It seems that {word} is of use in {i * 7919} cases."}) + "\n"
        for i, word in enumerate("aspirin rest exercise honey zinc iron water sleep laser massage music light".split())
    ))  # fmt: skip
    calls = len(parrot.calls)
    run(tmp_path, design, data=data)
    assert {c["status"] for c in cells(tmp_path)} == {"done"}
    assert len(parrot.calls) > calls


def test_requests_that_fail_are_cells_with_an_error_and_are_asked_again(
    tmp_path: Path, parrot: Parrot, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = type(parrot)._generate
    monkeypatch.setattr(type(parrot), "_generate", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
    run(tmp_path)
    found = cells(tmp_path)
    assert {(c["status"], c["answered"], c["unanswered"]) for c in found} == {("failed", "0", "2")}
    assert all("ConnectionError" in c["error"] for c in found)
    monkeypatch.setattr(type(parrot), "_generate", whole)
    run(tmp_path)
    assert {(c["status"], c["answered"], c["error"]) for c in cells(tmp_path)} == {("done", "2", "")}


@pytest.mark.parametrize(("module", "part"), [
    ("ragtrace.attacks.prompt_stealing", "code of the attack"),
    ("ragtrace.attacks._anchors", "code of the attack"),  # what the attack imports
    ("ragtrace.papers.pad", "code of the defenses"),
    ("ragtrace.corpora._email_words", "code of the corpora"),
    ("ragtrace.embedded.pipeline", "code of the pipeline"),
])  # fmt: skip
def test_code_that_changed_meanwhile_is_refused_and_named(
    tmp_path: Path, parrot: Parrot, monkeypatch: pytest.MonkeyPatch, module: str, part: str
) -> None:
    database = tmp_path / "t.duckdb"
    [grid_run] = SMALL.runs()
    before = conduct.signature(SMALL, "prompt_stealing")
    tracing = ragtrace.setup(database, capture="full")
    try:
        probes = PromptStealing(1).probes(corpora()["synthetic_email"].build(3, 1), 1)
        audit.run(
            lambda query: "x", [audit.Arm("none")], probes, tracing=tracing, facts={"signature": before},
            resume=audit.Done(grid_run.id),
        )  # fmt: skip
    finally:
        tracing.shutdown()
    own = sources._source
    monkeypatch.setattr(sources, "_source", lambda name: own(name) if name != module else (own(name) or b"") + b"# new")
    sources.digest.cache_clear()
    try:
        after = conduct.signature(SMALL, "prompt_stealing")
        assert {key for key in after if after[key] != before[key]} == {part}
        with ragtrace.open(database) as db, pytest.raises(InputError, match=f"begun with other {part} .*--out"):
            conduct.done(db, grid_run.id, after)
        with ragtrace.open(database) as db:
            assert conduct.done(db, grid_run.id, before).finished == {"none"}
    finally:
        sources.digest.cache_clear()


def test_a_template_pack_is_code_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = sources.digest.__wrapped__("ragtrace.attacks.prompt_manipulation")
    real = sources.files
    (tmp_path / "packs").mkdir()
    for pack in (real("ragtrace.attacks") / "packs").iterdir():
        if pack.name.endswith(".toml"):
            (tmp_path / "packs" / pack.name).write_bytes(pack.read_bytes() + b"\n# new\n")
    monkeypatch.setattr(sources, "files", lambda package: tmp_path)
    assert sources.digest.__wrapped__("ragtrace.attacks.prompt_manipulation") != before
    assert sources.digest.__wrapped__("ragtrace.papers.pad") == sources.digest("ragtrace.papers.pad")


def test_the_recommended_combination_is_an_arm_beside_the_six(tmp_path: Path, parrot: Parrot) -> None:
    """PAD takes identifiers out, LPRAG names and addresses: together they cover what any of the five covers."""
    told = run(tmp_path, replace(SMALL, canary_seeds=(1,)), recommended=True)
    label = "recommended: PAD + LPRAG"
    assert [c["defense"] for c in cells(tmp_path)][-1] == label and len(cells(tmp_path)) == 7
    rows = {(t["title"].partition(":")[0], *r["labels"]): r["values"] for t in told["tables"] for r in t["rows"]}
    assert rows["Table II", label][1]["value"] == 0.0
    assert rows["Table III", "email", label][0]["value"].startswith("0/3")
    assert rows["Table III", "email", "No-Defense"][0]["value"].startswith("3/3")
    with ragtrace.open(tmp_path / "mind-the-hook.duckdb") as db:
        found = db.execute("SELECT DISTINCT defense FROM results WHERE arm = 'recommended'").fetchall()
    assert found == [("pad+lprag",)]
