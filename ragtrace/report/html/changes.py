"""What each defense did, in one trace at a time: before and after.

Query and documents are stored before and after. Of a prompt and a response the store holds what came out, so the
*before* is the answer to the same probe in the undefended arm, and is named so; without one there are the lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragtrace.report.html.words import compare

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]

_EACH = 2  # traces shown of each defense and hook
_PAIRS = 40  # defenses and hooks
_DOCUMENTS = 5
_CHOSEN = """
SELECT defense, hook, trace_id, span_id, run_id, probe_id, arm, path, ids_changed, order_changed, scores_changed,
    text_changed, metadata_changed, chars_before, chars_after, documents_before, documents_after, buffered
FROM effects WHERE status = 'changed' AND NOT late AND ($run IS NULL OR run_id = $run)
    AND ($trace IS NULL OR trace_id = $trace)
QUALIFY row_number() OVER (PARTITION BY defense, hook ORDER BY text_changed DESC, probe_id NULLS LAST, arm, trace_id,
    span_id) <= $each
ORDER BY defense, list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook), probe_id, trace_id
LIMIT $most
"""
_TEXTS = """
SELECT trace_id, last(prompt ORDER BY start_time, span_id) AS prompt,
    last(response ORDER BY start_time, span_id) AS response
FROM generations WHERE NOT nested AND trace_id IN (SELECT unnest($traces::VARCHAR[])) GROUP BY trace_id
"""
_DOCS = """
SELECT trace_id, span_id, phase, rank, document_id, score, content FROM documents
WHERE phase <> 'in_prompt' AND trace_id IN (SELECT unnest($traces::VARCHAR[])) ORDER BY ALL
"""
_QUERIES = """
SELECT trace_id, any_value(query) AS before, any_value(query_after_defense) AS after FROM stages
WHERE query_after_defense IS NOT NULL AND trace_id IN (SELECT unnest($traces::VARCHAR[])) GROUP BY trace_id
"""
_TWINS = """
SELECT DISTINCT trace_id, baseline_trace_id FROM paired
WHERE ($run IS NULL OR run_id = $run) AND trace_id IN (SELECT unnest($traces::VARCHAR[]))
    AND baseline_trace_id IS NOT NULL
"""


def changes(
    db: duckdb.DuckDBPyConnection,
    run: str | None,
    show: bool,
    each: int = _EACH,
    documents_each: int = _DOCUMENTS,
    trace: str | None = None,
) -> list[Row]:
    """Examples for each defense and hook that changed something; texts are masked unless ``show``.

    :param trace: only what happened in this one.
    """
    found = _rows(db, _CHOSEN, run=run, each=each, most=each * _PAIRS, trace=trace)
    traces = sorted({row["trace_id"] for row in found})
    twins = dict(db.execute(_TWINS, {"run": run, "traces": traces}).fetchall()) if traces else {}
    texts = {row["trace_id"]: row for row in _rows(db, _TEXTS, traces=sorted({*traces, *twins.values()}))}
    queries = {row["trace_id"]: row for row in _rows(db, _QUERIES, traces=traces)}
    documents: dict[tuple[str, str], list[Row]] = {}
    for row in _rows(db, _DOCS, traces=traces):
        documents.setdefault((row["trace_id"], row["span_id"]), []).append(row)
    for row in found:
        row["what"] = ", ".join(
            k for k in ("text", "ids", "order", "scores", "metadata") if row.pop(f"{k}_changed")
        )  # fmt: skip
        row |= {"texts": [], "documents": [], "against": None}
        if row["hook"] in ("retrieval", "content"):
            row["documents"] = _documents(documents.get((row["trace_id"], row["span_id"]), []), show)[:documents_each]
        elif row["hook"] == "query":
            row["texts"] = _pieces(queries.get(row["trace_id"]), show)
        else:
            twin = twins.get(row["trace_id"])
            ours, theirs = texts.get(row["trace_id"], {}), texts.get(twin or "", {})
            row["texts"] = _pieces({"before": theirs.get(row["hook"]), "after": ours.get(row["hook"])}, show)
            row["against"] = twin if row["texts"] else None
    return found


def _pieces(texts: Row | None, show: bool) -> list[tuple[str, str]]:
    if texts is None or texts["before"] is None or texts["after"] is None:
        return []
    return compare(texts["before"], texts["after"], show)


def _documents(found: list[Row], show: bool) -> list[Row]:
    """Each document's rank, score and text, before and after; those with other text first."""
    before = {row["document_id"]: row for row in found if row["phase"] == "retrieved"}
    after = {row["document_id"]: row for row in found if row["phase"] == "after_defense"}
    made = []
    for id in dict.fromkeys([*before, *after]):
        old, new = before.get(id, {}), after.get(id, {})
        texts = {"before": old.get("content"), "after": new.get("content")}
        told = {k: (old.get(k), new.get(k)) for k in ("rank", "score")}
        pieces = _pieces(texts, show) if texts["before"] != texts["after"] else []
        made.append({"document_id": id, **told, "texts": pieces})
    made.sort(key=lambda row: (not row["texts"], row["rank"][1] or 10**9, row["rank"][0] or 10**9))
    return made


def _rows(db: duckdb.DuckDBPyConnection, query: str, **given: Any) -> list[Row]:
    answer = db.execute(query, given)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
