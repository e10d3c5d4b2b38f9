"""One trace: its spans as a tree in time, what each stage did, what defenses changed, what went round them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ragtrace.report.html.changes import changes
from ragtrace.report.html.words import fit
from ragtrace.ui.reading import Row, Store, rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ragtrace.ui.index import Index

SPANS = 5_000
"""Spans of a trace that are read; of most there are fewer than a hundred."""
PAGE = 100
_BYTES = 48 * 2**20  # of their attributes
_WIDE = 1_000.0  # of the waterfall, in its own unit
_TEXT, _SHORT = 1_500, 200
_ATTRIBUTES, _DOCUMENTS, _HITS = 40, 200, 100
_NUMBERS = ("completion_tokens", "prompt_tokens", "mean_logprob", "perplexity", "finish_reason", "response_chars")
_EACH = 20  # changes of one defense at one hook
# Attributes whose values are names, not texts: shown also where texts are masked.
_NAMES = (
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.system", "gen_ai.request.model", "gen_ai.response.model",
    "ragtrace.framework", "ragtrace.path", "ragtrace.stage", "ragtrace.run_id", "ragtrace.probe_id", "ragtrace.arm",
    "ragtrace.capture", "error.type", "openinference.span.kind", "service.name",
)  # fmt: skip

_SIZES = """
SELECT span_id, coalesce(strlen(attributes::VARCHAR), 0) + coalesce(strlen(events::VARCHAR), 0) AS bytes
FROM span_data WHERE trace_id = $trace AND start_ns BETWEEN $low AND $high ORDER BY start_ns, span_id
"""
_SPANS = """
SELECT * FROM span_data
WHERE trace_id = $trace AND start_ns BETWEEN $low AND $high AND span_id IN (SELECT unnest($spans::VARCHAR[]))
"""
_TWINS = """
WITH mine AS (
    SELECT DISTINCT run_id, probe_id FROM span_data
    WHERE trace_id = $trace AND probe_id IS NOT NULL AND arm <> 'none'
), told AS (
    SELECT trace_id FROM span_data JOIN mine USING (run_id, probe_id) WHERE arm = 'none' GROUP BY ALL LIMIT 3
)
SELECT * FROM span_data WHERE trace_id IN (FROM told)
UNION ALL
SELECT * FROM span_data
WHERE stage IS NULL AND run_id IN (SELECT run_id FROM mine) AND trace_id NOT IN (FROM told) AND trace_id <> $trace
    AND contains(attributes::VARCHAR, '"ragtrace.run"')
"""
_TREE = """
SELECT span_id, parent_span_id, name, kind, start_ns, end_ns, make_timestamp(start_ns // 1000) AS start,
    try((end_ns - start_ns) / 1e6) AS ms, status, status_message, service, scope, dialect, framework, path, run_id,
    probe_id, arm, stage, nested, attributes, duplicate_of
FROM span_data WHERE trace_id = $trace ORDER BY start_ns, span_id
"""
_STAGES = "SELECT * EXCLUDE (trace_id) FROM stages WHERE trace_id = $trace"
_GENERATIONS = "SELECT * EXCLUDE (trace_id) FROM generations WHERE trace_id = $trace"
_EFFECTS = "SELECT * FROM effects WHERE trace_id = $trace ORDER BY defense, hook"
_COVERAGE = """
FROM (
    SELECT defense, hook, path, ran, count(*) AS crossings FROM coverage WHERE trace_id = $trace GROUP BY ALL
)
ORDER BY ran, defense, list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook), path
"""
_DOCS = """
SELECT span_id, phase, rank, document_id, score, content, content_hash, chars, whole FROM documents
WHERE trace_id = $trace ORDER BY list_position(['retrieved', 'after_defense', 'in_prompt'], phase), span_id, rank
LIMIT $most
"""
_CANARIES = """
SELECT canary, family, list(DISTINCT channel ORDER BY channel) AS channels, any_value(document_id) AS document_id
FROM canary_hits WHERE trace_id = $trace GROUP BY canary, family ORDER BY canary, family LIMIT $most
"""


@dataclass(frozen=True)
class Trace:
    """What a page of a trace shows. Texts are masked unless they may be shown."""

    id: str
    spans: list[Row]
    page: int
    pages: int
    count: int
    read: int
    start: Any
    ms: float
    coverage: list[Row]
    changes: list[Row]
    documents: list[Row]
    canaries: list[Row]
    facts: dict[str, list[str]]


def read(index: Index, store: Store, id: str, page: int, show: bool) -> Trace | None:
    """A page of the trace; ``None`` where there is no such trace."""
    low, high = index.when(id)
    asked = {"trace": id, "low": low, "high": high}
    with store.reading() as db:
        sizes = db.execute(_SIZES, asked).fetchall()
        if not sizes:
            return None
        spans = db.sql(_SPANS, params=asked | {"spans": _affordable(sizes)}).to_arrow_table()
        found = [spans]
        if spans["probe_id"].null_count < len(spans):
            found.append(db.sql(_TWINS, params={"trace": id}).to_arrow_table())
        entities = db.sql("SELECT * FROM entity_data WHERE trace_id = $trace", params={"trace": id}).to_arrow_table()
    with index.scratch.holding(pa.concat_tables(found), entities) as own:
        tree = _tree(rows(own, _TREE, trace=id))
        shown = tree[(page - 1) * PAGE : page * PAGE]
        _describe(own, id, shown, show)
        changed = changes(own, None, show, each=_EACH, documents_each=_DOCUMENTS, trace=id)
        return Trace(
            id, shown, page, -(-len(tree) // PAGE), len(sizes), len(tree),
            min((row["start"] for row in tree), default=None), _span_of(tree) / 1e6, rows(own, _COVERAGE, trace=id),
            changed, _documents(own, id, show), _canaries(own, id, show), _facts(tree),
        )  # fmt: skip


def _affordable(sizes: list[tuple[str, int]]) -> list[str]:
    """The first spans, as many as may be read."""
    left = _BYTES
    chosen: list[str] = []
    for span, size in sizes[:SPANS]:
        left -= size
        if left < 0 and chosen:
            break
        chosen.append(span)
    return chosen


def _tree(found: list[Row]) -> list[Row]:
    """Depth first, each with its depth and its bar; a span that is its own ancestor stands at the end."""
    present = {row["span_id"] for row in found}
    below: defaultdict[str | None, list[Row]] = defaultdict(list)
    for row in found:
        above = row["parent_span_id"]
        below[above if above in present and above != row["span_id"] else None].append(row)
    ordered, seen = [], set()
    waiting = [(row, 0) for row in reversed(below[None])]
    while waiting:
        row, depth = waiting.pop()
        seen.add(row["span_id"])
        ordered.append(row | {"depth": depth})
        waiting += [(child, depth + 1) for child in reversed(below[row["span_id"]])]
    ordered += [row | {"depth": 0} for row in found if row["span_id"] not in seen]
    first, whole = min((row["start_ns"] for row in found), default=0), max(_span_of(found), 1)
    for row in ordered:
        left = _WIDE * (row["start_ns"] - first) / whole
        row["x"] = round(min(left, _WIDE - 3), 2)
        row["width"] = round(max(3.0, min(_WIDE - row["x"], _WIDE * (row["end_ns"] - row["start_ns"]) / whole)), 2)
    return ordered


def _span_of(found: list[Row]) -> int:
    return max((row["end_ns"] for row in found), default=0) - min((row["start_ns"] for row in found), default=0)


def _describe(own: DuckDBPyConnection, id: str, shown: list[Row], show: bool) -> None:
    """Puts to each span what its stage says of it, and what defenses did there."""
    stages = {row["span_id"]: row for row in rows(own, _STAGES, trace=id)}
    said = {row["span_id"]: row for row in rows(own, _GENERATIONS, trace=id)}
    effects: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows(own, _EFFECTS, trace=id):
        row["error"] = fit(row["error"], show, _SHORT)
        effects[row["span_id"]].append(row)
    for row in shown:
        stage, made = stages.get(row["span_id"], {}), said.get(row["span_id"], {})
        query = made.get("query") if made else stage.get("query")
        texts = {
            "query": query, "query sent": stage.get("query_after_defense"), "prompt": made.get("prompt"),
            "response": made.get("response"), "status": row["status_message"],
        }  # fmt: skip
        row["texts"] = {k: fit(v, show, _TEXT) for k, v in texts.items() if v}
        row["told"] = {
            k: v for k, v in {
                "model": made.get("model") or stage.get("model"), "framework": row["framework"], "path": row["path"],
                "arm": row["arm"], "run": row["run_id"], "probe": row["probe_id"], "error": stage.get("error_type"),
                "service": row["service"], "instrumentation": row["scope"], "dialect": row["dialect"],
                "told better by span": row["duplicate_of"], "inside another stage": "yes" if row["nested"] else None,
                **{k.replace("_", " "): made.get(k) for k in _NUMBERS},
            }.items() if v is not None
        }  # fmt: skip
        row["effects"] = effects[row["span_id"]]
        row["attributes"], row["more"] = _attributes(row.pop("attributes"), show)


def _attributes(told: str | None, show: bool) -> tuple[list[tuple[str, str]], int]:
    """Keys, and values fit to be shown; how many more there are."""
    try:
        found = json.loads(told or "{}")
    except (ValueError, RecursionError):
        return [("not readable", fit(told, show, _SHORT) or "")], 0
    if not isinstance(found, dict):
        return [], 0
    made = []
    for key in sorted(found)[:_ATTRIBUTES]:
        value = found[key]
        open = show or key in _NAMES or isinstance(value, bool | int | float)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        made.append((key, fit(text, open, _SHORT) or ""))
    return made, max(0, len(found) - _ATTRIBUTES)


def _documents(own: DuckDBPyConnection, id: str, show: bool) -> list[Row]:
    found = rows(own, _DOCS, trace=id, most=_DOCUMENTS)
    for row in found:
        row["content"] = fit(row["content"], show, _TEXT)
    return found


def _canaries(own: DuckDBPyConnection, id: str, show: bool) -> list[Row]:
    found = rows(own, _CANARIES, trace=id, most=_HITS)
    for row in found:
        row["canary"] = fit(row["canary"], show, _SHORT)
    return found


def _facts(tree: list[Row]) -> dict[str, list[str]]:
    """Where the trace belongs."""
    columns = {"path": "path", "arm": "arm", "run": "run_id", "probe": "probe_id"}
    found = {name: list(dict.fromkeys(row[column] for row in tree if row[column])) for name, column in columns.items()}
    return {name: values[:10] for name, values in found.items() if values}
