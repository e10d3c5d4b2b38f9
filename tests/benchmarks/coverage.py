"""How often a nominal 95 % interval holds the true value, by simulation; the ground on which stats.py chose.

Scores are normal latent values under three transforms: none (binormal), to exponential, and cut to four values
(heavily tied); the two arms' latent values correlate by ½. The true areas follow from the distributions, not from
draws. A share outside 93 to 97 % is starred: with 500 draws its standard error is 1 %, as one honest cell in 25 is.

    python tests/benchmarks/coverage.py [--draws 500] [--resamples 1000] [--seed 0] [--methods logit]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from ragtrace import stats

CUTS = np.array([-0.3, 0.6, 1.4])
SHAPES = ("binormal", "exponential", "tied")
OTHER = 0.6  # the area of the arm that is compared with
CELLS = [(0.75, 50), (0.75, 200), (0.75, 1000), (0.95, 50), (0.95, 200), (0.95, 1000), (0.98, 50), (0.98, 200)]
Hits = dict[tuple[str, str], list[bool]]


def scores(shape: str, latent: np.ndarray, member: np.ndarray, strength: float) -> np.ndarray:
    if shape == "exponential":
        return -np.log(ndtr(-latent)) * (1 + strength * member)
    shifted = latent + strength * member
    return shifted if shape == "binormal" else np.searchsorted(CUTS, shifted).astype(float)


def areas(shape: str, strength: float) -> tuple[float, float]:
    """True ROC area, and precision-recall area at as many members as non-members."""
    if shape == "tied":
        mass = np.array([np.diff([0, *ndtr(CUTS - strength * m), 1]) for m in (0, 1)])
        above = mass[:, ::-1].cumsum(axis=1)[:, ::-1]
        roc = sum(mass[1, i] * (mass[0, :i].sum() + mass[0, i] / 2) for i in range(4))
        return float(roc), float((mass[1] * above[1] / above.sum(axis=0)).sum())
    tpr = (np.arange(200_000) + 0.5) / 200_000
    fpr = ndtr(ndtri(tpr) - strength) if shape == "binormal" else tpr ** (1 + strength)
    return float(1 - fpr.mean()), float((tpr / (tpr + fpr)).mean())


def strength(shape: str, area: float) -> float:
    return float(brentq(lambda s: areas(shape, s)[0] - area, 0, 100 if shape == "exponential" else 5))


def note(hits: Hits, what: str, method: str, interval: stats.Estimate | stats.Interval, true: float) -> None:
    hits[what, method].append(interval.low is not None and interval.low <= true <= interval.high)


def arms(shape: str, area: float, n: int, draws: int, resamples: int, seed: int, methods: list[str]) -> Hits:
    """One arm, and the difference of two, n + n documents of one row each."""
    rng = np.random.default_rng([seed, n, int(area * 100), SHAPES.index(shape)])  # no cell shares another's luck
    labels = np.arange(2 * n) < n
    strong, weak = strength(shape, area), strength(shape, OTHER)
    true, other = areas(shape, strong), areas(shape, weak)
    hits: Hits = defaultdict(list)
    for _ in range(draws):
        latent, own = rng.normal(size=(2, 2 * n))
        a = scores(shape, latent, labels, strong)
        b = scores(shape, 0.5 * latent + 0.75**0.5 * own, labels, weak)
        options = {"seed": int(rng.integers(1 << 30)), "resamples": resamples}
        for i, curve in enumerate(("roc", "pr")):
            for method in methods:
                if (curve, method) == ("pr", "delong") or (method == "bca" and n > 200 and area > 0.9):
                    continue
                options |= {"curve": curve, "method": method}
                note(hits, curve, method, stats.auc(labels, a, **options), true[i])
                difference = stats.auc_difference(labels, a, b, **options)
                note(hits, f"{curve} difference", method, difference, true[i] - other[i])
    return hits


def clustered(mixed: bool, documents: int, draws: int, resamples: int, seed: int) -> Hits:
    """Four rows a document, half of the variance between documents; membership by document, or by row (mixed)."""
    rng = np.random.default_rng([seed, documents, mixed])
    rows = np.repeat(np.arange(documents), 4)
    shift = strength("binormal", 0.75)
    hits: Hits = defaultdict(list)
    for _ in range(draws):
        coin = rng.permutation(4 * documents) % 2 == 0 if mixed else rows % 2 == 0
        x = 0.5**0.5 * (rng.normal(size=documents)[rows] + rng.normal(size=len(rows))) + shift * coin
        for method in ("logit", "bca"):
            options = {"method": method, "seed": int(rng.integers(1 << 30)), "resamples": resamples}
            note(hits, "roc", method, stats.auc(coin, x, clusters=rows, **options), 0.75)
        note(hits, "roc", "rows as documents", stats.auc(coin, x), 0.75)
    return hits


def shares(n: int, draws: int, seed: int) -> Hits:
    """The rule found at 1 % FPR, on other targets; balanced accuracy at a given threshold. Exact ones hold more."""
    rng = np.random.default_rng([seed, n])
    labels = np.arange(2 * n) < n
    hits: Hits = defaultdict(list)
    for _ in range(draws):
        x = rng.normal(size=2 * n) + 2 * labels
        tpr = stats.tpr_at_fpr(labels, x, 0.01)
        threshold = stats.threshold_at_fpr(x[~labels], 0.01)
        if tpr.value is not None:
            note(hits, "tpr at 1 % fpr", "clopper-pearson", tpr, float(ndtr(2 - threshold)))
            bound = stats.clopper_pearson(int((x[~labels] >= threshold).sum()), n, side="upper")
            note(hits, "its fpr, one-sided", "clopper-pearson", bound, float(ndtr(-threshold)))
        point = stats.operating_point(labels, x, 0.8)
        note(hits, "balanced accuracy", "Wilson, MOVER", point.balanced_accuracy, float(ndtr(1.2) + ndtr(0.8)) / 2)
    return hits


def cells(draws: int, resamples: int, seed: int, methods: list[str]) -> Iterator[tuple[str, Hits]]:
    for shape in SHAPES:
        for area, n in CELLS:
            if shape == "tied" and area > 0.95:
                continue  # four values of these cuts cannot separate so well
            yield f"{shape} {area} n={n}+{n}", arms(shape, area, n, draws, resamples, seed, methods)
    for mixed in (False, True):
        for documents in (50, 200):
            kind = "membership by row" if mixed else "by document"
            yield f"{documents} documents x 4, {kind}", clustered(mixed, documents, draws, resamples, seed)
    for n in (50, 200, 1000):
        yield f"binormal shares n={n}+{n}", shares(n, draws, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--methods", nargs="+", default=["logit", "delong", "bca"], help="without bca, 4000 draws are cheap"
    )
    args = parser.parse_args()
    start, outside, total = time.perf_counter(), 0, 0
    for name, hits in cells(args.draws, args.resamples, args.seed, args.methods):
        for what in dict.fromkeys(what for what, _ in hits):
            told = []
            for (_, method), held in ((key, held) for key, held in hits.items() if key[0] == what):
                share = 100 * float(np.mean(held))
                star = "*" if not 93 <= share <= 97 else " "
                outside, total = outside + (star == "*"), total + 1
                told.append(f"{method} {share:5.1f}{star}")
            print(f"{name:36} {what:20} {'  '.join(told)}", flush=True)
    print(f"{outside} of {total} outside 93 to 97 %, {args.draws} draws each", file=sys.stderr)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
