"""Attacks in production traffic, from stored traces alone: without probes, without ground truth.

:func:`detect` looks at each session that has new traces: the signals of its requests (``signals/``, one file each) make
a score (:mod:`.scoring`), which stands with its reasons in the view ``suspicions``. A session is what the view
``sessions`` says: a conversation, a session, a user's day, else one trace. Without such ids there is little to see: set
them.

What a score is not: proof. It says that somebody should read these traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ragtrace.detection import habits as usages
from ragtrace.detection.reading import LONGEST, TRACES, Place, Scratch, batches
from ragtrace.detection.scoring import THRESHOLD, Judgement, judge
from ragtrace.detection.session import Habits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

_SEEN, _HABITS = "detected_to", "detection_habits"  # in ragtrace_meta
_GROWN = 1.2  # how many times the sessions that the habits were read from, before they are read again
_JUDGED = pa.schema([
    ("session", pa.string()), ("score", pa.float64()), ("threshold", pa.float64()), ("reasons", pa.list_(pa.string())),
    ("signals", pa.string()), ("requests", pa.int64()), ("trace_id", pa.string()),
])  # fmt: skip
_META = "SELECT max(value) FROM ragtrace_meta WHERE key = ?"
_FRESH = """
SELECT trace_id, '' AS session, min(rowid) AS first, max(rowid) AS last FROM span_data
WHERE trace_id IN (SELECT trace_id FROM span_data WHERE rowid > ?) GROUP BY trace_id ORDER BY first, trace_id
"""
_CHOSEN = "SELECT unnest($sessions::VARCHAR[]) AS session"
_SAMPLED = "SELECT DISTINCT session FROM session_trace_data ORDER BY md5(session), session LIMIT $sample"
# Sessions by their first row, so that a batch is read from as few places of the table as can be.
_PLACES = """
WITH latest AS (
    SELECT trace_id, session FROM session_trace_data WHERE session IN (SELECT session FROM ({chosen}))
    QUALIFY row_number() OVER (PARTITION BY session ORDER BY start_ns DESC NULLS LAST, trace_id DESC) <= $longest
), placed AS (
    SELECT s.trace_id, l.session, min(s.rowid) AS first, max(s.rowid) AS last
    FROM span_data s JOIN latest l USING (trace_id) GROUP BY ALL
)
SELECT * FROM placed ORDER BY min(first) OVER (PARTITION BY session), session, trace_id
"""
_ONE_OF_A_LONG_ONE = """
SELECT session, score FROM detection_data WHERE score IS NOT NULL AND session IN (
    SELECT session FROM session_trace_data WHERE session IN (SELECT unnest($sessions::VARCHAR[]))
    GROUP BY session HAVING count(*) > $longest
)
"""
_FOUND = """
SELECT session, score, suspicious, reasons, requests, first_trace, last_trace, trace_id
FROM suspicions WHERE suspicious OR $all ORDER BY score DESC NULLS LAST, session
"""


class Suspicion(NamedTuple):
    """A row of the view ``suspicions``."""

    session: str
    score: float | None
    suspicious: bool | None
    reasons: list[str]
    requests: int
    first_trace: str
    last_trace: str
    trace_id: str | None


def detect(db: duckdb.DuckDBPyConnection, again: bool = False) -> int:
    """Looks at the sessions that have traces not seen before; returns how many. Stopped half-way, it is done again.

    Of a session that goes on for long, the latest 200 traces are looked at, and the highest score that it ever had
    stays.

    :param again: at all sessions, as if none had been looked at.
    """
    [(last,)] = db.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    seen = -1 if again else int(_meta(db, _SEEN) or -1)
    if seen == last:
        return 0
    if seen > last:  # the database was written anew (`ragtrace compact`)
        seen = -1
    fresh = db.execute(_FRESH, [seen]).fetchall()
    with Scratch(db) as scratch:
        touched: set[str] = set()
        for at in range(0, len(fresh), TRACES):
            touched |= _learn(db, scratch, fresh[at : at + TRACES])
        habits = _habits(db, scratch, again)
        names = {"sessions": sorted(touched), "longest": LONGEST}
        kept = dict(db.execute(_ONE_OF_A_LONG_ONE, names).fetchall())
        for part in batches(db.execute(_PLACES.format(chosen=_CHOSEN), names).fetchall()):
            judged = [judge(session, habits) for session in scratch.sessions(part)]
            _store(db, [one for one in judged if again or (one.score or 0) >= kept.get(one.session, 0)])
    db.execute("DELETE FROM detection_data WHERE session NOT IN (SELECT session FROM session_trace_data)")
    _set_meta(db, _SEEN, str(last))
    return len(touched)


def suspicions(db: duckdb.DuckDBPyConnection, all: bool = False) -> list[Suspicion]:
    """The suspicious sessions, the worst first; with ``all``, every session looked at."""
    return [Suspicion(*row) for row in db.execute(_FOUND, {"all": all}).fetchall()]


def _learn(db: duckdb.DuckDBPyConnection, scratch: Scratch, places: Sequence[Place]) -> set[str]:
    """Whose these traces are. A late span may tell what the first ones did not: then the trace changes its session, and
    both are looked at."""
    told = scratch.whose(places)
    traces, sessions, starts = zip(*told, strict=True) if told else ((), (), ())
    table = pa.table({"trace_id": pa.array(traces, pa.string()), "session": pa.array(sessions, pa.string()),
                      "start_ns": pa.array(starts, pa.int64())})  # fmt: skip
    query = "DELETE FROM session_trace_data WHERE trace_id IN (SELECT unnest($traces::VARCHAR[])) RETURNING session"
    with _transaction(db, table):
        old = db.execute(query, {"traces": [trace for trace, *_ in places]}).fetchall()
        db.execute("INSERT INTO session_trace_data BY NAME SELECT * FROM detected")
    return {*sessions, *(session for (session,) in old)}


def _habits(db: duckdb.DuckDBPyConnection, scratch: Scratch, again: bool) -> Habits:
    """What is usual here, read anew while there is a good deal more to read it from."""
    [(count,)] = db.execute("SELECT count(DISTINCT session) FROM session_trace_data").fetchall()
    known = None if again else usages.loads(_meta(db, _HABITS) or "")
    if known and known.sessions <= count and min(count, usages.SAMPLE) < known.sessions * _GROWN:
        return known
    places = db.execute(_PLACES.format(chosen=_SAMPLED), {"sample": usages.SAMPLE, "longest": LONGEST}).fetchall()
    found = usages.usual([session for part in batches(places) for session in scratch.sessions(part)])
    _set_meta(db, _HABITS, usages.dumps(found))
    return found


def _store(db: duckdb.DuckDBPyConnection, judged: list[Judgement]) -> None:
    rows = [asdict(one) | {"threshold": THRESHOLD, "signals": json.dumps(one.signals)} for one in judged]
    with _transaction(db, pa.Table.from_pylist(rows, _JUDGED)):
        db.execute("DELETE FROM detection_data WHERE session IN (SELECT session FROM detected)")
        db.execute("INSERT INTO detection_data BY NAME SELECT * FROM detected")


@contextmanager
def _transaction(db: duckdb.DuckDBPyConnection, table: pa.Table) -> Iterator[None]:
    """With ``table`` as ``detected``."""
    db.register("detected", table)
    db.execute("BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    finally:
        db.unregister("detected")


def _meta(db: duckdb.DuckDBPyConnection, key: str) -> str | None:
    [(value,)] = db.execute(_META, [key]).fetchall()
    return str(value) if value is not None else None


def _set_meta(db: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    db.execute("DELETE FROM ragtrace_meta WHERE key = ?", [key])
    db.execute("INSERT INTO ragtrace_meta VALUES (?, ?)", [key, value])
