"""Corpora read from files: the public data sets (rows made here in their format, and the real ones where they are),
and tables of the user's own.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ragtrace.attacks._targets import draw
from ragtrace.corpora._files import VARIABLE
from ragtrace.corpora._questions import QuestionCorpus
from ragtrace.corpora.base import near_duplicates, split_share
from ragtrace.corpora.nq import NaturalQuestions
from ragtrace.corpora.pubmedqa import PubMedQA
from ragtrace.corpora.table import Table
from ragtrace.corpora.triviaqa import TriviaQA
from ragtrace.errors import InputError, UsageError
from ragtrace.metrics._threshold import halves
from ragtrace.types import Document

ROOT = Path(__file__).parents[1]
REAL = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "data")
here = pytest.mark.skipif(
    not (REAL / "nq.jsonl").is_file(), reason=f"no data sets: set {VARIABLE} to the folder that holds nq.jsonl"
)


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(n: int) -> list[dict[str, Any]]:
    """Rows without a word in common."""
    return [{"question": f"wer{i} was{i} wo{i}?", "answer": f"Straße{i}, größer{i}"} for i in range(n)]


def everything(corpus: Any) -> dict[str, Document]:
    return {d.id: d for d in (*corpus.members, *corpus.non_members)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data sets of six rows in the formats of the real ones."""
    six = rows(6)
    lines(tmp_path / "nq.jsonl", [
        {"id": f"d{i}", "question": r["question"], "answers": [r["answer"], f"alias{i}"],
         "passage": f"passage{i} of words{i}" if i % 2 else None} for i, r in enumerate(six)
    ])  # fmt: skip
    lines(tmp_path / "nq_extra.jsonl", [{"id": "x0", "question": "more words here", "answers": ["yes indeed"]}])
    lines(tmp_path / "triviaqa.jsonl", [
        {"id": f"t{i}", **r, "aliases": [r["answer"], "A B"], "evidence": None} for i, r in enumerate(six)
    ])  # fmt: skip
    lines(tmp_path / "pubmedqa.jsonl", [
        {"pubid": 70 + i, "question": r["question"], "long_answer": r["answer"], "contexts": [f"one{i}", f"two{i}"]}
        for i, r in enumerate(six)
    ])  # fmt: skip
    return tmp_path


def test_the_data_sets_become_documents(folder: Path) -> None:
    nq = everything(NaturalQuestions(folder).build(4, 1, 3))
    assert set(nq) == {*(f"d{i}" for i in range(6)), "x0"}
    assert nq["d2"].content == "wer2 was2 wo2?\nStraße2, größer2"
    assert nq["d2"].metadata == {
        "question": "wer2 was2 wo2?", "answer": "Straße2, größer2", "answers": ["Straße2, größer2", "alias2"]
    }  # fmt: skip
    passages = NaturalQuestions(folder, "passage").build(2, 1, 1)
    assert passages.name == "nq_passage"
    assert {i: d.content for i, d in everything(passages).items()} == {
        f"d{i}": f"passage{i} of words{i}" for i in (1, 3, 5)
    }
    assert "x0" not in everything(NaturalQuestions(folder, extra=False).build(3, 1, 3))
    trivia = everything(TriviaQA(folder, "answer").build(6, 1))
    assert trivia["t3"].content == "Straße3, größer3" and trivia["t3"].metadata["answers"] == [
        "Straße3, größer3",
        "A B",
    ]
    pubmed = everything(PubMedQA(folder).build(6, 1))
    assert pubmed["pubmed-71"].content == "wer1 was1 wo1?\nStraße1, größer1"
    assert "answers" not in pubmed["pubmed-71"].metadata
    assert everything(PubMedQA(folder, "passage").build(6, 1))["pubmed-71"].content == "one1\ntwo1"
    with pytest.raises(UsageError, match=r"no content 'passage'; expected one of question_answer, answer"):
        TriviaQA(folder, "passage")


def test_where_they_are_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(folder))
    assert len(TriviaQA().build(6, 1).members) == 6
    monkeypatch.setenv(VARIABLE, str(folder / "nowhere"))
    with pytest.raises(InputError, match=rf"no file 'triviaqa.jsonl' in .*nowhere.*set {VARIABLE}"):
        TriviaQA().build(1, 1)
    assert len(TriviaQA(folder).build(6, 1).members) == 6, "what is given comes before the variable"


@here
@pytest.mark.parametrize(("source", "documents"), [(NaturalQuestions, 15_936), (TriviaQA, 11_313), (PubMedQA, 1_000)])
def test_the_real_data_sets(source: type[QuestionCorpus], documents: int) -> None:
    corpus = source(REAL).build_share(7)  # type: ignore[call-arg,arg-type]
    found = everything(corpus)
    assert len(found) + corpus.near_duplicates_removed == documents
    assert len(corpus.members) == round(0.8 * len(found))
    assert not near_duplicates([d.content for d in found.values()])
    one = next(iter(found.values()))
    assert one.content == f"{one.metadata['question']}\n{one.metadata['answer']}"
    again = source(REAL).build(50, 7, 50)  # type: ignore[call-arg,arg-type]
    assert set(everything(again)) <= set(found), "ids are the source's"


def test_formats_give_the_same_corpus(tmp_path: Path) -> None:
    given = [r | {"key": f"00{i}", "who": "true" if i % 2 else "0"} for i, r in enumerate(rows(8))]
    given[3]["answer"] = 'one\nwith a "line", and more'
    given[4]["answer"] = "NA"
    lines(tmp_path / "mine.jsonl", given)
    with (tmp_path / "mine.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, given[0])
        writer.writeheader()
        writer.writerows(given)
    parquet.write_table(pa.Table.from_pylist(given), tmp_path / "mine.parquet")
    corpora = [Table(tmp_path / f"mine.{e}", id="key").build(4, 5, 4) for e in ("jsonl", "csv", "parquet")]
    assert corpora[0] == corpora[1] == corpora[2]
    assert corpora[0].name == "mine" and set(everything(corpora[0])) == {f"00{i}" for i in range(8)}
    labelled = [Table(tmp_path / f"mine.{e}", id="key", member="who") for e in ("jsonl", "csv", "parquet")]
    for table in labelled:
        corpus = table.build(3, 5, 4)
        assert {d.id for d in corpus.members} < {"001", "003", "005", "007"} and len(corpus.members) == 3
        assert {d.id for d in corpus.non_members} == {"000", "002", "004", "006"}
    with pytest.raises(InputError, match=r"4 documents labelled members and 4 others .*5 and 0 were asked for"):
        labelled[0].build(5, 1)
    with pytest.raises(UsageError, match="says itself who is a member"):
        labelled[0].build_share(1)


def test_answers_in_a_list_and_rows_without_ids(tmp_path: Path) -> None:
    path = lines(tmp_path / "a b\x1b.jsonl", [{"q": "who wrote it", "a": ["Ann", "A. N."]}, {"q": "when", "a": 1999}])
    corpus = Table(path, "q", "a").build(2, 1)
    assert corpus.name == "a_b_"
    first, second = (everything(corpus)[f"a_b_-00000{i}"] for i in (1, 2))
    assert first.metadata == {"question": "who wrote it", "answer": "Ann", "answers": ["Ann", "A. N."]}
    assert second.content == "when\n1999"


def test_membership_is_decided_by_the_seed_alone(tmp_path: Path) -> None:
    table = Table(lines(tmp_path / "t.jsonl", rows(40)))
    assert table.build(20, 1, 20) == table.build(20, 1, 20) != table.build(20, 2, 20)
    # of 200 seeds, a document is a member in half: five standard deviations are 35
    first = sum("t-000001" in {d.id for d in table.build(5, seed, 5).members} for seed in range(400))
    assert abs(first - 50) < 34, "5 of 40 are members: 50 of 400 expected, six standard deviations"


def test_a_share_of_the_pool_are_members(tmp_path: Path) -> None:
    given = rows(50)
    given[7] = given[3]
    table = Table(lines(tmp_path / "t.jsonl", given))
    corpus = table.build_share(1, 0.8)
    assert (len(corpus.members), len(corpus.non_members), corpus.near_duplicates_removed) == (39, 10, 1)
    assert not {d.id for d in corpus.members} & {d.id for d in corpus.non_members}
    smaller = table.build_share(1, 0.75, size=20)
    assert (len(smaller.members), len(smaller.non_members)) == (15, 5)
    for share in (0.0, 1.0, 0.001, float("nan")):
        with pytest.raises(InputError, match="leaves one side empty"):
            table.build_share(1, share)
    with pytest.raises(InputError, match="leaves one side empty"):
        split_share("x", 1, [Document("a", "a")])


def test_reference_and_evaluation_targets_are_disjoint(tmp_path: Path) -> None:
    corpus = Table(lines(tmp_path / "t.jsonl", rows(200))).build_share(3, 0.8)
    targets = draw(corpus, 3, 60)
    assert len({d.id for d, _ in targets}) == 60, "each target once"
    labels = pa.array([is_member for _, is_member in targets]).to_numpy(zero_copy_only=False)
    reference, evaluation = halves(labels, 0)
    assert (reference ^ evaluation).all() and labels[reference].sum() == labels[evaluation].sum() == 15


def test_near_duplicates_leave_labelled_pools_too(tmp_path: Path) -> None:
    given = [r | {"who": i < 4} for i, r in enumerate(rows(8))]
    table = Table(lines(tmp_path / "t.jsonl", [*given, given[0] | {"who": False}]), member="who")
    corpus = table.build(3, 1, 4)
    assert corpus.near_duplicates_removed == 1
    assert len({d.content for d in everything(corpus).values()}) == 7, "no text on both sides"
    with pytest.raises(InputError, match=r"that are no near duplicates \(1 are\)"):
        table.build(4, 1, 5)


def test_fewer_documents_than_asked_for(tmp_path: Path) -> None:
    table = Table(lines(tmp_path / "t.jsonl", [*rows(5), rows(1)[0]]))
    with pytest.raises(InputError, match=r"t has 5 documents that are no near duplicates \(1 are\); 6 were asked for"):
        table.build(4, 1, 2)
    with pytest.raises(InputError, match="has 0 documents"):
        Table(lines(tmp_path / "none.jsonl", [])).build(1, 1)
    for n, others in ((0, 1), (1, -1)):
        with pytest.raises(InputError, match="expected"):
            table.build(n, 1, others)


def test_duplicate_ids_name_the_first(tmp_path: Path) -> None:
    given = [r | {"id": i} for r, i in zip(rows(4), ("a", "b\x1b[31m", "b\x1b[31m", "a"), strict=True)]
    with pytest.raises(InputError, match=r"has the id 'b\\x1b\[31m' twice") as caught:
        Table(lines(tmp_path / "t.jsonl", given), id="id").build(1, 1)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_missing_column_names_those_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows(2)), path)
    else:
        path.write_text("question,answer\nx,y\n" if suffix == "csv" else json.dumps(rows(1)[0]))
    with pytest.raises(InputError, match=r"has no column 'reply'; it has: 'question', 'answer'"):
        Table(path, answer="reply").build(1, 1)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_empty_texts_are_left_out_and_counted(tmp_path: Path, suffix: str) -> None:
    given = [*rows(3), {"question": "", "answer": "x"}, {"question": "y", "answer": " "}]
    if suffix == "csv":
        (tmp_path / "t.csv").write_text(
            "\n".join(["question,answer", *(f'"{r["question"]}","{r["answer"]}"' for r in given)])
        )
    else:
        lines(tmp_path / "t.jsonl", [*given[:4], {"question": "y", "answer": None}])
    with pytest.warns(UserWarning, match="t: 2 entries without text were left out"):
        assert len(Table(tmp_path / f"t.{suffix}").build(3, 1).members) == 3


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_another_encoding(tmp_path: Path, suffix: str) -> None:
    text = "question,answer\nwo,Straße\n" if suffix == "csv" else '{"question": "wo", "answer": "Straße"}\n'
    (tmp_path / f"t.{suffix}").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"is not UTF-8 .*convert it"):
        Table(tmp_path / f"t.{suffix}").build(1, 1)


@pytest.mark.parametrize("label", ["yes", "", None, 2, 0.5, 1.0, "member"])
def test_labels_that_are_not_boolean(tmp_path: Path, label: Any) -> None:
    path = lines(tmp_path / "t.jsonl", [rows(1)[0] | {"who": True}, rows(2)[1] | {"who": label}])
    with pytest.raises(InputError, match=r"row 2 has .* in column 'who'; expected true, false, 1 or 0"):
        Table(path, member="who").build(1, 1)


@pytest.mark.parametrize(("label", "is_member"), [(True, True), (1, True), ("TRUE", True), ("0", False), (0, False)])
def test_labels_that_are(tmp_path: Path, label: Any, is_member: bool) -> None:
    path = lines(tmp_path / "t.jsonl", [r | {"who": w} for r, w in zip(rows(3), (True, False, label), strict=True)])
    corpus = Table(path, member="who").build(1 + is_member, 1, 2 - is_member)
    assert ("t-000003" in {d.id for d in corpus.members}) is is_member


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("t.jsonl", '{"question": "a", "answer": "b"}\n[1]\n', "line 2 is a list"),
        ("t.jsonl", '{"question": "a"', "line 1 is no JSON"),
        ("t.jsonl", '{"question": {"a": 1}, "answer": "b"}\n', "row 1 has a dict in column 'question'; expected text"),
        ("t.jsonl", '{"question": "a", "answer": true}\n', "row 1 has a bool"),
        ("t.csv", "", "cannot read"),
        ("t.csv", "question,answer\na,b,c\n", "cannot read"),
        ("t.parquet", "no parquet at all", "cannot read"),
    ],
)  # fmt: skip
def test_files_that_are_not_what_they_say(tmp_path: Path, name: str, text: str, what: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=what):
        Table(tmp_path / name).build(1, 1)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_file_that_is_not_there(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing"):
        Table(tmp_path / f"nothing.{suffix}").build(1, 1)


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in '.xlsx'; expected one of .jsonl"):
        Table(tmp_path / "t.xlsx")
    with pytest.raises(UsageError, match="needs the column that holds it"):
        Table(tmp_path / "t.csv", content="passage")
    given = [rows(1)[0] | {"id": None}]
    with pytest.raises(InputError, match="row 1 has no id in column 'id'"):
        Table(lines(tmp_path / "t.jsonl", given), id="id").build(1, 1)
