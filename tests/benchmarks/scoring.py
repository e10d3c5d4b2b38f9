"""Scoring stored generations: ragtrace.score against a plain loop, in one run, on the same rows, same results.

The plain loop reads responses and targets by one query, calls ``sacrebleu.sentence_bleu`` for each, and bootstraps
the AUC of each arm by ``sklearn.metrics.roc_auc_score`` over 2,000 stratified resamples. Its time is extrapolated
from ``--share`` of the pairs and of the resamples; results are compared on all pairs that it did. Importing is not
timed on either side, and times are of the processor. Texts are made of the passages of
nq.jsonl (``RAGTRACE_DATA`` or ../shared/data): a member's answer repeats a part of its target, others take another
passage; 2 arms.

    python tests/benchmarks/scoring.py [--rows 100000] [--share 0.1] [--all]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import sacrebleu
from sklearn.metrics import roc_auc_score

import ragtrace
import ragtrace.stats
from ragtrace.score import score

RESAMPLES = 2_000
DATA = Path(os.environ.get("RAGTRACE_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def now() -> float:
    """Seconds of processor time, of all threads and children: what else runs on the machine counts for neither side."""
    return sum(os.times()[:4])


def rows(count: int):
    """(probe id, arm, target, response, perplexity, is member)."""
    with (DATA / "nq.jsonl").open(encoding="utf-8") as file:
        entries = [json.loads(line) for line in file]
    passages = [(e["question"], e["passage"].split()) for e in entries if e["passage"]]
    rng = random.Random(0)
    for i in range(count // 2):
        question, words = rng.choice(passages)
        start = rng.randrange(max(1, len(words) - 40))
        target = f"{question}\n{' '.join(words[start : start + rng.randint(40, 90)])}"
        member = i % 2 == 0
        for arm in ("none", "paraphrase"):
            near = member and rng.random() < (0.6 if arm == "none" else 0.3)
            said = words if near else rng.choice(passages)[1]
            at = start if near else rng.randrange(len(said))
            response = " ".join(said[at : at + rng.randint(10, 60)])
            yield f"s2mia-1-{i:06d}", arm, target, response, rng.lognormvariate(0.6 if near else 0.8, 0.3), member


def fill(db, found) -> None:
    """One request and one model call for each row, as the store keeps them."""
    spans = []
    for i, (probe, arm, target, response, perplexity, member) in enumerate(found):
        asked = {
            "attack": "s2mia", "corpus": "nq", "seed": 1, "query": target.split("\n")[0], "target_id": probe,
            "target_text": target, "is_member": member,
        }  # fmt: skip
        said = {
            "ragtrace.query": asked["query"], "gen_ai.request.model": "m",
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"content": asked["query"]}]}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"content": response}]}]),
            "ragtrace.mean_logprob": -float(np.log(perplexity)),
        }  # fmt: skip
        both = ((None, {"ragtrace.probe": json.dumps(asked)}, "invoke"), ("generation", said, "invoke"))
        for j, (stage, attributes, path) in enumerate(both):
            spans.append((f"{i:032x}", f"{2 * i + j:016x}", f"{2 * i:016x}" if j else None, stage or "pipeline",
                          i * 1000 + j, i * 1000 + j + 1, "OK", "ragtrace", path, "run", probe, arm, stage, False,
                          json.dumps(attributes)))  # fmt: skip
    columns = (
        "trace_id, span_id, parent_span_id, name, start_ns, end_ns, status, dialect, path, run_id, probe_id, arm, "
        "stage, nested, attributes"
    )
    names = columns.split(", ")
    db.register("given", pa.table(dict(zip(names, (pa.array(c) for c in zip(*spans, strict=True)), strict=True))))
    db.execute(f"INSERT INTO span_data ({columns}) SELECT * FROM given")
    db.unregister("given")


def plain(db, share: float):
    """(seconds for all, BLEU by arm and probe, AUC by arm): what one writes first."""
    start = now()
    asked = db.execute(
        "SELECT p.arm, p.probe_id, g.response, p.target_text, p.is_member FROM probes p "
        "JOIN generations g USING (trace_id) ORDER BY hash(p.probe_id), p.arm"
    ).fetchall()
    read = now() - start
    some = asked[: max(1, round(len(asked) * share))]
    start = now()
    scores = {(arm, probe): sacrebleu.sentence_bleu(r, [t]).score for arm, probe, r, t, _ in some}
    bleu = (now() - start) / len(some) * len(asked)
    rows = db.execute("SELECT arm, probe_id, value FROM scores WHERE metric = 'bleu'").fetchall()
    stored = {(arm, probe): value for arm, probe, value in rows}
    bootstrap, areas = 0.0, {}
    for arm in dict.fromkeys(row[0] for row in asked):
        mine = [row for row in asked if row[0] == arm]
        labels = np.array([row[4] for row in mine])
        values = np.array([scores.get(row[:2], stored[row[:2]]) for row in mine])
        areas[arm] = roc_auc_score(labels, values)
        members, others = np.flatnonzero(labels), np.flatnonzero(~labels)
        rng = np.random.default_rng(0)
        done = max(1, round(RESAMPLES * share))
        start = now()
        for _ in range(done):
            drawn = np.concatenate([rng.choice(members, len(members)), rng.choice(others, len(others))])
            roc_auc_score(labels[drawn], values[drawn])
        bootstrap += (now() - start) / done * RESAMPLES
    return (read, bleu, bootstrap), scores, areas, stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.1, help="of the plain loop that is really run")
    parser.add_argument("--all", action="store_true", help="also time all metrics that need not be named")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ragtrace.open(f"{folder}/t.duckdb") as db:
        fill(db, rows(args.rows))
        if args.all:
            start = now()
            count = score(db)
            print(f"all {count} results that need not be asked for: {now() - start:.1f} s")
        start, began = now(), time.perf_counter()
        score(db, metrics=["bleu_roc_auc"])
        ours, wall = now() - start, time.perf_counter() - began
        parts, scores, areas, stored = plain(db, args.share)
        found = {
            arm: (value, low, high)
            for arm, value, low, high in db.execute("SELECT arm, value, ci_low, ci_high FROM results").fetchall()
        }
    worst = max(abs(stored[key] - value) for key, value in scores.items())
    assert worst < 1e-9, worst
    for arm, area in areas.items():
        value, low, high = found[arm]
        assert abs(value - area) < 1e-12, (arm, value, area)
        print(f"AUC {arm}: {value:.4f} [{low:.4f}, {high:.4f}]")
    print(
        f"BLEU equal to sacrebleu's in {len(scores)} of {len(scores)} pairs compared (largest difference {worst:.1e})"
    )
    read, bleu, bootstrap = parts
    total = sum(parts)
    print(
        f"n = {args.rows}: ragtrace.score {ours:.1f} s (by the clock {wall:.1f} s); plain loop {total:.1f} s "
        f"(reading {read:.1f}, BLEU {bleu:.1f}, bootstrap {bootstrap:.1f}; extrapolated from {args.share:.0%}): "
        f"{total / ours:.1f} times faster"
    )


if __name__ == "__main__":
    main()
