"""From the database to sessions: a few traces at a time, through the usual views over a small copy in memory.

The views read JSON, and a condition on their traces does not reach below their unnesting; a copy of the few spans that
are wanted keeps the work to those, and the memory flat. Nothing of it touches the disk.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

import duckdb

from ragtrace.detection.session import Request, Session, Source

TRACES = 2_000
"""Traces that are read at a time,"""
LONGEST = 200
"""and of one session: its latest."""
Place = tuple[str, str, int, int]
"""A trace, its session, and its first and last row in the table of spans."""
_VIEWS = ("10_spans", "20_documents", "30_generations", "85_sessions")
_COPY = """
SELECT * REPLACE (NULL::JSON AS events, NULL::JSON AS resource) FROM span_data
WHERE rowid BETWEEN $first AND $last AND trace_id IN (SELECT unnest($traces::VARCHAR[]))
"""
_WHOSE = "SELECT trace_id, session, start_ns FROM session_traces"
_ASKED = """
SELECT t.trace_id, q.query, make_timestamp(t.start_ns // 1000)
FROM session_traces t LEFT JOIN trace_questions q USING (trace_id)
"""
_SOURCES = """
SELECT DISTINCT trace_id, document_id, content FROM documents
WHERE phase = 'retrieved' AND document_id IS NOT NULL ORDER BY ALL
"""
_LISTED = """
SELECT DISTINCT trace_id FROM staged_spans
WHERE stage = 'retrieval' AND (attributes->>'gen_ai.retrieval.documents') IS NOT NULL
"""
_ANSWERS = "SELECT trace_id, response FROM generations WHERE nullif(response, '') IS NOT NULL ORDER BY ALL"
_COMPUTED = "SELECT trace_id, statistics AS told FROM generations WHERE told IS NOT NULL"


class Scratch:
    """The small copy. A context manager."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db
        self._copy = duckdb.connect()
        self._copy.execute("SET temp_directory = ''")  # texts of an encrypted store must not spill to disk
        folder = files("ragtrace.store")
        self._copy.execute(folder.joinpath("schema.sql").read_text("utf-8"))
        for view in _VIEWS:
            self._copy.execute(folder.joinpath("views", f"{view}.sql").read_text("utf-8"))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self._copy.close()

    def _take(self, places: Sequence[Place]) -> None:
        bounds = {"first": min(p[2] for p in places), "last": max(p[3] for p in places)}
        traces = [trace for trace, *_ in places]
        table = self._db.sql(_COPY, params=bounds | {"traces": traces}).to_arrow_table()
        self._copy.execute("DELETE FROM span_data")
        self._copy.register("arriving", table)
        self._copy.execute("INSERT INTO span_data BY NAME SELECT * FROM arriving")
        self._copy.unregister("arriving")

    def whose(self, places: Sequence[Place]) -> list[tuple[str, str, int | None]]:
        """(trace, session, start) of those that are production traffic; the sessions in ``places`` are not read."""
        self._take(places)
        return self._copy.execute(_WHOSE).fetchall()

    def sessions(self, places: Sequence[Place]) -> list[Session]:
        """The sessions of these traces."""
        self._take(places)
        traces = {trace: session for trace, session, *_ in places}
        sources = _lists(self._copy, _SOURCES)
        listed = {trace for (trace,) in self._copy.execute(_LISTED).fetchall()}
        answers = _lists(self._copy, _ANSWERS)
        computed = _lists(self._copy, _COMPUTED)
        requests: dict[str, list[Request]] = defaultdict(list)
        for trace, query, at in self._copy.execute(_ASKED).fetchall():
            if trace not in traces:
                continue
            known = trace in listed or trace in sources
            requests[traces[trace]].append(Request(
                trace, query, at,
                sources=[Source(id, content) for id, content in sources.get(trace, ())] if known else None,
                answer="\n".join(text for (text,) in answers[trace]) if trace in answers else None,
                quoted=_runs(computed.get(trace, [])),
            ))  # fmt: skip
        return [Session(name, found) for name, found in sorted(requests.items())]


def _lists(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for trace, *rest in connection.execute(query).fetchall():
        found[trace].append(tuple(rest))
    return dict(found)


def _runs(computed: Sequence[tuple[str]]) -> dict[str, int] | None:
    """By document, the longest run that the join point has computed; ``None`` where it compared nothing readable."""
    runs: dict[str, int] = {}
    for (text,) in computed:
        try:
            for one in json.loads(text).get("overlap") or ():
                if isinstance(run := one.get("longest_run"), int):
                    id = str(one.get("id"))
                    runs[id] = max(run, runs.get(id, 0))
        except (ValueError, AttributeError, TypeError):
            continue
    return runs or None


def batches(places: Iterable[Place]) -> Iterator[list[Place]]:
    """Parts of whole sessions, of about :data:`TRACES` traces each. The places come session by session; those without
    one come as they are."""
    part: list[Place] = []
    for place in places:
        if len(part) >= TRACES and (place[1] != part[-1][1] or not place[1]):
            yield part
            part = []
        part.append(place)
    if part:
        yield part
