"""BLEU as ``sacrebleu.sentence_bleu`` defines it: 0 to 100, smoothed ("exp"), effective order.

:func:`bleu_all` gives the numbers of sacrebleu for many pairs at once. Tokens are sacrebleu's. n-grams of each
reference are the paths of a trie in arrays, which all hypotheses walk together: an n-gram can only match where its
first n - 1 tokens do, so little is left to look at after the first levels.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from functools import cache, lru_cache
from itertools import chain, pairwise, repeat
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sacrebleu.metrics.bleu import BLEU

    from ragtrace.stats.results import Floats, Indices

ORDERS = 4
CHUNK = 10_000
"""Pairs done at once, which bounds memory."""
EACH = 50_000
"""Distinct pairs that are worth a process of their own: it starts in the time in which 25,000 are scored."""


@cache
def _scorer() -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    # what sentence_bleu makes anew for every call
    return BLEU(effective_order=True)


@lru_cache(maxsize=65_536)
def bleu(hypothesis: str, reference: str) -> float:
    """BLEU of ``hypothesis`` against ``reference``; an empty hypothesis has 0."""
    return float(_scorer().sentence_score(hypothesis, [reference]).score)


def bleu_all(pairs: Sequence[tuple[str, str]]) -> Floats:
    """(n,) BLEU of each (hypothesis, reference)."""
    todo = sorted(dict.fromkeys(pairs), key=lambda pair: pair[1])  # pairs of one reference meet in one chunk
    workers = max(1, min(os.cpu_count() or 1, len(todo) // EACH))
    ends = [len(todo) * i // workers for i in range(workers + 1)]
    own, *others = (todo[start:end] for start, end in pairwise(ends))
    children = [_start(share) for share in others]
    scores = [_serial(own), *(_finish(child, share) for child, share in zip(children, others, strict=True))]
    found = dict(zip(todo, np.concatenate(scores).tolist(), strict=True))
    return np.array([found[pair] for pair in pairs], dtype=np.float64)


def _serial(pairs: Sequence[tuple[str, str]]) -> Floats:
    collects = gc.isenabled()
    gc.disable()  # millions of tokens and no cycle: half of the tokenising would go to the garbage collector
    try:
        return np.concatenate([np.zeros(0), *(_chunk(pairs[i : i + CHUNK]) for i in range(0, len(pairs), CHUNK))])
    finally:
        if collects:
            gc.enable()


def _start(pairs: Sequence[tuple[str, str]]) -> subprocess.Popen[bytes] | None:
    """A process that scores ``pairs``; not of ``multiprocessing``, which runs the app's main module once more."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", "from ragtrace.metrics._bleu import _serve; _serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
    except OSError:
        return None
    try:
        with child.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(json.dumps(pairs).encode())  # the standard library's: a half of a surrogate pair passes
    except OSError:  # it ended early; _finish finds that it said nothing
        pass
    return child


def _finish(child: subprocess.Popen[bytes] | None, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The child's scores; where it gave none they are made here."""
    said = b""
    if child is not None:
        with child:
            said = child.stdout.read() if child.stdout else b""
    scores = np.frombuffer(said, dtype=np.float64) if len(said) == 8 * len(pairs) else _serial(pairs)
    return np.asarray(scores, dtype=np.float64)


def _serve() -> None:
    """What a child does."""
    pairs = [(hypothesis, reference) for hypothesis, reference in json.load(sys.stdin.buffer)]
    sys.stdout.buffer.write(_serial(pairs).tobytes())


# one set of characters comes first, so that the search can skip all others
_APART = re.compile(r"([!-&(-/:-@\[-`{-~](?:(?<![-.,])|(?<=[.,])(?:(?![0-9])|(?<![0-9][.,]))|(?<=[0-9]-)))")
_RUN = re.compile(r"[.,][.,]")


def _tokens(text: str) -> list[str]:
    """sacrebleu's tokens. Its expressions each pass over the text; here one finds all that stands apart.

    They differ only in runs of full stops and commas, of which sacrebleu's see every other one: such a text is left
    to sacrebleu.
    """
    line = text.rstrip().replace("-\n", "").replace("\n", " ")
    if _RUN.search(line) or "&" in text or "<skipped>" in text:
        return _scorer()._preprocess_segment(text).split()
    return " ".join(_APART.split(line)).split()


def _chunk(pairs: Sequence[tuple[str, str]]) -> Floats:
    references = {text: i for i, text in enumerate(dict.fromkeys(reference for _, reference in pairs))}
    known = [_tokens(text) for text in references]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(chain.from_iterable(known)))}
    lengths = np.array([len(tokens) for tokens in known], dtype=np.intp)
    given = [_tokens(hypothesis) for hypothesis, _ in pairs]
    sizes = np.array([len(tokens) for tokens in given], dtype=np.intp)
    of = np.array([references[reference] for _, reference in pairs], dtype=np.intp)
    hits = _matches(
        np.fromiter(map(vocabulary.__getitem__, chain.from_iterable(known)), np.intp, int(lengths.sum())),
        np.repeat(np.arange(len(known)), lengths),
        np.fromiter(map(vocabulary.get, chain.from_iterable(given), repeat(-1)), np.intp, int(sizes.sum())),
        np.repeat(np.arange(len(pairs)), sizes),
        of,
        len(vocabulary),
    )
    return _formula(hits, sizes, lengths[of])


def _matches(
    known: Indices, reference: Indices, given: Indices, pair: Indices, of: Indices, words: int
) -> list[Indices]:
    """How many n-grams of each pair's hypothesis match, each as often as its reference has it, by order.

    :param known: tokens of all references; ``reference``: which one each stands in. ``given`` and ``pair``: the same
        for hypotheses, -1 for tokens of no reference. :param of: (n,) each pair's reference.
    """
    result = []
    # where an n-gram may begin, and the node of the trie to which its first tokens lead; a root for each reference
    at, node = np.arange(len(known)), reference
    here, state = np.arange(len(given)), of[pair]
    for depth in range(ORDERS):
        kept = at + depth < len(known)
        at, node = at[kept], node[kept]
        kept = reference[at + depth] == reference[at]
        at, node = at[kept], node[kept]
        edges, node, count = np.unique(node * words + known[at + depth], return_inverse=True, return_counts=True)
        kept = here + depth < len(given)
        here, state = here[kept], state[kept]
        kept = (pair[here + depth] == pair[here]) & (given[here + depth] >= 0)
        here, state = here[kept], state[kept]
        step = state * words + given[here + depth]
        found = np.searchsorted(edges, step)
        found[found == len(edges)] = 0
        kept = edges[found] == step if len(edges) else np.zeros(0, dtype=bool)
        here, state = here[kept], found[kept]
        same, times = np.unique(pair[here] * max(len(edges), 1) + state, return_counts=True)
        clipped = np.minimum(times, count[same % max(len(edges), 1)])
        result.append(np.bincount(same // max(len(edges), 1), clipped, len(of)).astype(np.intp))
    return result


def _formula(hits: list[Indices], sizes: Indices, lengths: Indices) -> Floats:
    """BLEU from its counts, to the last bit as sacrebleu computes it: scores that tie there must tie here."""
    smooth = np.ones(len(sizes))
    precisions, counted = [], np.zeros(len(sizes), dtype=np.intp)
    for depth, correct in enumerate(hits):
        total = np.maximum(sizes - depth, 0)
        counts = total > 0
        smooth[counts & (correct == 0)] *= 2
        total[~counts] = 1
        precisions.append(np.where(correct == 0, 100.0 / (smooth * total), 100.0 * correct / total).tolist())
        counted += counts
    some = np.any(np.array(hits) > 0, axis=0)
    brevity = [exp(1 - r / h) if h < r and h else 1.0 for h, r in zip(sizes.tolist(), lengths.tolist(), strict=True)]
    rows = zip(some.tolist(), brevity, counted.tolist(), *precisions, strict=True)
    # numpy's logarithm and sum may end in another digit
    return np.array([b * exp(sum([log(p) for p in ps[:n]]) / n) if hit else 0.0 for hit, b, n, *ps in rows])
