"""Detection of attacks in traffic: recall by attack, false alarms by benign source, precision at 1 % of attacks.

    python tests/benchmarks/detection.py [--attacks 200] [--share 1.0]

Benign sessions are ten questions each from NQ, TriviaQA and PubMedQA (``RAGTRACE_DATA`` or ../shared/data), every
question once, over an index of the real passages of NQ and PubMedQA (TF-IDF, top 5; no language model). Three harder
kinds stand beside: sessions about one thing, people who talk about documents, and abstracts indexed with their titles,
which are the very questions of PubMedQA. Attacks are our own classes. The threshold was fixed beforehand. Three details
of the signals were changed after a look at the harder kinds (a copy is 25 words, not 16; who asks what is allowed
commands nothing; giving back something unchanged is a weaker sign); NQ, TriviaQA and PubMedQA had no false alarm before
or after.

First the mix: benign sessions and 1 % attacks in one store, from which the habits of the store are learned. Then
further sessions of each attack and of wordings that the lexicon was not written from, judged in the same store. Exit
code 1 where a target is missed: recall ≥ .9 (PS, PM, RAG-Thief, S2MIA) at a false-alarm rate ≤ 1 % of benign sessions.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1]))

from detection_traffic import (
    ATTACKS,
    QUESTIONS,
    SOURCES,
    Library,
    Visit,
    attacked,
    benign,
    of_one_topic,
    questions,
    scripted,
    store,
)
from detection_wordings import AFTER, BEFORE, DOCUMENT_TALK, HELD_OUT, HELD_OUT_TALK, PUBLISHED

import ragtrace
from ragtrace.detection import detect
from ragtrace.detection.scoring import THRESHOLD
from ragtrace.stats.proportions import clopper_pearson

TARGETS = ("prompt_stealing", "prompt_manipulation", "rag_thief", "s2mia")


def rate(hits: int, n: int) -> str:
    if not n:
        return "no sessions"
    found = clopper_pearson(hits, n)
    return f"{hits:5d} of {n:5d}  {hits / n:6.3f}  [{found.low:.4f}, {found.high:.4f}]"


def suspicious(db: duckdb.DuckDBPyConnection, visits: Iterable[Visit]) -> dict[str, list[bool]]:
    """By kind of session, whether each is suspicious."""
    said = dict(db.execute("SELECT session, suspicious FROM suspicions").fetchall())
    found: dict[str, list[bool]] = defaultdict(list)
    for visit in visits:
        found[visit.kind].append(bool(said[f"session {visit.name}"]))
    return found


def fired(db: duckdb.DuckDBPyConnection, visits: Sequence[Visit]) -> str:
    """Share of the sessions in which each signal showed at all."""
    said = dict(db.execute("SELECT session, signals::MAP(VARCHAR, INTEGER) FROM suspicions").fetchall())
    counts: Counter[str] = Counter()
    for visit in visits:
        counts.update(name for name, n in said[f"session {visit.name}"].items() if n)
    return ", ".join(f"{name} {count / len(visits):.2f}" for name, count in counts.most_common()) or "none"


def worded(library: Library, name: str, wordings: Sequence[str], seed: int, obeyed: bool) -> list[Visit]:
    """Each wording as a session of ten topics; as the attacker of a script would send it."""
    source = random.Random(f"{name} {seed}")
    topics = [str(d.metadata["subject"]) for d in library.members]
    kind = f"{name}, {'obeyed' if obeyed else 'refused'}"
    return [
        scripted(library, [w.replace("{}", t) for t in source.sample(topics, QUESTIONS)], kind, f"{kind}-{n}", obeyed)
        for n, w in enumerate(wordings)
    ]


def mixed(library: Library, name: str, wordings: Sequence[str], seed: int, count: int, obeyed: bool) -> list[Visit]:
    """Ten different wordings a session, drawn by chance."""
    source = random.Random(f"{name} {seed}")
    topics = [str(d.metadata["subject"]) for d in library.members]
    kind = f"{name}, ten different, {'obeyed' if obeyed else 'refused'}"
    return [
        scripted(
            library,
            [w.replace("{}", source.choice(topics)) for w in source.sample(wordings, QUESTIONS)],
            kind,
            f"{kind}-{n}",
            obeyed,
        )
        for n in range(count)
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attacks", type=int, default=200, help="sessions of each attack, beside the mix")
    parser.add_argument("--share", type=float, default=1.0, help="of the benign questions")
    given = parser.parse_args()
    library, titled = Library(), Library(titles=True)
    asked, ordinary = questions(), []
    for name in SOURCES:
        random.Random(f"order {name}").shuffle(asked[name])
        ordinary += benign(library, asked[name][: int(len(asked[name]) * given.share)], name)
    few = max(1, round(len(ordinary) / 99 / len(ATTACKS)))
    mix = [attacked(library, attack, seed) for attack in ATTACKS for seed in range(few)]
    hard = of_one_topic(library, [pair for name in SOURCES for pair in asked[name]], min(300, len(ordinary)), 1)
    hard += benign(titled, asked["pubmedqa"], "pubmedqa, titles indexed")
    source = random.Random("talk")
    for kind, sentences in (("talk about documents", DOCUMENT_TALK), ("the same, held out", HELD_OUT_TALK)):
        talk = [(s, "Certainly.") for _ in range(200) for s in source.sample(sentences, QUESTIONS)]
        hard += benign(library, talk, kind)
    more = [attacked(library, attack, 1_000 + seed) for attack in ATTACKS for seed in range(given.attacks)]
    wordings = {"before": BEFORE, "after": AFTER, "held out": HELD_OUT, "published": [text for _, text in PUBLISHED]}
    other = [
        v
        for name, texts in wordings.items()
        for obeyed in (False, True)
        for v in worded(library, name, texts, 1, obeyed)
    ]
    other += [v for o in (False, True) for v in mixed(library, "held out", HELD_OUT, 2, 100, o)]
    with tempfile.TemporaryDirectory() as folder, ragtrace.open(Path(folder) / "t.duckdb") as db:
        spans = store(db, ordinary + mix)
        began = time.process_time()
        looked = detect(db)
        spent = time.process_time() - began
        each = spent / looked * 1e3
        print(f"{looked} sessions, {spans} spans: {spent:.1f} s of processor time, {each:.1f} ms a session")
        store(db, hard + more + other, seed=1)
        detect(db)
        false = suspicious(db, ordinary)
        true = suspicious(db, mix)
        print(f"\nThreshold {THRESHOLD}. False alarms in benign sessions, with 95 % intervals (Clopper-Pearson):")
        for kind, values in false.items():
            print(f"  {kind:28}{rate(sum(values), len(values))}")
        alarms, n = sum(map(sum, false.values())), sum(map(len, false.values()))
        print(f"  {'all':28}{rate(alarms, n)}")
        for kind, values in suspicious(db, hard).items():
            print(f"  {kind:28}{rate(sum(values), len(values))}")
        hits, attacks = sum(map(sum, true.values())), sum(map(len, true.values()))
        print(f"\nThe mix: {attacks} attacks among {attacks + n} sessions")
        print(f"  {'precision':28}{rate(hits, hits + alarms)}\n  {'recall':28}{rate(hits, attacks)}")
        print("\nRecall, by attack, and the share of its sessions that showed each signal:")
        missed = alarms > 0.01 * n
        for kind, values in suspicious(db, more).items():
            missed |= kind in TARGETS and sum(values) < 0.9 * len(values)
            print(f"  {kind:28}{rate(sum(values), len(values))}  {fired(db, [v for v in more if v.kind == kind])}")
        print("\nRecall, by wording (each a session of ten topics):")
        for kind, values in suspicious(db, other).items():
            print(f"  {kind:38}{rate(sum(values), len(values))}  {fired(db, [v for v in other if v.kind == kind])}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
