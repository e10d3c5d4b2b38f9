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
    import duckdb

_SEEN, _HABITS = "detected_to", "detection_habits"  # in ragtrace_meta
_GROWN = 1.2  # how many times the sessions that the habits were read from, before they are read again
_JUDGED = pa.schema([
    ("session", pa.string()), ("score", pa.float64()), ("threshold", pa.float64()), ("reasons", pa.list_(pa.string())),
    ("signals", pa.string()), ("requests", pa.int64()), ("trace_id", pa.string()),
])  # fmt: skip
_MOVED = """
INSERT INTO touched_sessions
SELECT session FROM session_trace_data WHERE trace_id IN (SELECT unnest($traces::VARCHAR[]))
"""
_GONE = "DELETE FROM session_trace_data WHERE trace_id IN (SELECT unnest($traces::VARCHAR[]))"
_META = "SELECT max(value) FROM ragtrace_meta WHERE key = ?"
# What is to be looked at stands in temporary tables, numbered in the order in which it is read: ids alone, no text, and
# never all of them in Python's memory.
_FRESH = """
CREATE OR REPLACE TEMP TABLE fresh_traces AS
SELECT row_number() OVER (ORDER BY first, trace_id) AS n, trace_id, '' AS session, first, last FROM (
    SELECT trace_id, min(rowid) AS first, max(rowid) AS last FROM span_data
    WHERE trace_id IN (SELECT trace_id FROM span_data WHERE rowid > ?) GROUP BY trace_id
) ORDER BY n
"""
_TOUCHED = "CREATE OR REPLACE TEMP TABLE touched_sessions (session VARCHAR)"
_CHOSEN = "SELECT session FROM touched_sessions"
_SAMPLED = "SELECT DISTINCT session FROM session_trace_data ORDER BY md5(session), session LIMIT $sample"
# Sessions by their first row, so that a batch is read from as few places of the table as can be.
_PLACED = """
CREATE OR REPLACE TEMP TABLE placed_traces AS
WITH latest AS (
    SELECT trace_id, session FROM session_trace_data WHERE session IN (SELECT session FROM ({chosen}))
    QUALIFY row_number() OVER (PARTITION BY session ORDER BY start_ns DESC NULLS LAST, trace_id DESC) <= $longest
), placed AS (
    SELECT s.trace_id, l.session, min(s.rowid) AS first, max(s.rowid) AS last
    FROM span_data s JOIN latest l USING (trace_id) GROUP BY ALL
), begun AS (
    SELECT *, min(first) OVER (PARTITION BY session) AS begin FROM placed
)
SELECT row_number() OVER (ORDER BY begin, session, trace_id) AS n, trace_id, session, first, last FROM begun ORDER BY n
"""
_PAGE = "SELECT trace_id, session, first, last FROM {table} WHERE n > $at AND n <= $at + $size ORDER BY n"
_ONE_OF_A_LONG_ONE = """
SELECT session, score FROM detection_data WHERE score IS NOT NULL AND session IN (
    SELECT session FROM session_trace_data WHERE session IN (SELECT unnest($sessions::VARCHAR[]))
    GROUP BY session HAVING count(*) > $longest
)
"""
_TEMPORARY = ("temp.fresh_traces", "temp.touched_sessions", "temp.placed_traces")
_FOUND = """
SELECT session, score, suspicious, reasons, requests, first_trace, last_trace, trace_id
FROM suspicions WHERE suspicious OR $all ORDER BY score DESC NULLS LAST, session
"""
_UNREAD = "SELECT count(*) FILTER ((signals::JSON->>'instructions') IS NULL), count(*) FROM suspicions"


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
    try:
        with Scratch(db) as scratch:
            touched = _learn(db, scratch, seen)
            habits = _habits(db, scratch, again)
            for part in _placed(db, _CHOSEN, LONGEST):
                judged = [judge(session, habits) for session in scratch.sessions(part)]
                names = {"sessions": [one.session for one in judged], "longest": LONGEST}
                kept = dict(db.execute(_ONE_OF_A_LONG_ONE, names).fetchall())
                _store(db, [one for one in judged if again or (one.score or 0) >= kept.get(one.session, 0)])
    finally:
        for table in _TEMPORARY:
            db.execute(f"DROP TABLE IF EXISTS {table}")
    db.execute("DELETE FROM detection_data WHERE session NOT IN (SELECT session FROM session_trace_data)")
    _set_meta(db, _SEEN, str(last))
    return touched


def suspicions(db: duckdb.DuckDBPyConnection, all: bool = False) -> list[Suspicion]:
    """The suspicious sessions, the worst first; with ``all``, every session looked at."""
    return [Suspicion(*row) for row in db.execute(_FOUND, {"all": all}).fetchall()]


def unread(db: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Sessions looked at of which no question has its text (capture ``digest`` or ``none``), and all looked at."""
    [(without, total)] = db.execute(_UNREAD).fetchall()
    return int(without), int(total)


def _learn(db: duckdb.DuckDBPyConnection, scratch: Scratch, seen: int) -> int:
    """Whose the traces are that came after row ``seen``; returns how many sessions that touches. A late span may tell
    what the first ones did not: then the trace changes its session, and both are looked at."""
    db.execute(_FRESH, [seen])
    db.execute(_TOUCHED)
    for places in batches(_pages(db, "fresh_traces")):
        told = scratch.whose(places)
        traces, sessions, starts = zip(*told, strict=True) if told else ((), (), ())
        table = pa.table({"trace_id": pa.array(traces, pa.string()), "session": pa.array(sessions, pa.string()),
                          "start_ns": pa.array(starts, pa.int64())})  # fmt: skip
        names = {"traces": [trace for trace, *_ in places]}
        with _transaction(db, table):
            db.execute(_MOVED, names)
            db.execute(_GONE, names)
            db.execute("INSERT INTO touched_sessions SELECT session FROM detected")
            db.execute("INSERT INTO session_trace_data BY NAME SELECT * FROM detected")
    [(touched,)] = db.execute("SELECT count(DISTINCT session) FROM touched_sessions").fetchall()
    return int(touched)


def _habits(db: duckdb.DuckDBPyConnection, scratch: Scratch, again: bool) -> Habits:
    """What is usual here, read anew while there is a good deal more to read it from."""
    [(count,)] = db.execute("SELECT count(DISTINCT session) FROM session_trace_data").fetchall()
    known = None if again else usages.loads(_meta(db, _HABITS) or "")
    if known and known.sessions <= count and min(count, usages.SAMPLE) < known.sessions * _GROWN:
        return known
    parts = _placed(db, _SAMPLED, usages.REQUESTS, sample=usages.SAMPLE)
    found = usages.usual(session for part in parts for session in scratch.sessions(part))
    _set_meta(db, _HABITS, usages.dumps(found))
    return found


def _placed(db: duckdb.DuckDBPyConnection, chosen: str, longest: int, **names: int) -> Iterator[list[Place]]:
    """The latest traces of the chosen sessions, in parts of whole sessions."""
    db.execute(_PLACED.format(chosen=chosen), {"longest": longest} | names)
    return batches(_pages(db, "placed_traces"))


def _pages(db: duckdb.DuckDBPyConnection, table: str) -> Iterator[Place]:
    at = 0
    while page := db.execute(_PAGE.format(table=table), {"at": at, "size": TRACES}).fetchall():
        yield from page
        at += len(page)


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
