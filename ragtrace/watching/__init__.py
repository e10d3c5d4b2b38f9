"""Alarms from a live store: ``ragtrace watch``.

Each kind of alarm is one SQL file in ``alarms/``, which gives rows ``key, subject, message, trace_id, seen_at``. A key
is raised once, ever: alarms are rows of the table ``alarm_data``, so a restart repeats none. Adding a kind is adding
one file, with its case in ``tests/test_watch.py``. The queries find in the temporary table ``fresh_traces`` the
traces of which something has arrived since the last look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.detection import detect
from ragtrace.errors import StoreError
from ragtrace.questions import Question, parse
from ragtrace.store import open as open_store

if TYPE_CHECKING:
    from datetime import datetime

    import duckdb

_log = logging.getLogger("ragtrace.watch")
_SEEN = "watched_to"  # in ragtrace_meta: the place and ids of the last span that has been looked at
_SLOW = "extraction"
_PATIENCE = 10.0  # seconds that sending may take between two looks
_MOST = 100  # alarms sent between two looks: whoever floods the store does not flood the people
_NEW = """
INSERT INTO alarm_data
SELECT $kind, key, any_value(subject), any_value(message), any_value(trace_id), any_value(seen_at),
    current_localtimestamp(), false
FROM ({sql}) AS found ANTI JOIN alarm_data known ON known.kind = $kind AND known.key = found.key
WHERE found.key IS NOT NULL GROUP BY found.key ORDER BY found.key
RETURNING *
"""


class Alarm(NamedTuple):
    """One row of the view ``alarms``; times are UTC. ``kind`` and ``key`` name it for ever."""

    kind: str
    key: str
    subject: str | None
    message: str
    trace_id: str | None
    seen_at: datetime | None
    raised_at: datetime
    sent: bool


Sender = Callable[[Alarm], bool]
"""Takes an alarm somewhere; whether it arrived. It must not raise, and not wait for long."""


@cache
def kinds() -> dict[str, Question]:
    """Every kind of alarm, by name."""
    found = (file for file in files(__name__).joinpath("alarms").iterdir() if file.name.endswith(".sql"))
    made = (parse(file.name.removesuffix(".sql"), file.read_text("utf-8")) for file in found)
    return {question.name: question for question in sorted(made)}


def look(db: duckdb.DuckDBPyConnection) -> list[Alarm]:
    """Raises what is new in the store, as rows; returns it.

    Where nothing has arrived since the last look, only the losses are looked at.
    """
    found, arrived = _at_once(db)
    return found + _in_time(db) if arrived else found


def _at_once(db: duckdb.DuckDBPyConnection) -> tuple[list[Alarm], int]:
    """What needs no more than a query, in one transaction; and how many spans have arrived."""
    db.execute("BEGIN")
    try:
        arrived = _fresh(db)
        asked = (kind for kind in kinds().values() if (arrived and kind.name != _SLOW) or kind.name == "losses")
        found = [Alarm(*row) for kind in asked for row in _new(db, kind)]
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    finally:
        db.execute("DROP TABLE IF EXISTS temp.fresh_traces")
    return found, arrived


def _in_time(db: duckdb.DuckDBPyConnection) -> list[Alarm]:
    """What sessions must be looked at for: on a store that is large already, the first time takes long."""
    _detect(db)
    return [Alarm(*row) for row in _new(db, kinds()[_SLOW])]


def _detect(db: duckdb.DuckDBPyConnection) -> None:
    """For the alarm `extraction`. Nothing that goes wrong in it ends the watch."""
    try:
        detect(db)
    except Exception as error:
        _log.warning("detection of attacks failed (%s); the other alarms are not held up", type(error).__name__)


def _fresh(db: duckdb.DuckDBPyConnection) -> int:
    """Fills ``fresh_traces``; where the marked span has another place (`ragtrace compact`), with all of them."""
    [(last,)] = db.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    marked = db.execute("SELECT string_split(value, ' ') FROM ragtrace_meta WHERE key = ?", [_SEEN]).fetchone()
    place, trace, span = marked[0] if marked else (-1, None, None)
    there = "SELECT rowid FROM span_data WHERE rowid = ? AND trace_id = ? AND span_id = ?"
    [seen] = db.execute(there, [int(place), trace, span]).fetchone() or [-1]
    db.execute("CREATE TEMP TABLE fresh_traces AS SELECT DISTINCT trace_id FROM span_data WHERE rowid > ?", [seen])
    db.execute("DELETE FROM ragtrace_meta WHERE key = ?", [_SEEN])
    db.execute(
        "INSERT INTO ragtrace_meta SELECT ?, concat_ws(' ', rowid, trace_id, span_id) FROM span_data WHERE rowid = ?",
        [_SEEN, last],
    )
    return int(last - seen)


def _new(db: duckdb.DuckDBPyConnection, kind: Question) -> list[tuple[Any, ...]]:
    return db.execute(_NEW.format(sql=kind.sql), {"kind": kind.name}).fetchall()


def watch(
    database: Path,
    senders: Iterable[Sender] = (),
    every: float = 2.0,
    tell: Callable[[Alarm], None] = lambda alarm: None,
    stop: Event | None = None,
    once: bool = False,
) -> int:
    """Looks at the store every so many seconds until ``stop`` is set; returns how many alarms were raised.

    The database is open only while it is looked at, not while alarms are sent. Where somebody else has it open, what
    this look would have found is found by a later one. An alarm that not every sender has taken is offered again after
    the next look, and after a restart. Alarms that a query finds are told before sessions are looked at.

    :param tell: gets each alarm once, when it is raised.
    :raises StoreError: ``once``, and the store cannot be looked at.
    """
    stop, taking = stop or Event(), list(senders)
    raised, held = 0, ""
    owed = True  # sessions may have traces that detection has not seen
    sent: list[Alarm] = []

    def told(looking: Callable[[duckdb.DuckDBPyConnection], tuple[list[Alarm], int]], send: bool) -> int:
        nonlocal raised, sent
        with open_store(database) as db:
            found, arrived = looking(db)
            _mark(db, sent)
            waiting = _waiting(db) if send or found else []
        sent = []
        for alarm in found:
            tell(alarm)
        raised += len(found)
        sent = _taken(waiting, taking, stop)
        return arrived

    while True:
        try:
            owed = told(_at_once, True) > 0 or owed
            if owed and not stop.is_set():
                told(lambda db: (_in_time(db), 0), False)
                owed = False
            held = ""
            if sent and (once or stop.is_set()):
                with open_store(database) as db:
                    _mark(db, sent)
        except StoreError as error:
            if once:
                raise
            if str(error) != held:
                held = str(error)
                _log.warning("%s; looking again every %g s", error, every)
        if once or stop.wait(every):
            return raised


def _waiting(db: duckdb.DuckDBPyConnection) -> list[Alarm]:
    rows = db.execute(
        "SELECT * FROM alarm_data WHERE NOT sent ORDER BY raised_at, kind, key LIMIT ?", [_MOST]
    ).fetchall()
    return [Alarm(*row) for row in rows]


def _taken(waiting: list[Alarm], senders: list[Sender], stop: Event) -> list[Alarm]:
    """Those that every sender took, up to the first that one did not take: it goes first the next time. So do those for
    which no time is left."""
    end = monotonic() + _PATIENCE

    def taken(alarm: Alarm) -> bool:
        return not stop.is_set() and monotonic() < end and all(send(alarm) for send in senders)

    return list(takewhile(taken, waiting))


def _mark(db: duckdb.DuckDBPyConnection, sent: list[Alarm]) -> None:
    for alarm in sent:
        db.execute("UPDATE alarm_data SET sent = true WHERE kind = ? AND key = ?", [alarm.kind, alarm.key])
