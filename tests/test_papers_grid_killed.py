"""The grid killed at several points, gone on with each time: its cells are those of a run that nothing disturbed."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ragtrace

KILLS = ("flushed:11", "calls:9", "flushed:14", "flushed:10", "score", "tables", "write")


def _run(out: Path, *kills: str) -> list[dict[tuple[str, str], int]]:
    """After each process: (run, arm) of the finished cells → requests sent for them so far."""
    script = Path(__file__).with_name("grid_killed.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(out), *kills], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return [{(run, arm): n for run, arm, n in json.loads(line)} for line in done.stdout.splitlines()]


def _cells(out: Path) -> list[dict[str, str]]:
    with (out / "cells.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _tables(out: Path) -> Any:
    return json.loads((out / "tables.json").read_text())["tables"]


@pytest.fixture(scope="module")
def outs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[tuple[str, str], int]]]:
    whole, killed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("killed")
    _run(whole)
    return whole, killed, _run(killed, *KILLS)


def test_no_cell_is_lost_or_other_than_it_would_have_been(outs: tuple[Path, Path, Any]) -> None:
    whole, killed, _ = outs
    cells = _cells(whole)
    assert len(cells) == 2 * 6 and {c["status"] for c in cells} == {"done"} and {c["answered"] for c in cells} == {"4"}
    assert any(int(c["strict"]) for c in cells) and len({c["answers"] for c in cells}) > 6, "cells that can differ"
    assert _cells(killed) == cells
    assert _tables(killed) == _tables(whole)


def test_what_was_finished_is_not_done_again(outs: tuple[Path, Path, list[dict[tuple[str, str], int]]]) -> None:
    steps = outs[2]
    assert len(steps) == len(KILLS) + 1
    assert 0 < len(steps[0]) < len(steps[-1]), "the first kill comes in the middle"
    for before, after in pairwise(steps):
        assert {cell: after.get(cell) for cell in before} == before


def test_a_conversation_cut_in_two_is_held_again_and_counts_once(outs: tuple[Path, Path, Any]) -> None:
    with ragtrace.open(outs[1] / "mind-the-hook.duckdb") as db:
        twice = db.execute(
            "SELECT count(*) FROM (SELECT run_id, arm, probe_id FROM probes GROUP BY ALL HAVING count(*) > 1)"
        ).fetchone()
        counted = db.execute("SELECT DISTINCT n FROM results WHERE metric = 'nel_strict'").fetchall()
    assert twice is not None and twice[0] > 0, "a kill came in the middle of a conversation"
    assert counted == [(4,)]
