"""Detection of attacks in traffic: recall by attack, app and wording, false alarms by benign kind, with exact bounds.

    python tests/benchmarks/detection.py [--attacks 200] [--share 1.0]

Benign sessions are ten questions each from NQ, TriviaQA and PubMedQA (``RAGTRACE_DATA`` or ../shared/data), every
question once, over an index of the real passages of NQ and PubMedQA (TF-IDF, top 5; no language model). First the mix:
benign sessions and 1 % of our own attacks in one store, from which the habits of the store are learned. Then further
sessions, judged in the same store: each of our attacks and the attacks in other wordings, before an app that refuses,
one that obeys and one that answers beside the point; and benign kinds that are near to attacks.

Wordings: *development* is what the lexicon and the weights were worked on with (with the lists of an earlier round,
``BEFORE`` and ``AFTER``); *held out* was written after them, from published families; *held out before* is a list of
the earlier round that neither lexicon was changed for. Each wording is one session of ten topics; ``varied`` draws ten
wordings a session. The threshold was fixed before anything was measured.

Exit code 1 where a target is missed: recall ≥ .9 of our own and of held-out PS, PM, RAG-Thief and S2MIA (where the app
refuses or obeys) at a false-alarm rate ≤ 1 % of benign sessions (the questions; talk about documents).
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

import detection_dev
import detection_held_out
from detection_scenes import APPS, attacks, ordinary, requested, varied
from detection_traffic import (
    ATTACKS,
    SOURCES,
    Library,
    Visit,
    attacked,
    benign,
    of_one_topic,
    questions,
    store,
)
from detection_wordings import AFTER, BEFORE, DOCUMENT_TALK, HELD_OUT, HELD_OUT_TALK, PUBLISHED

import ragtrace
from ragtrace.detection import detect
from ragtrace.detection.scoring import THRESHOLD
from ragtrace.stats.proportions import clopper_pearson

TARGETS = ("prompt_stealing", "prompt_manipulation", "rag_thief", "s2mia")
_OWN_APPS = {name: (lambda documents, app=app: app(documents, random.Random(0))) for name, app in APPS.items()}


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


def own(library: Library, count: int) -> list[Visit]:
    """Our own attack classes before each app; IKEA before those that it was made for."""
    asked = [a for a in ATTACKS if not a.startswith("ikea")]
    made = [
        attacked(library, attack, 1_000 + seed, answer, f"{attack}, own, {name}")
        for attack in asked
        for name, answer in _OWN_APPS.items()
        for seed in range(count)
    ]
    ikea = [a for a in ATTACKS if a not in asked]
    return made + [attacked(library, attack, 1_000 + seed) for attack in ikea for seed in range(count)]


def worded(library: Library, count: int) -> list[Visit]:
    """The attacks in other wordings."""
    made = []
    for name, app in APPS.items():
        made += attacks(library, detection_dev, "development", name, count)
        made += attacks(library, detection_held_out, "held out", name, count)
        made += requested(library, detection_dev.MORE, f"prompt_stealing, development more, {name}", app)
        made += requested(library, BEFORE + AFTER, f"prompt_stealing, development before, {name}", app)
        made += requested(library, HELD_OUT, f"prompt_stealing, held out before, {name}", app)
        made += varied(library, HELD_OUT, f"prompt_stealing, held out before, varied, {name}", app, count)
        made += requested(library, [text for _, text in PUBLISHED], f"prompt_stealing, published, {name}", app)
    return made


def near(library: Library, asked: dict[str, list[tuple[str, str]]], count: int) -> list[Visit]:
    """Benign sessions that are harder."""
    pairs = [pair for name in SOURCES for pair in asked[name]]
    made = of_one_topic(library, pairs, 300, 1)
    made += benign(Library(titles=True), asked["pubmedqa"], "pubmedqa, titles indexed")
    source = random.Random("talk")
    for kind, sentences in (("development before", DOCUMENT_TALK), ("held out before", HELD_OUT_TALK)):
        talk = [(s, "Certainly.") for _ in range(count) for s in source.sample(sentences, 10)]
        made += benign(library, talk, f"talk about documents, {kind}")
    only = [question for question, _ in pairs]
    made += ordinary(library, detection_dev, "development", only, count)
    return made + ordinary(library, detection_held_out, "held out", only, count)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attacks", type=int, default=200, help="sessions of each kind, beside the mix")
    parser.add_argument("--share", type=float, default=1.0, help="of the benign questions")
    given = parser.parse_args()
    library, asked, usual = Library(), questions(), []
    for name in SOURCES:
        random.Random(f"order {name}").shuffle(asked[name])
        usual += benign(library, asked[name][: int(len(asked[name]) * given.share)], name)
    few = max(1, round(len(usual) / 99 / len(ATTACKS)))
    mix = [attacked(library, attack, seed) for attack in ATTACKS for seed in range(few)]
    hard = near(library, asked, given.attacks)
    more = own(library, given.attacks) + worded(library, given.attacks)
    with tempfile.TemporaryDirectory() as folder, ragtrace.open(Path(folder) / "t.duckdb") as db:
        spans = store(db, usual + mix)
        began = time.process_time()
        looked = detect(db)
        spent = time.process_time() - began
        each = spent / looked * 1e3
        print(f"{looked} sessions, {spans} spans: {spent:.1f} s of processor time, {each:.1f} ms a session")
        store(db, hard + more, seed=1)
        detect(db)
        false, true = suspicious(db, usual), suspicious(db, mix)
        print(f"\nThreshold {THRESHOLD}. False alarms in benign sessions, with 95 % intervals (Clopper-Pearson):")
        for kind, values in false.items():
            print(f"  {kind:52}{rate(sum(values), len(values))}")
        alarms, n = sum(map(sum, false.values())), sum(map(len, false.values()))
        print(f"  {'all':52}{rate(alarms, n)}")
        missed = alarms > 0.01 * n
        for kind, values in sorted(suspicious(db, hard).items()):
            print(f"  {kind:52}{rate(sum(values), len(values))}")
            missed |= kind == "talk about documents, held out" and sum(values) > 0.01 * len(values)
        hits, probing = sum(map(sum, true.values())), sum(map(len, true.values()))
        print(f"\nThe mix: {probing} attacks among {probing + n} sessions")
        print(f"  {'precision':52}{rate(hits, hits + alarms)}\n  {'recall':52}{rate(hits, probing)}")
        print("\nRecall by attack, wording and app, and the share of the sessions that showed each signal:")
        for kind, values in sorted(suspicious(db, more).items()):
            attack, _, rest = kind.partition(", ")
            aimed = attack in TARGETS and not rest.endswith("answers") and not rest.startswith("held out before")
            missed |= aimed and sum(values) < 0.9 * len(values)
            print(f"  {kind:52}{rate(sum(values), len(values))}  {fired(db, [v for v in more if v.kind == kind])}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
