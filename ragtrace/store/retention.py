"""Deleting traces: those that are too old, those of one person, those in which one document was retrieved.

A trace goes as a whole, with the entities found in it and the likelihoods of its probes. Where somebody must be
forgotten, the scores of these probes go too, and the results of their runs, which no longer follow from what is stored
(``ragtrace score`` computes them from the rest). What is merely old leaves its scores and results: numbers, no texts.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from ragtrace.errors import UsageError
from ragtrace.store.canary_search import search_for_planted
from ragtrace.store.exposure import keep_mark
from ragtrace.store.lifting import COLUMNS

if TYPE_CHECKING:
    import duckdb

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
KEYS = {"user": COLUMNS["user_id"], "session": COLUMNS["session_id"], "conversation": COLUMNS["conversation"]}
"""The attributes, of ours and of others, that say whose a trace is."""

_OWNED = """
SELECT DISTINCT trace_id FROM span_data
WHERE list_contains(json_extract_string(attributes, $paths::VARCHAR[]), $id)
    OR list_contains(json_extract_string(resource, $paths::VARCHAR[]), $id)
"""
_RETRIEVED = """
SELECT trace_id FROM documents WHERE document_id = $id UNION SELECT trace_id FROM probes WHERE target_id = $id
"""
_ONE = "SELECT DISTINCT trace_id FROM span_data WHERE trace_id = lower($id)"
_OLD = "SELECT trace_id FROM span_data GROUP BY trace_id HAVING max(coalesce(end_ns, start_ns)) < $before"

_PROBES = """
SELECT DISTINCT run_id, probe_id, arm FROM span_data SEMI JOIN going USING (trace_id) WHERE probe_id IS NOT NULL
"""
_LIKELIHOODS = """
DELETE FROM likelihood_data l USING going_probes p
WHERE l.run_id = p.run_id AND l.probe_id = p.probe_id AND (l.arm IS NULL OR l.arm IS NOT DISTINCT FROM p.arm)
"""
_SCORES = """
DELETE FROM score_data s USING going_probes p
WHERE s.run_id = p.run_id AND s.probe_id = p.probe_id AND s.arm IS NOT DISTINCT FROM p.arm
"""
_RESULTS = "DELETE FROM result_data WHERE run_id IN (SELECT run_id FROM going_probes)"
_DERIVED = (
    "DELETE FROM tradeoff_data WHERE run_id IN (SELECT run_id FROM going_probes)",
    "DELETE FROM replication_data WHERE run_id IN (SELECT run_id FROM going_probes)",
)
_ALARMS = (  # of others only the example goes: else they would be raised again
    "DELETE FROM alarm_data WHERE kind = 'canary' AND trace_id IN (SELECT trace_id FROM going)",
    "UPDATE alarm_data SET trace_id = NULL WHERE trace_id IN (SELECT trace_id FROM going)",
)
# A session goes with the last of its traces, and what was said of it: its name holds the id of a user or conversation.
_SESSIONS = (
    "DELETE FROM session_trace_data WHERE trace_id IN (SELECT trace_id FROM going)",
    "DELETE FROM detection_data WHERE session NOT IN (SELECT session FROM session_trace_data)",
    "UPDATE detection_data SET trace_id = NULL WHERE trace_id IN (SELECT trace_id FROM going)",
    "DELETE FROM alarm_data WHERE kind = 'extraction' AND key NOT IN (SELECT session FROM session_trace_data)",
)
_EXPOSURE = "DELETE FROM exposure_data WHERE trace_id IN (SELECT trace_id FROM going)"
_ENTITIES = "DELETE FROM entity_data WHERE trace_id IN (SELECT trace_id FROM going)"
_OUTGOING = "DELETE FROM outgoing_data WHERE trace_id IN (SELECT trace_id FROM going)"
_SPANS = "DELETE FROM span_data WHERE trace_id IN (SELECT trace_id FROM going)"


class Removed(NamedTuple):
    """How much went."""

    traces: int
    spans: int
    results: int


def age(text: str) -> timedelta:
    """``30d``, ``12h`` or ``4w``.

    :raises UsageError: anything else.
    """
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _UNITS or not number.isdecimal() or len(number) > 5:
        raise UsageError(f"age {text!r}; expected a whole number of hours, days or weeks, as 12h, 30d or 4w")
    return int(number) * _UNITS[unit]


def remove_older(connection: duckdb.DuckDBPyConnection, than: timedelta) -> Removed:
    """Removes traces whose last span ended longer ago than ``than``."""
    before = time.time_ns() - int(than.total_seconds()) * 1_000_000_000
    return _remove(connection, _OLD, {"before": before}, numbers_too=False)


def remove_of(connection: duckdb.DuckDBPyConnection, what: str, id: str) -> Removed:
    """Removes the traces of one ``user``, ``session``, ``conversation``, ``document`` or ``trace``."""
    if what in KEYS:
        paths = [f'$."{key}"' for key in KEYS[what]]
        return _remove(connection, _OWNED, {"paths": paths, "id": id}, numbers_too=True)
    return _remove(connection, {"document": _RETRIEVED, "trace": _ONE}[what], {"id": id}, numbers_too=True)


def _remove(connection: duckdb.DuckDBPyConnection, query: str, values: dict[str, object], numbers_too: bool) -> Removed:
    connection.execute("BEGIN")
    try:
        connection.execute("CREATE OR REPLACE TEMP TABLE going AS " + query, values)
        connection.execute("CREATE OR REPLACE TEMP TABLE going_probes AS " + _PROBES)
        [(traces,)] = connection.execute("SELECT count(*) FROM going").fetchall()
        results = 0
        connection.execute(_LIKELIHOODS)
        if numbers_too:
            connection.execute(_SCORES)
            [(results,)] = connection.execute(_RESULTS).fetchall()
            for derived in (*_DERIVED, *_ALARMS):
                connection.execute(derived)
        for derived in _SESSIONS:
            connection.execute(derived)
        keep_mark(connection)
        connection.execute(_EXPOSURE)
        connection.execute(_ENTITIES)
        connection.execute(_OUTGOING)
        [(spans,)] = connection.execute(_SPANS).fetchall()
        connection.execute("DROP TABLE going")
        connection.execute("DROP TABLE going_probes")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    search_for_planted(connection)  # so that no canary of a run that is gone stays in the file
    return Removed(traces, spans, results)
