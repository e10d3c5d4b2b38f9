"""How long the trace viewer takes on a million spans: the list, its filters, the search in texts, one trace.

    python tests/benchmarks/ui.py [spans]

Makes the store with DuckDB alone (four spans of about 1.4 KB a trace, as in a RAG trace; a bypass on every stream),
then asks the pages as a browser does. Exits with 1 where a page takes more than a second of processor time (what other
programs of the machine do is not counted; DuckDB may share it between two threads). The clock is printed beside it.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

import ragtrace
from ragtrace.ui.app import Viewer
from ragtrace.ui.guard import Address
from ragtrace.ui.reading import Store

LIMIT = 1.0
RARE, EVERY = "Zebulon Quill", 9_973  # a name that one answer in so many holds
BATCH = 25_000  # traces
WORDS = "the patient record shows that a visit was made for pain in the left knee and the dose was changed to".split()
START, STEP = 1_790_000_000_000_000_000, 40_000_000

_MAKE = f"""
INSERT INTO span_data BY NAME
WITH t AS (
    SELECT range AS i, md5(range::VARCHAR) AS trace_id, {START} + range * {STEP} AS s,
        ['invoke', 'ainvoke', 'stream', 'batch'][1 + range % 4] AS path
    FROM range($low, $high)
), x AS (
    SELECT *, words(12, i) AS query, [words(70, i + n) FOR n IN range(1, 6)] AS texts,
        if(i % {EVERY} = 0, '{RARE} ', '') || words(80, i + 6) AS answer
    FROM t
)
SELECT trace_id, substr(md5(i || '-' || k), 1, 16) AS span_id,
    CASE WHEN k > 0 THEN substr(md5(i || '-0'), 1, 16) END AS parent_span_id,
    ['pipeline', 'retrieval', 'context', 'generation'][k + 1] AS name, 'INTERNAL' AS kind,
    s + k * 1000000 AS start_ns,
    s + (k + 1) * 1000000 + if(k = 0, 5000000 + (hash(i) % 3000000000)::BIGINT, 0) AS end_ns,
    if(k = 3 AND i % 997 = 0, 'ERROR', 'OK') AS status, 'app' AS service, 'ragtrace' AS scope, 'ragtrace' AS dialect,
    'langchain' AS framework, path, [NULL, 'retrieval', 'context', 'generation'][k + 1] AS stage, false AS nested,
    CASE WHEN k = 0 THEN '{{"house-mask":["response"],"regex-mask":["content","query"]}}' END AS declared,
    CASE WHEN k = 3 AND path <> 'stream' THEN '[' || json_object('defense', 'house-mask', 'hook', 'response',
            'status', if(i % 5 = 0, 'changed', 'unchanged'), 'text_changed', i % 5 = 0) || ']'
        WHEN k = 1 THEN '[' || json_object('defense', 'regex-mask', 'hook', 'content',
            'status', if(i % 3 = 0, 'changed', 'unchanged'), 'text_changed', i % 3 = 0) || ','
            || json_object('defense', 'regex-mask', 'hook', 'query', 'status', 'unchanged') || ']' END AS effects,
    CASE k WHEN 0 THEN json_object('ragtrace.path', path, 'input', query)
        WHEN 1 THEN json_object('ragtrace.stage', 'retrieval', 'gen_ai.retrieval.query.text', query,
            'gen_ai.retrieval.documents', to_json(list_transform(texts, lambda t, n:
                {{id: 'd' || n, score: 1 / n, hash: md5(t), chars: length(t), content: t}}))::VARCHAR,
            'ragtrace.documents.after_defense', to_json(list_transform(texts[:3], lambda t, n:
                {{id: 'd' || n, content: replace(t, 'patient', '[PERSON]')}}))::VARCHAR)
        WHEN 2 THEN json_object('ragtrace.stage', 'context', 'ragtrace.documents.in_prompt',
            to_json([{{id: 'd1', run: 400, whole: true, hash: md5(texts[1])}}])::VARCHAR)
        ELSE json_object('ragtrace.stage', 'generation', 'ragtrace.query', query,
            'gen_ai.request.model', if(i % 50 = 0, 'large', 'small'),
            'gen_ai.input.messages', to_json([{{role: 'user', parts: [
                {{type: 'text', content: array_to_string(texts, ' ') || query}}]}}])::VARCHAR,
            'gen_ai.output.messages', to_json([{{role: 'assistant', parts: [
                {{type: 'text', content: answer}}]}}])::VARCHAR)
    END AS attributes,
    '[]'::JSON AS events, '{{"service.name":"app"}}'::JSON AS resource
FROM x, range(4) AS r(k)
"""


def made(path: Path, spans: int) -> Path:
    """A store of so many spans."""
    with ragtrace.open(path) as db:
        db.execute(
            f"CREATE TEMP MACRO words(n, seed) AS array_to_string("
            f"list_transform(range(n), lambda i: {WORDS}[1 + (hash(i, seed) % {len(WORDS)})::INT]), ' ')"
        )
        for low in range(0, spans // 4, BATCH):
            db.execute(_MAKE, {"low": low, "high": min(low + BATCH, spans // 4)})
        db.execute("CHECKPOINT")
    return path


def measured(work: Callable[[], Any]) -> tuple[Any, float, float]:
    clock, processors = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - clock, time.process_time() - processors


def main(spans: int = 1_000_000) -> int:
    slow = 0
    with tempfile.TemporaryDirectory() as folder:
        path = made(Path(folder, "traces.duckdb"), spans)
        print(f"{spans:,} spans, {path.stat().st_size / 1e6:,.0f} MB")
        viewer, clock, processors = measured(lambda: Viewer(Store(path), True))
        print(f"{'start':58} {clock:7.2f} s on the clock {processors:6.2f} s of processors")
        _, clock, processors = measured(viewer._index.verdicts.result)
        print(f"{'verdicts, behind the pages':58} {clock:7.2f} s on the clock {processors:6.2f} s of processors")
        client = TestClient(viewer.app(Address("127.0.0.1", 8123), "t" * 43), base_url="http://127.0.0.1:8123")
        client.get("/?token=" + "t" * 43)
        middle = viewer._index.cursor().execute("SELECT trace_id FROM traces WHERE n = ?", [spans // 8]).fetchone()[0]
        deep = f"{START + STEP * (spans // 16)}.x"
        for what, page in {
            "verdicts, known": "/",
            "traces, first page": "/traces",
            "traces, a page in the middle": f"/traces?before={deep}",
            "defense and what it did": "/traces?defense=house-mask&status=changed",
            "bypassed": "/traces?bypassed=1",
            "model and error": "/traces?model=large&failed=1",
            "path, since, duration": "/traces?path=stream&since=2026-09-21T14:20&slow=2900",
            "trace id": f"/traces?trace={middle[:8]}",
            "text in every answer": "/traces?text=patient",
            "text in one answer of ten thousand": "/traces?text=zebulon",
            "text in none": "/traces?text=nosuchword",
            "text in none, path and model": "/traces?text=nosuchword&path=stream&model=large",
            "one trace": f"/trace/{middle}",
            "one trace, again": f"/trace/{middle}",
        }.items():
            answer, clock, processors = measured(lambda page=page: client.get(page))
            assert answer.status_code == 200, answer.text
            reach = re.search(r"([\d,]+) traces were searched(, back to)?", answer.text)
            rest = "; a page full" if 'rel="next"' in answer.text else "; that is all" if reach else ""
            said = f"; {reach[1]} traces searched{'; more on the next page' if reach[2] else rest}" if reach else ""
            late = processors > LIMIT
            slow += late
            print(f"{what:58} {clock:7.2f} s on the clock {processors:6.2f} s of processors{said}{'  TOO SLOW' * late}")
        page, pages, processors = "/traces?text=nosuchword", 0, time.process_time()
        while page:
            html, pages = client.get(page).text, pages + 1
            onward = re.search(r'href="([^"]+)">search on', html)
            page = onward[1].replace("&amp;", "&") if onward else ""
        print(f"text in none, to the end: {pages} pages, {time.process_time() - processors:.2f} s of processors")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
