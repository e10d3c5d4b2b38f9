"""The grid cell by cell, errors kept as cells: what was asked, what failed, and each cell's numbers."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.papers.mind_the_hook.leaks import LAST
from ragtrace.papers.mind_the_hook.plan import MI, Design
from ragtrace.report.terminal import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from ragtrace.papers.mind_the_hook.leaks import Cell, Leaks

_ASKED = """
SELECT run_id, arm, count(*) FILTER (answered), count(*) FILTER (NOT answered)
FROM (SELECT run_id, arm, probe_id, bool_or(status <> 'ERROR') AS answered FROM probes GROUP BY ALL) GROUP BY ALL
"""
_ENDED = "SELECT DISTINCT run_id, arm FROM own_spans WHERE attributes->>'ragtrace.arm.done' = 'true'"
_ANSWERS = f"""
WITH {LAST} SELECT run_id, arm, left(md5(list((probe_id, response_hash) ORDER BY probe_id)::VARCHAR), 12)
FROM last GROUP BY ALL
"""  # noqa: S608 (a constant)
_AUC = "SELECT run_id, arm, value FROM results WHERE metric = 'mi_response_roc_auc'"


class Failure(NamedTuple):
    """What went wrong in an arm, or (``None``) in all of them."""

    arm: str | None
    error: str


class Line(NamedTuple):
    """One of the 432 cells. ``status``: done, failed (with ``error``), incomplete or not run.

    ``repeats``: every answer equals that of the same cell under another ε, so the tables count the two once.
    ``answers`` is a digest of the responses, equal where two cells answered alike.
    """

    corpus: str
    attack: str
    mode: str
    epsilon: float
    seed: int
    defense: str
    status: str
    answered: int
    unanswered: int
    strict: int | None
    email: int | None
    person: int | None
    echoes: int | None
    known: int | None
    repeats: bool
    answers: str
    mi_auc: float | None
    error: str


def cells(
    db: duckdb.DuckDBPyConnection, design: Design, leaks: Leaks, errors: Mapping[str, Sequence[Failure]]
) -> list[Line]:
    """Every cell of the design, in its order.

    :param errors: run → what failed in it, this time.
    """
    asked = {(run, arm): counts for run, arm, *counts in db.execute(_ASKED).fetchall()}
    ended = set(db.execute(_ENDED).fetchall())
    runs = {"runs": [run.id for run in design.runs()]}
    said = {(run, arm): digest for run, arm, digest in db.execute(_ANSWERS, runs).fetchall()}
    areas: dict[Any, float | None] = {(run, arm): value for run, arm, value in db.execute(_AUC).fetchall()}
    found = []
    for run in design.runs():
        for label, arm in design.labels.items():
            key = (run.id, arm)
            answered, unanswered = asked.get(key, (0, 0))
            failed = [f.error for f in errors.get(run.id, ()) if f.arm in (None, arm)]
            if unanswered or (failed and not answered):
                status = "failed"
            else:
                status = "done" if key in ended else "incomplete" if answered else "not run"
            cell = leaks.all.get(key) if run.attack != MI else None
            where = (run.corpus, run.attack, run.mode, run.epsilon, run.seed, label)
            error = "; ".join(failed[:3]) if status == "failed" else ""
            repeats = bool(cell and cell.repeats)
            found.append(
                Line(
                    *where,
                    status,
                    answered,
                    unanswered,
                    *_numbers(cell),
                    repeats,
                    said.get(key, ""),
                    areas.get(key),
                    error,
                )
            )
    return found


def _numbers(cell: Cell | None) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    if cell is None:
        return None, None, None, None, None
    return cell.count("strict"), cell.count("email"), cell.count("person"), cell.echoes, cell.known


def to_csv(lines: Sequence[Line]) -> str:
    """For a spreadsheet; an error's text is shown as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Line._fields)
    writer.writerows(line._replace(error=harmless(line.error).lstrip("=+-@")) for line in lines)
    return out.getvalue()
