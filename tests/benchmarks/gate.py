"""`ragtrace check` on a large store: every rule at once, with a baseline, and each thing that they look at by itself.

    python tests/benchmarks/gate.py [--spans 1000000] [--store FILE] [--views]

The store is made by SQL: requests of four spans of ours (about 2 KB each), a fifth of them an audit's probes in the arms
none and masked, the rest traffic; two declared defenses, one of which changes the response and one the documents; 250
canaries of five families, some of which stand in documents and a few in answers. Times are on the clock and of the
processor; memory is the most that the process held at a time. With --store the file is kept, and used again.
"""

# ruff: noqa: E501 (SQL)
from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ragtrace
from ragtrace.canaries import FAMILIES, mint
from ragtrace.gate import Policy, check, read
from ragtrace.store.canary_search import search_for_planted

POLICY = """
[defenses_act]
allow = ["dormant"]
[no_undeclared]
[no_canary]
[losses]
[probes]
[[metric_bound]]
metric = "canary_recovery"
upper_bound = 0.1
[not_worse]
"""
WORDS = "the patient record shows that a visit was made for pain in the left knee and the dose was changed to".split()
PLANTED = 50  # canaries of each family

# One row a request; every text is made of words drawn by a hash, so that no two are alike.
REQUESTS = """
CREATE TEMP MACRO words(n, salt) AS list_aggregate(
    list_transform(range(n), lambda i: $words[1 + (hash(i, salt) % len($words))::BIGINT]), 'string_agg', ' ');
CREATE TEMP TABLE requests AS
SELECT n, printf('%032x', n + 1) AS trace_id, n % 5 = 0 AS asked, if(n % 10 = 0, 'none', 'masked') AS arm,
    ['invoke', 'ainvoke', 'stream'][1 + n % 3] AS path,
    words(12, hash(n, 'q')) AS query,
    words(80, hash(n, 'a')) || if(n % 5 = 0 AND hash(n) % 100 = 0, ' ' || $canaries[1 + n % len($canaries)], '') AS answer,
    list_transform(range(5), lambda d: words(70, hash(n, d))
        || if(n % 5 = 0 AND d = 2, ' ' || $canaries[1 + (hash(n) % len($canaries))::BIGINT], '')) AS texts
FROM range($requests) r(n)
"""
SPANS = """
INSERT INTO span_data BY NAME
WITH common AS (
    SELECT *, json_object('ragtrace.framework', 'langchain', 'ragtrace.path', path, 'ragtrace.capture', 'full') AS base,
        list_transform(texts, lambda t, i: {'id': 'd' || (i - 1), 'score': 0.5, 'hash': md5(t), 'chars': len(t), 'content': t}) AS found,
        array_to_string(texts, chr(10)) || query AS prompt,
        if(arm = 'masked' OR NOT asked, to_json([{'defense': 'regex_mask', 'hook': 'response', 'status': if(n % 4 = 0, 'changed', 'unchanged'),
            'chars_before': 400, 'chars_after': 400 + (n % 4 = 0)::INT, 'duration_us': 60}]), NULL) AS answered,
        if(arm = 'masked' OR NOT asked, to_json([{'defense': 'similarity_threshold', 'hook': 'retrieval', 'status': if(n % 8 = 0, 'changed', 'unchanged'),
            'documents_before': 5, 'documents_after': 5, 'duration_us': 9}]), NULL) AS threshold
    FROM requests
), parts AS (
    SELECT *, unnest([
        {'k': 0, 'stage': NULL, 'effects': NULL, 'own': if(asked, json_object('ragtrace.probe', json_object('attack', 'canary',
            'corpus', 'synthetic', 'seed', 1, 'query', query, 'canary', $canaries[1 + n % len($canaries)])::VARCHAR), '{}'::JSON)},
        {'k': 1, 'stage': 'retrieval', 'effects': threshold, 'own': json_object('gen_ai.retrieval.query.text', query,
            'gen_ai.retrieval.documents', to_json(found)::VARCHAR, 'ragtrace.documents.after_defense',
            to_json(list_transform(range(5), lambda i: {'id': 'd' || i, 'of': i}))::VARCHAR)},
        {'k': 2, 'stage': 'context', 'effects': NULL, 'own': json_object('ragtrace.documents.in_prompt',
            to_json(list_transform(found, lambda f: {'id': f.id, 'run': f.chars, 'whole': true, 'hash': f.hash}))::VARCHAR)},
        {'k': 3, 'stage': 'generation', 'effects': answered, 'own': json_object('gen_ai.request.model', 'm', 'ragtrace.query', query,
            'gen_ai.input.messages', to_json([{'role': 'user', 'parts': [{'type': 'text', 'content': prompt}]}])::VARCHAR,
            'gen_ai.output.messages', to_json([{'role': 'assistant', 'parts': [{'type': 'text', 'content': answer}]}])::VARCHAR,
            'ragtrace.response.hash', md5(answer))}]) AS p
    FROM common
)
SELECT trace_id, printf('%016x', n * 4 + p.k + 1) AS span_id,
    if(p.k = 0, NULL, printf('%016x', n * 4 + 1)) AS parent_span_id,
    coalesce(p.stage, 'pipeline') AS name, 'INTERNAL' AS kind, 1790000000000000000 + n * 1000 + p.k AS start_ns,
    start_ns + 500 AS end_ns, 'OK' AS status, 'app' AS service, 'ragtrace' AS scope, 'ragtrace' AS dialect,
    'langchain' AS framework, path, if(asked, 'run', NULL) AS run_id, if(asked, 'p' || (n // 10), NULL) AS probe_id,
    if(asked, arm, NULL) AS arm, p.stage, false AS nested,
    if(p.k = 0 AND (arm = 'masked' OR NOT asked), '{"regex_mask":["response"],"similarity_threshold":["retrieval"]}', NULL) AS declared,
    p.effects::VARCHAR AS effects, json_merge_patch(base, p.own) AS attributes, '[]'::JSON AS events,
    '{"service.name":"app"}'::JSON AS resource
FROM parts
"""
RUN = """
INSERT INTO span_data BY NAME SELECT repeat('f', 32) AS trace_id, repeat('f', 16) AS span_id, 'run' AS name, 1 AS start_ns,
    2 AS end_ns, 'OK' AS status, 'ragtrace' AS scope, 'ragtrace' AS dialect, 'run' AS run_id, false AS nested, json_object('ragtrace.run', $run) AS attributes
"""
RESULT = """
INSERT INTO result_data BY NAME SELECT 'run' AS run_id, unnest(['none', 'masked']) AS arm, 'canary' AS attack,
    'synthetic' AS corpus, 'canary_recovery' AS metric, 'response' AS channel, 0.01 AS value, 0.005 AS ci_low,
    0.02 AS ci_high, 1000 AS n, 'interpretable' AS interpretable
"""


def make(file: Path, spans: int) -> None:
    """A store of that many spans."""
    canaries = mint(PLANTED, 1, tuple(FAMILIES))
    families = [family for family in FAMILIES for _ in range(PLANTED)]
    planted = [
        {"text": c, "family": f, "document_id": f"d{i}"}
        for i, (c, f) in enumerate(zip(canaries, families, strict=True))
    ]
    with ragtrace.open(file) as db:
        create, fill = REQUESTS.strip().split(";\n", 1)
        db.execute(create.replace("$words", json.dumps(WORDS).replace('"', "'")))
        db.execute(fill, {"canaries": canaries, "requests": spans // 4})
        db.execute(SPANS, {"canaries": canaries})
        db.execute(RUN, {"run": json.dumps({"canaries": planted})})
        db.execute(RESULT)
        search_for_planted(db)  # as a merge does


def measured(work: Callable[[], Any]) -> str:
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return f"{time.perf_counter() - clock:7.1f} s on the clock {time.process_time() - processor:7.1f} s of processor"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--spans", type=int, default=1_000_000)
    asked.add_argument("--store", type=Path, help="keep the store here, or use the one that is there")
    asked.add_argument("--views", action="store_true", help="also each view by itself")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        file = given.store or Path(name, "traces.duckdb")
        if not file.exists():
            print(f"made in {measured(lambda: make(file, given.spans))}")
        print(f"{file.stat().st_size / 1e6:.0f} MB")
        policy = Path(name, "policy.toml")
        policy.write_text(POLICY)
        rules = read(policy)
        if given.views:
            with ragtrace.open(file) as db:
                for view in ("effects", "coverage", "verdicts", "probes", "generations", "canaries", "canary_hits"):
                    print(
                        f"{view:16}{measured(lambda view=view: db.execute(f'SELECT count(*) FROM (FROM {view})').fetchall())}"
                    )
        before = Path(name, "baseline.duckdb")
        shutil.copyfile(file, before)
        for listed in rules.rules:
            lone = Policy((listed,), rules.no_data, rules.source)
            baseline = before if listed.rule.name == "not_worse" else None
            print(f"{listed.rule.name:16}{measured(lambda lone=lone, baseline=baseline: check(file, lone, baseline))}")
        gates = []
        print(f"{'all rules':16}{measured(lambda: gates.append(check(file, rules, before)))}")
        for outcome in gates[0].outcomes:
            print(f"  {outcome.rule}: {len(outcome.findings)} findings")
    scale = 1 if sys.platform == "darwin" else 1024
    print(f"most memory held: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
