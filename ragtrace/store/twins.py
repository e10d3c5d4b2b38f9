"""One call seen twice: by two instrumentations, or by one that traces a wrapper and what it wraps.

Both spans are kept; the one that says less points at the other in ``duplicate_of``, and only the views of spans show
it. Looked for in each trace into which a span of another instrumentation came.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import duckdb
import orjson
import pyarrow as pa

from ragtrace.record import attributes as a

# Where the traces begin into which something came after the row $last: what lies before is not read.
_FIRST = """
SELECT coalesce(min(rowid), 0)
FROM span_data SEMI JOIN (SELECT DISTINCT trace_id FROM span_data WHERE rowid > $last) USING (trace_id)
"""
# The stages of traces that got a foreign one and hold more than one of that stage. A trace of ours alone is not read.
_STAGES = """
SELECT trace_id, stage
FROM span_data SEMI JOIN (SELECT DISTINCT trace_id FROM span_data WHERE rowid > $last) USING (trace_id)
WHERE span_data.rowid >= $first AND stage IN ('retrieval', 'generation')
GROUP BY ALL HAVING count(*) > 1 AND bool_or(dialect <> 'ragtrace')
"""
_CALLS = """
SELECT trace_id, span_id, dialect, coalesce(scope, dialect), stage, start_ns, coalesce(end_ns, start_ns),
    json_extract_string(attributes, $paths::VARCHAR[])
FROM span_data SEMI JOIN alike USING (trace_id, stage) WHERE span_data.rowid >= $first
"""
_LINKS = """
SELECT trace_id, span_id, parent_span_id FROM span_data SEMI JOIN alike USING (trace_id)
WHERE span_data.rowid >= $first
"""
_MARK = """
UPDATE span_data SET duplicate_of = t.twin FROM twins t
WHERE span_data.rowid >= $first AND span_data.trace_id = t.trace_id AND span_data.span_id = t.span_id
    AND duplicate_of IS DISTINCT FROM t.twin
"""
# What a foreign model call was asked is not in its span; where the trace has one retrieval query, it is that.
_ASK = """
UPDATE span_data SET asked = q.query FROM (
    SELECT trace_id, min(query) AS query FROM (
        SELECT trace_id, attributes->>'gen_ai.retrieval.query.text' AS query
        FROM span_data SEMI JOIN (
            SELECT DISTINCT trace_id FROM span_data WHERE rowid > $last AND dialect <> 'ragtrace' AND stage IS NOT NULL
        ) USING (trace_id)
        WHERE span_data.rowid >= $first AND stage = 'retrieval'
    ) GROUP BY trace_id HAVING count(DISTINCT query) = 1
) q
WHERE span_data.rowid >= $first AND span_data.trace_id = q.trace_id AND stage = 'generation'
    AND dialect <> 'ragtrace' AND asked IS DISTINCT FROM q.query
"""
_PATHS = (a.RETRIEVAL_QUERY, a.RETRIEVAL_DOCUMENTS, a.AFTER_DEFENSE, a.INPUT_MESSAGES, a.OUTPUT_MESSAGES,
          a.REQUEST_MODEL, a.OUTPUT_TOKENS)  # fmt: skip
_TOLERANCE = 0.5  # of the shorter of two calls' time, which must be common to both


class _Stage(NamedTuple):
    span_id: str
    ours: bool
    scope: str
    stage: str
    start: int
    end: int
    query: str | None
    said: tuple[Any, ...]  # what came out, in any way in which that may be known; empty: not recorded
    richness: int


class _Place(NamedTuple):
    depth: int
    inside: dict[str, _Stage]  # of each kind of stage the nearest that it is in


def find_twins(connection: duckdb.DuckDBPyConnection, last: int) -> None:
    """Marks what the spans after the row ``last`` double or are doubled by, and says what foreign calls were asked."""
    foreign = connection.execute(
        "SELECT 1 FROM span_data WHERE dialect <> 'ragtrace' AND stage IS NOT NULL LIMIT 1"
    ).fetchall()
    if not foreign:
        return
    [(first,)] = connection.execute(_FIRST, {"last": last}).fetchall()
    connection.execute(_ASK, {"last": last, "first": first}).fetchall()
    alike = connection.sql(_STAGES, params={"last": last, "first": first}).to_arrow_table()
    if not alike.num_rows:
        return
    connection.register("alike", alike)
    traces: dict[str, list[_Stage]] = defaultdict(list)
    rows = connection.execute(_CALLS, {"first": first, "paths": [f'$."{name}"' for name in _PATHS]}).fetchall()
    for trace_id, span_id, dialect, scope, stage, start, end, said in rows:
        traces[trace_id].append(_stage(span_id, dialect == "ragtrace", scope, stage, start, end, said))
    links: dict[str, dict[str, str]] = defaultdict(dict)
    for trace_id, span_id, parent in connection.execute(_LINKS, {"first": first}).fetchall():
        if parent:
            links[trace_id][span_id] = parent
    found = [
        (trace_id, span_id, twin)
        for trace_id, stages in traces.items()
        for span_id, twin in _of_trace(stages, links[trace_id])
    ]
    connection.register(
        "twins",
        pa.table([pa.array([row[i] for row in found], pa.string()) for i in range(3)], ["trace_id", "span_id", "twin"]),
    )
    connection.execute(_MARK, {"first": first}).fetchall()
    connection.unregister("twins")
    connection.unregister("alike")


def _stage(span_id: str, ours: bool, scope: str, stage: str, start: int, end: int, said: list[Any]) -> _Stage:
    query, found, kept, given, answer, model, tokens = said
    what = _documents(found, kept) if stage == "retrieval" else _answer(answer)
    with_text = stage == "retrieval" and '"content"' in (found or "")
    richness = sum(map(bool, (given, tokens, model, found, query))) + with_text + bool(what)
    return _Stage(span_id, ours, scope, stage, start, end, query, what, richness)


def _documents(found: str | None, kept: str | None) -> tuple[Any, ...]:
    """Texts and ids, as they were found and as the defenses left them: another instrumentation may have seen either."""
    before = _list(found)
    if before is None:
        return ()
    said = [*_of(before)]
    after = _list(kept)
    if after is not None:
        said += _of([before[d["of"]] if _points(d, before) else d for d in after])
    return tuple(said)


def _points(document: Any, before: list[Any]) -> bool:
    return isinstance(document.get("of"), int) and 0 <= document["of"] < len(before)


def _of(documents: list[Any]) -> Iterator[Any]:
    texts, ids = [d.get("content") for d in documents], [d.get("id") for d in documents]
    if all(t is not None for t in texts):
        yield ("texts", *texts)
    if all(i is not None for i in ids):
        yield ("ids", *ids)


def _answer(told: str | None) -> tuple[Any, ...]:
    parts = [p for m in _list(told) or () for p in m.get("parts") or () if isinstance(p, dict)]
    text = "\n".join(str(p["content"]) for p in parts if p.get("content")).strip()
    calls = [str(p.get("name")) for p in parts if p.get("type") == "tool_call"]
    return (("text", text),) if text else (("calls", *calls),) if calls else ()


def _list(text: str | None) -> list[Any] | None:
    try:
        value = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return None
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else None


def _of_trace(stages: list[_Stage], parents: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """(span, the span that says the same and more, if there is one) of each. An agent's trace may hold thousands."""
    by_id = {s.span_id: s for s in stages}
    group = {s.span_id: s.span_id for s in stages}

    def top(span_id: str) -> str:
        while group[span_id] != span_id:
            group[span_id] = span_id = group[group[span_id]]
        return span_id

    places = _places(by_id, parents)
    for stage in stages:
        outer = places[stage.span_id].inside.get(stage.stage)
        if outer and not (stage.ours and outer.ours) and _same(stage, outer, nested=True):
            group[top(stage.span_id)] = top(outer.span_id)
    for one, other in _beside(stages):
        group[top(one.span_id)] = top(other.span_id)
    members: dict[str, list[_Stage]] = defaultdict(list)
    for stage in stages:
        members[top(stage.span_id)].append(stage)
    for alike in members.values():
        best = max(alike, key=lambda s: (s.ours, s.richness, places[s.span_id].depth, s.span_id))
        yield from ((s.span_id, None if s is best or s.ours else best.span_id) for s in alike)


def _places(stages: dict[str, _Stage], parents: dict[str, str]) -> dict[str, _Place]:
    """Where each stage stands in its trace: every span is looked at once, whatever is nested in what."""
    found: dict[str, _Place] = {}
    nowhere = _Place(0, {})
    for span_id in stages:
        way: dict[str, str] = {}
        while span_id not in found and span_id not in way and span_id in parents:
            way[span_id] = span_id = parents[span_id]
        for below, above in reversed(way.items()):
            place, outer = found.get(above, nowhere), stages.get(above)
            found[below] = _Place(place.depth + 1, {**place.inside, outer.stage: outer} if outer else place.inside)
    return {span_id: found.get(span_id, nowhere) for span_id in stages}


def _beside(stages: list[_Stage]) -> Iterator[tuple[_Stage, _Stage]]:
    """Pairs of calls that two instrumentations saw at the same time, neither inside the other; each call once."""
    scopes: dict[tuple[str, str], list[_Stage]] = defaultdict(list)
    for stage in sorted(stages, key=lambda s: s.start):
        scopes[stage.stage, stage.scope].append(stage)
    kinds = list(scopes)
    for place, first in enumerate(kinds):
        for second in kinds[place + 1 :]:
            if first[0] == second[0]:
                yield from _pairs(scopes[first], scopes[second])


def _pairs(ones: list[_Stage], others: list[_Stage]) -> Iterator[tuple[_Stage, _Stage]]:
    """Both are in the order of their start, so what has ended before one begins is of no use to the next one either."""
    waiting: dict[Any, deque[tuple[int, _Stage]]] = defaultdict(deque)
    for place, other in enumerate(others):
        for said in other.said:
            waiting[said].append((place, other))
    taken: set[int] = set()
    for one in ones:
        found = []
        for said in one.said:
            queue = waiting[said]
            while queue and (queue[0][0] in taken or queue[0][1].end < one.start):
                queue.popleft()
            for place, other in queue:
                if other.start > one.end:
                    break
                if place not in taken and _overlap(one, other) and _same(one, other, nested=False):
                    found.append((place, other))
                    break
        if found:
            place, other = min(found, key=itemgetter(0))
            taken.add(place)
            yield one, other


def _overlap(one: _Stage, other: _Stage) -> bool:
    common = min(one.end, other.end) - max(one.start, other.start)
    return common >= 0 and common >= _TOLERANCE * min(one.end - one.start, other.end - other.start)


def _same(one: _Stage, other: _Stage, nested: bool) -> bool:
    """Whether both tell the same call; what one has not recorded is no difference where it is inside the other."""
    if one.query is not None and other.query is not None and one.query != other.query:
        return False
    if not one.said or not other.said:
        return nested
    kinds = {said[0] for said in one.said} & {said[0] for said in other.said}
    if not kinds:
        return nested and one.stage == "retrieval"
    kind = "texts" if "texts" in kinds else min(kinds)
    return bool({s for s in one.said if s[0] == kind} & {s for s in other.said if s[0] == kind})
