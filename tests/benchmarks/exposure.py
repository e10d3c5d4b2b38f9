"""Passive exposure over many generations: seconds, seconds of processor, and the most memory that each process held.

    python tests/benchmarks/exposure.py [--generations 50000] [--documents 5] [--chars 500] [--memory 1GB]

Each request is four spans, as ragtrace records them: the call, a retrieval, the context with what of it stood in the
prompt, and the model call with prompt and answer. Texts are passages of nq.jsonl (``RAGTRACE_DATA`` or
../shared/data), drawn with a fixed seed and cut to size; every fourth answer quotes one of its documents for 20 words.
The store is made by a process of its own, so that what is printed is the measurement's alone. Exit code 1 where a
million of them would take longer than ten minutes, by the clock; or where the quotes are not found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

import ragtrace
from ragtrace.store.exposure import measure

DATA = Path(os.environ.get("RAGTRACE_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
COLUMNS = ("trace_id", "span_id", "parent_span_id", "name", "stage", "start_ns", "end_ns", "attributes")
CONSTANT = """
INSERT INTO span_data BY NAME SELECT *, 'INTERNAL' AS kind, 'OK' AS status, 'app' AS service, 'ragtrace' AS scope,
    'ragtrace' AS dialect, 'langchain' AS framework, 'invoke' AS path, false AS nested, '[]' AS events,
    '{"service.name":"app"}' AS resource FROM made
"""
QUOTED, FOUND = 20, 15  # what is put into an answer, between blanks; words of it that must be found
TRACES = 5_000  # inserted at once
START, STEP = 1_790_000_000_000_000_000, 1_000_000
TARGET = 600  # seconds for a million
MB = 1 << 10  # in the kilobytes of getrusage


def passages(chars: int) -> list[str]:
    with (DATA / "nq.jsonl").open(encoding="utf-8") as file:
        found = [row["passage"] for row in map(json.loads, file) if row["passage"]]
    while any(len(text) < chars for text in found):
        found = [one if len(one) >= chars else f"{one} {other}" for one, other in pairwise([*found, found[0]])]
    return [text[:chars] for text in found]


def message(role: str, text: str) -> bytes:
    return orjson.dumps([{"role": role, "parts": [{"type": "text", "chars": len(text), "content": text}]}])


def spans(number: int, texts: list[str], documents: int, source: random.Random) -> Iterator[tuple[Any, ...]]:
    """The spans of one request, in the order in which they end."""
    drawn = source.sample(range(len(texts)), documents + 1)
    *read, own = drawn
    answer = texts[own]
    if number % 4 == 0:
        quote = " ".join(texts[read[0]].split()[5 : 5 + QUOTED])
        answer = f"{answer[: len(answer) // 3]} {quote} {answer[len(answer) // 3 :]}"[: len(answer)]
    trace = f"{source.getrandbits(128) | 1:032x}"
    root, *ids = (f"{source.getrandbits(64) | 1:016x}" for _ in range(4))
    found = [
        {"id": f"d{n}", "score": 0.5, "hash": f"{n:032x}", "chars": len(texts[n]), "content": texts[n]} for n in read
    ]
    stood = [{"of": i, "id": f"d{n}", "start": 0, "run": len(texts[n]), "at": 0, "whole": True, "hash": f"{n:032x}"}
             for i, n in enumerate(read)]  # fmt: skip
    query = f"question {number}?"
    prompt = "\n\n".join(texts[n] for n in read) + query
    told: list[tuple[str, str | None, dict[str, Any]]] = [
        ("retrieval", ids[0], {"gen_ai.retrieval.query.text": query,
                               "gen_ai.retrieval.documents": orjson.dumps(found).decode()}),
        ("context", ids[1], {"ragtrace.documents.in_prompt": orjson.dumps(stood).decode()}),
        ("generation", ids[2], {"ragtrace.query": query, "gen_ai.request.model": "m",
                                "gen_ai.input.messages": message("user", prompt).decode(),
                                "gen_ai.output.messages": message("assistant", answer).decode()}),
        ("", root, {"user.id": f"u{number % 1_000}"}),
    ]  # fmt: skip
    start = START + number * STEP
    for stage, id, attributes in told:
        given = orjson.dumps({"ragtrace.path": "invoke", "ragtrace.stage": stage} | attributes).decode()
        yield trace, id, root if stage else None, stage or "chain", stage or None, start, start + STEP, given


def build(database: Path, generations: int, documents: int, chars: int) -> None:
    texts, source = passages(chars), random.Random(1)
    with ragtrace.open(database) as db:
        db.execute("SET memory_limit = '2GB'")
        for first in range(0, generations, TRACES):
            numbers = range(first, min(first + TRACES, generations))
            rows = [span for n in numbers for span in spans(n, texts, documents, source)]
            columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
            db.register("made", pa.table(columns))
            db.execute(CONSTANT)
            db.unregister("made")


def used(who: int) -> tuple[float, int]:
    """Seconds of processor, and kilobytes at most."""
    found = resource.getrusage(who)
    return found.ru_utime + found.ru_stime, found.ru_maxrss


def compare(database: Path, generations: int, documents: int, memory: str) -> bool:
    """Measures all, prints what it took, and says whether it is as it should be."""
    print(f"{generations} generations, {database.stat().st_size / 1e6:,.0f} MB")
    start, held = time.perf_counter(), []
    with ragtrace.open(database) as db:
        db.execute("SET memory_limit = ?", [memory])
        measure(db, tell=lambda done, of: held.append((done / of, used(resource.RUSAGE_SELF)[1] / MB)))
        took = time.perf_counter() - start
        [(pairs, quoting)] = db.execute(
            "SELECT count(*), count(DISTINCT span_id) FILTER (longest_run >= ?) FROM exposure", [FOUND]
        ).fetchall()
    (own, _), (others, peak) = used(resource.RUSAGE_SELF), used(resource.RUSAGE_CHILDREN)
    cores, million = os.cpu_count() or 1, 1e6 / generations
    middle = next(memory for share, memory in held if share >= 0.5)
    print(f"{took:.1f} s on {cores} processors; {own:.1f} s of processor here, {others:.1f} s in other processes")
    print(f"a million: {took * million:.0f} s by the clock, {(own + others) * million / cores:.0f} s by processor")
    print(
        f"memory at most: {middle:.0f} MB after half of it, {held[-1][1]:.0f} MB after all; others {peak / MB:.0f} MB"
    )
    print(f"{pairs} pairs; {quoting} answers quote {FOUND} words or more, {(generations + 3) // 4} were made to")
    return pairs == generations * documents and quoting >= generations // 4 and took * million <= TARGET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=50_000)
    parser.add_argument("--documents", type=int, default=5)
    parser.add_argument("--chars", type=int, default=500)
    parser.add_argument("--memory", default="1GB", help="DuckDB's, as `ragtrace exposure` sets it")
    parser.add_argument("--step", choices=("build", "compare"), help=argparse.SUPPRESS)
    parser.add_argument("--database", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step == "build":
        build(args.database, args.generations, args.documents, args.chars)
    elif args.step == "compare":
        sys.exit(0 if compare(args.database, args.generations, args.documents, args.memory) else 1)
    else:
        with tempfile.TemporaryDirectory() as folder:
            for step in ("build", "compare"):  # each in a process of its own: its memory is then its alone
                more = ("--step", step, "--database", f"{folder}/t.duckdb")
                code = subprocess.run([sys.executable, *sys.argv, *more]).returncode
                if code:
                    sys.exit(code)


if __name__ == "__main__":
    main()
