"""Passive exposure: what of the documents reached the answers of real traffic, without probes and without ground truth.

Measured from the spans in the order in which they came, a window at a time: its rows and the mark that says how far
they reach are one transaction. So a measurement that is interrupted goes on where it was, and stores nothing twice. A
trace of which something comes later is measured anew.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from ragtrace.store.comparing import Elsewhere, here

if TYPE_CHECKING:
    import pyarrow as pa

_SPANS = 8_192  # of a window, at most
_BYTES = 32_000_000  # of their attributes, about: bounds the memory where texts are long
_SOME = 2_000_000  # the same where not all is to be measured
_MANY = 8 * _SPANS  # spans that are worth processes of their own

_END = """
SELECT max(place) FROM (
    SELECT place, sum(size) OVER (ORDER BY place) - size AS bytes FROM (
        SELECT rowid AS place, coalesce(strlen(attributes), 0) AS size
        FROM span_data WHERE rowid > $since AND rowid <= $until
    )
) WHERE bytes < $most
"""
_TRACES = """
SELECT DISTINCT trace_id FROM span_data
WHERE rowid > $since AND rowid <= $until AND (stage IS NOT NULL OR contains(effects, '"kept":true'))
"""  # a mask behind the model's stage may come in a later segment, and tells what was left of the answer
_REACH = "SELECT min(rowid), max(rowid) FROM span_data SEMI JOIN exposure_traces USING (trace_id)"
_READ = """
SELECT span_data.* FROM span_data SEMI JOIN exposure_traces USING (trace_id)
WHERE span_data.rowid >= $first AND span_data.rowid <= $last
"""
_MOVE = "UPDATE exposure_mark_data SET row_id = $place, trace_id = $trace, span_id = $span WHERE row_id = $since"
_BEFORE = """
SELECT rowid, trace_id, span_id FROM span_data
WHERE rowid <= (SELECT max(row_id) FROM exposure_mark_data) AND trace_id NOT IN (SELECT trace_id FROM going)
ORDER BY rowid DESC LIMIT 1
"""


class Measured(NamedTuple):
    """What was measured now, and how many of the stored spans are not taken into account yet."""

    generations: int
    pairs: int
    left: int


class _Window(NamedTuple):
    since: int  # the mark before it
    mark: tuple[int, str, str]  # and after
    traces: pa.Table
    rows: Callable[[], pa.Table] | None  # waits for them; nothing to compare


def measure(
    connection: duckdb.DuckDBPyConnection,
    limit: int | None = None,
    seconds: float | None = None,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Measured:
    """Measures what has come since the last time, in the order in which it came.

    Where another connection measures just now, this one leaves the rest to it.

    :param limit: generations after which it stops, about; :param seconds: or the time.
    :param tell: gets the spans that are done, and those that there are to do.
    """
    begun, mark = time.monotonic(), _mark(connection)
    [(last,)] = connection.execute("SELECT coalesce(max(rowid), -1) FROM span_data").fetchall()
    since, generations, pairs = mark, 0, 0
    if mark >= last:
        return Measured(0, 0, 0)
    with closing(_windows(connection, mark, last, some=limit is not None or seconds is not None)) as windows:
        for window in windows:
            rows = window.rows() if window.rows else None
            if not _store(connection, window, rows):
                break
            since = window.mark[0]
            if rows is not None:
                pairs += rows.num_rows
                generations += (
                    rows.select(["trace_id", "span_id"]).group_by(["trace_id", "span_id"]).aggregate([]).num_rows
                )
            tell(since - mark, last - mark)
            if limit is not None and generations >= limit:
                break
            if seconds is not None and time.monotonic() - begun >= seconds:
                break
    return Measured(generations, pairs, last - since)


def keep_mark(connection: duckdb.DuckDBPyConnection) -> None:
    """Sets the mark to a span that stays, before the traces of the table ``going`` are deleted."""
    row = connection.execute(_BEFORE).fetchone() or (-1, None, None)
    connection.execute("UPDATE exposure_mark_data SET row_id = ?, trace_id = ?, span_id = ?", row)


def _mark(connection: duckdb.DuckDBPyConnection) -> int:
    """The place up to which all is measured; found again by its span where the database was written anew."""
    found = "SELECT rowid FROM span_data WHERE trace_id = $trace AND span_id = $span"
    [(since, trace, span)] = connection.execute("FROM exposure_mark_data").fetchall()
    if since < 0:
        return -1
    at = {"trace": trace, "span": span}
    if connection.execute(f"{found} AND rowid = $since", at | {"since": since}).fetchone():
        return int(since)
    [place] = connection.execute(found, at).fetchone() or [-1]
    connection.execute(_MOVE, at | {"since": since, "place": place})
    return int(place)


def _windows(connection: duckdb.DuckDBPyConnection, since: int, last: int, some: bool) -> Generator[_Window]:
    """The windows up to ``last``, in order; some are read and compared ahead where other processes do it."""
    with ExitStack() as stack:
        many = not some and last - since >= _MANY
        pools = [ThreadPoolExecutor(1) for _ in range(os.cpu_count() or 1)] if many else []
        for pool in pools:
            stack.callback(pool.shutdown, cancel_futures=True)
        comparers = [stack.enter_context(closing(Elsewhere())) for _ in pools]
        ready: deque[_Window] = deque()
        turn = 0
        while since < last or ready:
            if since < last and len(ready) <= len(comparers):
                mark, traces, spans = _read(connection, since, _SOME if some else _BYTES)
                rows: Callable[[], pa.Table] | None = None
                if spans is not None and comparers:
                    rows = pools[turn].submit(comparers[turn].rows, spans).result
                    turn = (turn + 1) % len(comparers)
                elif spans is not None:
                    rows = partial(here().rows, spans)
                ready.append(_Window(since, mark, traces, rows))
                since = mark[0]
            else:
                yield ready.popleft()


def _read(
    connection: duckdb.DuckDBPyConnection, since: int, most: int
) -> tuple[tuple[int, str, str], pa.Table, pa.Table | None]:
    """The mark after the next window, the traces that have a stage in it, and all spans of these."""
    [(first,)] = connection.execute("SELECT min(rowid) FROM span_data WHERE rowid > ?", [since]).fetchall()
    within = {"since": since, "until": first + _SPANS - 1}
    [(until,)] = connection.execute(_END, within | {"most": most}).fetchall()
    [mark] = connection.execute("SELECT rowid, trace_id, span_id FROM span_data WHERE rowid = ?", [until]).fetchall()
    traces = connection.sql(_TRACES, params=within | {"until": until}).to_arrow_table()
    if not traces.num_rows:
        return mark, traces, None
    connection.register("exposure_traces", traces)
    try:
        [(first, last)] = connection.execute(_REACH).fetchall()
        return mark, traces, connection.sql(_READ, params={"first": first, "last": last}).to_arrow_table()
    finally:
        connection.unregister("exposure_traces")


def _store(connection: duckdb.DuckDBPyConnection, window: _Window, rows: pa.Table | None) -> bool:
    """All of a window, or nothing where somebody else has moved the mark."""
    connection.execute("BEGIN")
    try:
        if rows is not None:
            connection.register("exposure_traces", window.traces)
            connection.execute("DELETE FROM exposure_data WHERE trace_id IN (SELECT trace_id FROM exposure_traces)")
            connection.register("exposure_rows", rows)
            connection.execute("INSERT INTO exposure_data BY NAME FROM exposure_rows").fetchall()
        place, trace, span = window.mark
        told = {"place": place, "trace": trace, "span": span, "since": window.since}
        [(moved,)] = connection.execute(_MOVE, told).fetchall()
        connection.execute("COMMIT" if moved else "ROLLBACK")
    except duckdb.TransactionException:
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        return False
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    finally:
        for name in ("exposure_traces", "exposure_rows"):
            connection.unregister(name)
    return bool(moved)
