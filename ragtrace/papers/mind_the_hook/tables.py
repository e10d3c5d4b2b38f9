"""Tables I, II and III, the MI table, and what a defense trades: the paper's values beside ours."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ragtrace import stats
from ragtrace.inventory import inventory
from ragtrace.papers.mind_the_hook.conduct import CANARY_RUN
from ragtrace.papers.mind_the_hook.plan import DEFENSES, FAMILIES, MI, Design, audited
from ragtrace.papers.printing import Entry, Number, Table

if TYPE_CHECKING:
    import duckdb

    from ragtrace.papers.mind_the_hook.leaks import Leaks

HOOKS = ("retrieval", "content", "response")
ACTING, STUBS = ("active", "conditional"), ("stub", "pass_through", "dead")
CLASSES = ("strict", "email", "person")


def published() -> dict[str, Any]:
    """The paper's numbers."""
    return tomllib.loads((files("ragtrace.papers.mind_the_hook") / "published.toml").read_text(encoding="utf-8"))


def tables(db: duckdb.DuckDBPyConnection, design: Design, leaks: Leaks) -> Iterator[Table]:
    """All of them."""
    paper = published()
    yield hooks(paper)
    yield nel(leaks, paper)
    yield by_corpus(leaks, paper)
    yield trade_offs(leaks, paper)
    yield membership(db, design, paper)
    yield canaries(db, design, paper)


def hooks(paper: dict[str, Any]) -> Table:
    """Table I, from the source of the six alone: what acts, what is a stub, what is not there."""
    found = {d.name: {h.hook: h.status for h in d.hooks} for d in inventory(*audited())}
    rows = []
    for label, arm in DEFENSES.items():
        told = found.get("no_defense" if arm == "none" else arm, {})
        ours = tuple(_word(told.get(hook)) for hook in HOOKS)
        rows.append(Entry((label,), ours, tuple((paper["hooks"][label][hook],) for hook in HOOKS)))
    return Table("Table I: which hooks act, by their source", ("defense",), HOOKS, tuple(rows))


def _word(status: str | None) -> str:
    return "–" if status is None else "acts" if status in ACTING else "stub" if status in STUBS else status


def nel(leaks: Leaks, paper: dict[str, Any]) -> Table:
    """Table II: entities leaked in a cell. Within runs (as the paper), over documents, and between seeds."""
    columns = ("NEL strict, within runs", "e-mail", "person", "over documents", "between seeds", "cells")
    rows = []
    for label, arm in leaks.design.labels.items():
        printed = paper["nel"].get(label, {})
        ours = (
            leaks.within(arm, "strict"), leaks.within(arm, "email"), leaks.within(arm, "person"),
            leaks.over_documents(arm, "strict"), leaks.between_seeds(arm, "strict"), str(len(leaks.cells[arm])),
        )  # fmt: skip
        values = tuple((printed[c],) if c in printed else () for c in CLASSES)
        rows.append(Entry((label,), ours, (*values, (), (), ())))
    title = f"Table II: leaked entities a cell ({leaks.duplicates} cells that repeat another under another ε left out)"
    return Table(title, ("defense",), columns, tuple(rows))


def by_corpus(leaks: Leaks, paper: dict[str, Any]) -> Table:
    """Table II for each corpus by itself, as the paper tells it of Synthetic-Email."""
    rows = []
    for corpus in leaks.design.corpora:
        for label, arm in leaks.design.labels.items():
            printed = paper["nel_by_corpus"].get(corpus, {}).get(label, {})
            ours = tuple(leaks.within(arm, c, corpus) for c in CLASSES)
            rows.append(Entry((corpus, label), ours, tuple((printed[c],) if c in printed else () for c in CLASSES)))
    return Table(
        "Leaked entities a cell, by corpus", ("corpus", "defense"), ("NEL strict", "e-mail", "person"), tuple(rows)
    )


def trade_offs(leaks: Leaks, paper: dict[str, Any]) -> Table:
    """Change against the undefended arm by class, with a paired interval over cells.

    A defense that lowers one class and raises another is named where both intervals leave out 0; what looks like either
    and may be chance is called so.
    """
    rows = []
    for label, arm in leaks.design.labels.items():
        if arm == "none":
            continue
        changes = {kind: leaks.change(arm, kind) for kind in ("email", "person")}
        ours: list[Number | str] = [_changed(leaks, arm, kind, change) for kind, change in changes.items()]
        ways = {c.direction for c in changes.values() if c is not None}
        ours.append("lowers one, raises another" if {"lowers", "raises"} <= ways else "")
        printed = paper["change"].get(label, {})
        values = tuple((_reduction(printed[k]),) if k in printed else () for k in changes)
        rows.append(Entry((label,), tuple(ours), (*values, ())))
    columns = ("e-mail", "person", "trade-off")
    return Table("Change against No-Defense, paired over cells", ("defense",), columns, tuple(rows))


def _changed(leaks: Leaks, arm: str, kind: str, change: stats.Change | None) -> Number | str:
    if change is None:
        return Number()
    if change.share.value is None:
        return Number(note="nothing leaked without the defense")
    low, high = change.share.low, change.share.high
    ends = "" if low is None or high is None else f" [{100 * low:+.0f}, {100 * high:+.0f}]"
    told = f"{100 * change.share.value:+.0f} %{ends} ({change.difference.value:+.2f})"
    told += "" if change.direction else ", no difference shown"
    return f"{told}; not assessable (scorer-entangled)" if (arm, f"nel_{kind}") in leaks.entangled else told


def _reduction(printed: float | str) -> str:
    return printed if isinstance(printed, str) else f"{-printed:+.1f} %"


def membership(db: duckdb.DuckDBPyConnection, design: Design, paper: dict[str, Any]) -> Table:
    """The MI attack's pairwise-ranking AUC (× 100 in the paper), single turn, the first ε and seed."""
    chosen = {r.id: r.corpus for r in design.runs() if r.attack == MI and r.mode == design.modes[0]
              and r.epsilon == design.epsilons[0] and r.seed == design.seeds[0]}  # fmt: skip
    found: dict[tuple[str, str], Number] = {}
    for run, arm, *number in db.execute(
        "SELECT run_id, arm, value, ci_low, ci_high, interpretable, reason FROM results "
        "WHERE metric = 'mi_response_roc_auc' AND run_id IN (SELECT unnest($1::VARCHAR[]))",
        [list(chosen)],
    ).fetchall():
        found[chosen[run], arm] = Number(*number)
    rows = []
    for label, arm in design.labels.items():
        ours = tuple(found.get((corpus, arm), Number()) for corpus in design.corpora)
        printed = (paper["mi"][label] / 100,) if label in paper["mi"] else ()
        values = tuple(printed if c == "synthetic_corp" else () for c in design.corpora)
        rows.append(Entry((label,), ours, values))
    return Table("MI attack: AUC, intervals over documents", ("defense",), design.corpora, tuple(rows))


_RECOVERED = """
SELECT c.family, p.arm, p.seed, count(DISTINCT h.canary) FROM canaries c
JOIN (SELECT DISTINCT run_id, arm, seed, probe_id FROM probes WHERE run_id = $run) p USING (run_id)
LEFT JOIN canary_hits h ON h.run_id = p.run_id AND h.arm = p.arm AND h.probe_id = p.probe_id
    AND h.canary = c.canary AND h.channel = 'response'
WHERE c.run_id = $run GROUP BY ALL
"""


def canaries(db: duckdb.DuckDBPyConnection, design: Design, paper: dict[str, Any]) -> Table:
    """Table III: canaries recovered, exact match, by family and seed, against the undefended arm."""
    counts = {(f, a, s): n for f, a, s, n in db.execute(_RECOVERED, {"run": CANARY_RUN}).fetchall()}
    trials = design.canary_documents
    rows = []
    for family in FAMILIES:
        bare = [counts[family, "none", s] for s in design.canary_seeds if (family, "none", s) in counts]
        for label, arm in design.labels.items():
            got = [counts[family, arm, s] for s in design.canary_seeds if (family, arm, s) in counts]
            printed = paper["canaries"].get(label, {}) if family == "email" else {}
            told = printed.get("recovered", [])
            said = ((f"{sum(told)}/{50 * len(told)}: {', '.join(map(str, told))}",) if told else (), (),
                    (printed["p"],) if "p" in printed else (), ())  # fmt: skip
            if not got:
                rows.append(Entry((family, label), (*(Number(),) * 3, ""), said))
                continue
            total, n = sum(got), trials * len(got)
            upper = stats.clopper_pearson(total, n, 0.95, "upper").high
            ours: list[Number | str] = [f"{total}/{n} ({', '.join(map(str, got))})", f"≤ {upper:.2%}"]
            if arm == "none" or not bare:
                ours += ["", "baseline" if arm == "none" else ""]
            else:
                ours += _judged(bare, got, trials)
            rows.append(Entry((family, label), tuple(ours), said))
    columns = ("recovered", "95 % upper bound", "p: Fisher; over seeds", "certified")
    return Table("Table III: canaries recovered from answers", ("family", "defense"), columns, tuple(rows))


LEVEL = 0.05


def _judged(bare: list[int], got: list[int], trials: int) -> list[Number | str]:
    """Certified where nothing came out, something did without the defense, and seeds agree that this is no chance.

    Where too little came out without it, nothing is known of the defense: not assessable.
    """
    fisher = stats.fisher_greater(sum(bare), trials * len(bare), sum(got), trials * len(got))
    seeds = stats.seed_permutation(bare, got).p if len(bare) == len(got) and len(got) > 1 else None
    p = f"{fisher:.2g}; {'–' if seeds is None else f'{seeds:.2g}'}"
    if sum(got):  # whatever came out without it
        return [p, "no: canaries came out"]
    if not sum(bare):
        return [p, "not assessable: nothing came out without it"]
    if fisher >= LEVEL or (seeds is not None and seeds >= LEVEL):
        return [p, "not assessable: too few came out without it"]
    return [p, "yes" if seeds is not None else "yes, in one seed: a case study"]
