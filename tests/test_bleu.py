"""BLEU of many pairs at once, against sacrebleu."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.metrics import _bleu

DATA = Path(os.environ.get("RAGTRACE_DATA", Path(__file__).parents[2] / "shared" / "data"))


def by_sacrebleu(pairs: list[tuple[str, str]]) -> np.ndarray:
    return np.array([sacrebleu.sentence_bleu(hypothesis, [reference]).score for hypothesis, reference in pairs])


def real(count: int) -> list[tuple[str, str]]:
    """Pairs that share nothing, a piece, most or all of the texts of three data sets."""
    texts: list[str] = []
    for name in ("nq", "triviaqa", "pubmedqa"):
        if not (DATA / f"{name}.jsonl").exists():
            pytest.skip(f"no {name}.jsonl in {DATA}; set RAGTRACE_DATA")
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").strip().split("\n"):
            row: dict[str, Any] = json.loads(line)
            texts += [v for k, v in row.items() if isinstance(v, str) and k not in ("id", "split")]
    rng = random.Random(0)
    pairs = []
    for i in range(count):
        reference = rng.choice(texts)
        words = reference.split()
        if i % 3 == 0:
            start, end = sorted(rng.choices(range(len(words) + 1), k=2))
            hypothesis = " ".join([*words[start:end], *rng.choice(texts).split()[:4]])
        elif i % 3 == 1:
            hypothesis = " ".join(w for w in words if rng.random() < 0.9)
        else:
            hypothesis = rng.choice(texts)
        pairs.append((hypothesis, reference))
    return pairs


def test_equal_to_sacrebleu_on_real_pairs() -> None:
    pairs = real(10_000)
    found, expected = _bleu.bleu_all(pairs), by_sacrebleu(pairs)
    assert np.abs(found - expected).max() < 1e-9
    assert (found == expected).all()  # to the last bit: what ties there must tie here
    assert 0.5 < (expected > 0).mean() < 1 and len(set(expected)) > 2_500


PIECES = [*"ab5 .,-&;'\n\"$é٣\x00_[]{|}:!<>/", "&quot;", "<skipped>", "-\n", "a "]
ODD = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(st.lists(st.tuples(ODD, ODD), min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_equal_to_sacrebleu_on_odd_texts(pairs: list[tuple[str, str]]) -> None:
    assert _bleu.bleu_all(pairs).tolist() == by_sacrebleu(pairs).tolist()
    assert [_bleu.bleu(*pair) for pair in pairs] == _bleu.bleu_all(pairs).tolist()


@given(st.text(st.sampled_from("a5 .,-&;lt\n-<skiped>é٣'/"), max_size=30))
@settings(max_examples=300, deadline=None)
def test_tokens_are_those_of_sacrebleu(text: str) -> None:
    assert _bleu._tokens(text) == _bleu._scorer()._preprocess_segment(text).split()


def test_no_pairs_and_empty_texts() -> None:
    assert _bleu.bleu_all([]).shape == (0,)
    assert _bleu.bleu_all([("", "a b"), ("a", ""), ("", ""), (" ", "a")]).tolist() == [0, 0, 0, 0]
    assert _bleu.bleu_all([("a b c d", "a b c d")] * 3) == pytest.approx([100] * 3)


@pytest.mark.parametrize("works", [True, False])
def test_processes_give_the_same_and_may_fail(monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    rng = random.Random(1)
    pairs = [(" ".join(rng.choices("abcdefgh", k=9)), " ".join(rng.choices("abcdefgh", k=9))) for _ in range(300)]
    expected = _bleu.bleu_all(pairs)
    monkeypatch.setattr(_bleu, "EACH", 100)
    monkeypatch.setattr(_bleu.os, "cpu_count", lambda: 3)
    started: list[Any] = []
    start = _bleu._start
    monkeypatch.setattr(_bleu, "_start", lambda share: started.append(start(share)) or started[-1])
    if not works:
        monkeypatch.setattr(_bleu.sys, "executable", "/nowhere/python")
    assert (_bleu.bleu_all(pairs) == expected).all()
    assert len(started) == 2 and all((child is not None) is works for child in started)
    assert all(child is None or child.returncode == 0 for child in started)


def test_a_process_that_dies_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(f"a b {i} c", f"a {i} c") for i in range(40_000)]
    expected = _bleu.bleu_all(pairs)
    monkeypatch.setattr(_bleu, "EACH", 20_000)
    monkeypatch.setattr(_bleu.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(_bleu.sys, "executable", "/bin/false")  # ends without reading what it is sent
    assert (_bleu.bleu_all(pairs) == expected).all()
