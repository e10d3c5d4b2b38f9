"""``ragtrace canary``: minted, planted in a file, found again in files and traces."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from pipelines import lcel
from typer.testing import CliRunner, Result

import ragtrace
from ragtrace import canary_files
from ragtrace.cli import app
from ragtrace.errors import InputError, UsageError


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["canary", *words])


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    file = tmp_path / "docs.jsonl"
    rows = [{"id": f"d{i}", "text": f"The first sentence of {i}. And the second one.", "kept": i} for i in range(4)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return file


def test_mint_is_seeded() -> None:
    first = run("mint", "--family", "email", "--count", "3", "--seed", "7")
    assert first.exit_code == 0
    assert len(set(first.stdout.split())) == 3 and "@" in first.stdout
    assert run("mint", "--family", "email", "--count", "3", "--seed", "7").stdout == first.stdout
    assert isinstance(run("mint", "--family", "emial").exception, UsageError)


def test_planted_and_found_in_files(tmp_path: Path, documents: Path) -> None:
    out, kept = tmp_path / "out.jsonl", tmp_path / "canaries.jsonl"
    done = run("plant", str(documents), "--out", str(out), "--canaries", str(kept), "--family", "id")
    assert done.exit_code == 0 and "4 canaries planted" in done.stdout
    assert {stat.S_IMODE(f.stat().st_mode) for f in (out, kept)} == {0o600}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    planted = canary_files.read_canaries(kept)
    assert [(r["id"], r["kept"]) for r in rows] == [(f"d{i}", i) for i in range(4)]
    assert all(c.text in r["text"] for c, r in zip(planted, rows, strict=True))
    clean, leaky = tmp_path / "clean.log", tmp_path / "leaky.log"
    clean.write_text("nothing\n")
    leaky.write_text(f"a line\nsaid: {planted[2].text}\n")
    assert run("scan", str(clean), "--canaries", str(kept)).exit_code == 0
    found = run("scan", str(clean), str(leaky), "--canaries", str(kept), "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout) == [{"canary": planted[2].text, "family": "id", "where": f"{leaky}:2"}]


def test_found_in_the_traces_of_ordinary_traffic(tmp_path: Path, documents: Path) -> None:
    out, kept, db = tmp_path / "out.jsonl", tmp_path / "canaries.jsonl", tmp_path / "t.duckdb"
    run("plant", str(documents), "--out", str(out), "--canaries", str(kept))
    secret = canary_files.read_canaries(kept)[0].text
    tracing = ragtrace.setup(db, capture="full")
    lcel().invoke(f"who is {secret}?")
    tracing.shutdown()
    assert run("scan", "--db", str(db)).exit_code == 0, "of this store's audits none was planted"
    found = run("scan", "--db", str(db), "--canaries", str(kept), "--json")
    assert found.exit_code == 1
    assert {(h["canary"], h["where"].split()[0]) for h in json.loads(found.stdout)} >= {(secret, "response")}


def test_nothing_is_written_over_and_bad_input_is_told(tmp_path: Path, documents: Path) -> None:
    out, kept = tmp_path / "out.jsonl", tmp_path / "canaries.jsonl"
    kept.write_text("mine")
    failed = run("plant", str(documents), "--out", str(out), "--canaries", str(kept))
    assert isinstance(failed.exception, InputError) and "is there already" in str(failed.exception)
    assert kept.read_text() == "mine" and not out.exists()
    documents.write_text('{"id": "x", "body": "no text"}\n')
    with pytest.raises(InputError, match="row 1 has no text"):
        canary_files.plant_file(documents, out, tmp_path / "new", ["email"], 0)
    assert list(tmp_path.glob(".*.tmp")) == []
    with pytest.raises(InputError, match="expected text, family"):
        canary_files.read_canaries(documents)
    for words in ((), (str(out),)):
        assert isinstance(run("scan", *words).exception, UsageError)
