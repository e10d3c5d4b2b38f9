"""From a finished audit to stored likelihoods: what to score, scored in lots, each lot kept before the next begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ragtrace.attacks._likelihood import ASKS, KINDS, prefix_of
from ragtrace.errors import UsageError
from ragtrace.likelihood.neighbours import Words, neighbours, vocabulary
from ragtrace.likelihood.scorer import Passage
from ragtrace.metrics._read import ANSWERS

if TYPE_CHECKING:
    import duckdb

    from ragtrace.likelihood.scorer import Scorer, TokenLikelihoods

ALL = tuple(kind for kinds in KINDS.values() for kind in kinds.values())
DEFAULT = tuple(kind for kind in ALL if kind != "neighbour_alone")
"""All but the neighbours that stand alone, which cost as much as all others together."""
_ALONE = frozenset(kinds["alone"] for kinds in KINDS.values())
_ROLE = {kind: role for role, kinds in KINDS.items() for kind in kinds.values()}


@dataclass
class Filled:
    """What :func:`fill` did.

    :param scored: different passages sent to the scorer. :param present: targets and prompts that needed nothing.
    :param unreadable: targets and arms without a readable text or prompt. :param notes: passages with a note.
    """

    model: str
    scored: int = 0
    present: int = 0
    unreadable: int = 0
    notes: int = 0


class _Asked(NamedTuple):
    probe_id: str
    seed: int
    text: str
    prompt: str | None
    arms: tuple[str | None, ...]
    """Those in which the model was given this prompt; ``(None,)`` for a text that stands alone."""


class _Row(NamedTuple):
    """Of ``likelihood_data``, up to the text's length."""

    run_id: str
    probe_id: str
    arm: str | None
    kind: str
    variant: int
    model: str
    text_chars: int


def fill(
    db: duckdb.DuckDBPyConnection,
    run_id: str,
    scorer: Scorer | None = None,
    *,
    kinds: Sequence[str] = DEFAULT,
    arms: Collection[str] | None = None,
    batch_size: int = 8,
    chunk: int = 8,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Filled:
    """Scores every target of the run's ``likelihood`` probes, in each arm, and stores the token log-probabilities.

    What is stored already is not computed again, so a call that was interrupted is simply made again; equal prompts of
    several arms are scored once.

    :param scorer: ``None`` is ``TransformersScorer.load(batch_size=batch_size)``, the embedded model.
    :param kinds: what to score: ``context``, ``neighbour``, ``prefixed`` after the prompt that the app's model was
        given, ``alone``, ``neighbour_alone``, ``prefixed_alone`` without. Neighbours are 25 texts a target.
    :param arms: only the prompts of these; ``None``: of all.
    :param batch_size: of the default scorer. :param chunk: targets and prompts that are stored at a time, at least 1.
    :param progress: called after each lot with what is done and all there is to do.
    :raises UsageError: a run without such probes, an unknown kind, or a wrong number.
    """
    if unknown := [kind for kind in kinds if kind not in ALL]:
        raise UsageError(f"no likelihoods are called {unknown}; expected some of {', '.join(ALL)}")
    if isinstance(arms, str):
        raise UsageError(f"arms is the text {arms!r}; expected a list of names, or None for all")
    if chunk < 1:
        raise UsageError(f"chunk is {chunk}; expected at least 1 at a time")
    wanted, prefixes, unreadable = _read(db, run_id, arms)
    if scorer is None:
        from ragtrace.likelihood.hugging_face import TransformersScorer

        scorer = TransformersScorer.load(batch_size=batch_size)
    filled = Filled(scorer.name, unreadable=unreadable)
    todo = _missing(db, run_id, scorer.name, wanted, kinds)
    filled.present = len(wanted) - len(todo)
    words = vocabulary(dict.fromkeys(asked.text for asked in wanted))
    for start in range(0, len(todo), chunk):
        rows: list[list[_Row]] = []
        passages: list[Passage] = []
        for asked, missing in todo[start : start + chunk]:
            for kind in missing:
                for variant, passage in enumerate(_passages(asked, kind, prefixes.get(asked.seed, ""), words)):
                    said = kind, variant, scorer.name, len(passage.text)
                    rows.append([_Row(run_id, asked.probe_id, arm, *said) for arm in asked.arms])
                    passages.append(passage)
        distinct = list(dict.fromkeys(passages))  # of a short text, some neighbours are equal
        found = dict(zip(distinct, scorer.score(distinct), strict=True))
        _store(db, [(row, found[passage]) for same, passage in zip(rows, passages, strict=True) for row in same])
        filled.scored += len(distinct)
        filled.notes += sum(x.note is not None for x in found.values())
        progress(min(start + chunk, len(todo)), len(todo))
    return filled


def _missing(
    db: duckdb.DuckDBPyConnection, run_id: str, model: str, wanted: list[_Asked], kinds: Sequence[str]
) -> list[tuple[_Asked, list[str]]]:
    """What is to be scored, and of which kinds: texts that stand alone first, as they have a prefix in common.

    A lot is stored whole or not at all, so one row says that all of its probe, arm and kind are there.
    """
    stored = db.execute(
        "SELECT DISTINCT probe_id, arm, kind FROM likelihood_data WHERE run_id = ? AND model = ?", [run_id, model]
    ).fetchall()
    present = set(stored)
    todo = []
    for asked in sorted(wanted, key=lambda a: a.prompt is not None):
        own = [kind for kind in dict.fromkeys(kinds) if (kind in _ALONE) == (asked.prompt is None)]
        missing = [kind for kind in own if any((asked.probe_id, arm, kind) not in present for arm in asked.arms)]
        if missing:
            todo.append((asked, missing))
    return todo


def _read(
    db: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str] | None
) -> tuple[list[_Asked], dict[int, str], int]:
    """(What to score, each seed's prefix for ReCaLL, how many targets and arms cannot be read)."""
    rows = db.execute(
        f"WITH {ANSWERS} SELECT split_part(probe_id, '/', 1) AS target, arm, seed, target_text, prompt, detail "  # noqa: S608
        "FROM answers WHERE attack = $attack ORDER BY seed, target, arm",
        {"run": run_id, "attack": ASKS},
    ).fetchall()
    if not rows:
        raise UsageError(
            f"run {run_id!r} has no {ASKS!r} probes; expected a run of one of the likelihood attacks "
            "(loss, zlib_entropy, min_k, min_k_plus_plus, neighbourhood, recall): audit with one of them"
        )
    details: defaultdict[int, list[str | None]] = defaultdict(list)
    wanted: list[_Asked] = []
    unreadable = 0
    for (target, seed), group in groupby(rows, key=lambda r: (r[0], r[2])):
        prompts: defaultdict[str, list[str | None]] = defaultdict(list)
        text = None
        for _, arm, _, target_text, prompt, detail in group:
            details[seed].append(detail)
            text = text if target_text is None else target_text
            if arms is not None and arm not in arms:
                continue
            if target_text is None or prompt is None:
                unreadable += 1
            else:
                prompts[prompt].append(arm)
        if text is not None:
            wanted.append(_Asked(target, seed, text, None, (None,)))
            wanted += [_Asked(target, seed, text, prompt, tuple(arms)) for prompt, arms in prompts.items()]
    return wanted, {seed: prefix_of(found) for seed, found in details.items()}, unreadable


def _passages(asked: _Asked, kind: str, prefix: str, words: Words) -> Iterator[Passage]:
    prompt = asked.prompt or ""
    match _ROLE[kind]:
        case "text":
            yield Passage(prompt, asked.text)
        case "neighbour":
            for text in neighbours(asked.text, words):
                yield Passage(prompt, text, moments=False)
        case _:
            if prefix:
                yield Passage(prompt, asked.text, prefix, moments=False)


def _store(db: duckdb.DuckDBPyConnection, rows: Sequence[tuple[_Row, TokenLikelihoods]]) -> None:
    """In place of what is there for the same probe, arm, kind and model, in one transaction."""
    if not rows:
        return
    floats = pa.list_(pa.float32())
    columns = {name: [getattr(row, name) for row, _ in rows] for name in _Row._fields}
    given = pa.table(
        columns
        | {name: pa.array([getattr(x, name) for _, x in rows], floats) for name in ("logprobs", "mu", "sigma")}
        | {"arm": pa.array(columns["arm"], pa.string()), "note": pa.array([x.note for _, x in rows], pa.string())}
    )
    db.register("likelihoods_given", given)
    db.execute("BEGIN")
    try:
        db.execute(
            "DELETE FROM likelihood_data d USING (SELECT DISTINCT run_id, probe_id, arm, kind, model "
            "FROM likelihoods_given) g WHERE d.run_id = g.run_id AND d.probe_id = g.probe_id "
            "AND d.arm IS NOT DISTINCT FROM g.arm AND d.kind = g.kind AND d.model = g.model"
        )
        db.execute("INSERT INTO likelihood_data BY NAME SELECT * FROM likelihoods_given")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    finally:
        db.unregister("likelihoods_given")
