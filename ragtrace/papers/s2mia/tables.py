"""Tables 1 to 4 in the paper's row order, its value beside ours, and what the paper does not print below."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ragtrace.papers.printing import MISSING, Entry, Number, Table, none_of
from ragtrace.papers.s2mia.conduct import run_id
from ragtrace.papers.s2mia.plan import CURVES, SIMILARITIES, Cell, Design

if TYPE_CHECKING:
    import duckdb

RETRIEVERS = {"DPR": "dpr", "Contriever": "contriever"}
METRICS = {  # the paper's row → (metric without its curve, attack whose probes it reads)
    "Loss Attack": ("loss", "likelihood"),
    "Zlib Entropy Attack": ("zlib_entropy", "likelihood"),
    "Min k% Prob Attack": ("min_k", "likelihood"),
    "Neighborhood Attack": ("neighbourhood", "likelihood"),
    "RAG-MIA": ("rag_mia", "rag_mia"),
    "S2MIA-T": ("s2mia", "s2mia"),
    "S2MIA-M": ("s2mia_m", "s2mia"),
}
ARMS = {"Paraphrasing": "paraphrase", "Prompt Modifying": "prompt_modifying", "Re-ranking": "rerank"}
NOT_PRINTED = (  # what follows each table's own rows: row, metric, attack, arm
    ("BLEU alone", "bleu", "s2mia", "none"),
    ("BLEU to what was not sent", "bleu_remaining", "s2mia", "none"),
    ("Perplexity alone", "perplexity", "s2mia", "none"),
    ("Min-k%++", "min_k_plus_plus", "likelihood", "none"),
    ("ReCaLL", "recall", "likelihood", "none"),
    ("RAG-MIA, probabilities", "rag_mia_prob", "rag_mia", "none"),
    ("MBA", "mba", "mba", "none"),
    ("Interrogation", "interrogation", "interrogation", "none"),
    ("MEntA", "menta", "menta", "none"),
    ("DCMI", "dcmi", "dcmi", "none"),
    ("Difficulty-calibrated", "difficulty_calibrated", "s2mia", "none"),
    ("control: blind (text only)", "blind", "s2mia", "none"),
    ("control: BLEU, no retrieval", "bleu", "s2mia", "no_retrieval"),
    ("control: BLEU, index without target", "bleu", "s2mia", "without_target"),
)


class Results:
    """The results of a design's runs."""

    def __init__(self, db: duckdb.DuckDBPyConnection, design: Design) -> None:
        self.design = design
        cells = {run_id(design, cell): cell for cell in design.cells()}
        self.found: dict[tuple[Cell, str, str, str], Number] = {}
        rows = db.execute(
            "SELECT run_id, metric, attack, arm, value, ci_low, ci_high, interpretable, reason FROM results "
            "WHERE run_id IN (SELECT unnest($1::VARCHAR[]))",
            [list(cells)],
        ).fetchall()
        for run, metric, attack, arm, *number in rows:
            self.found[cells[run], metric, attack, arm] = Number(*number)

    def get(self, cell: Cell | None, metric: str, attack: str, arm: str = "none") -> Number:
        """A number, or one that says that it is missing."""
        return Number() if cell is None else self.found.get((cell, metric, attack, arm), Number())

    def cell(self, dataset: str, retriever: str | None = None) -> Cell | None:
        """The run on the dataset, with the retriever if one is named."""
        wanted = retriever or self.design.retrievers[0]
        return next((c for c in self.design.cells() if (c.dataset, c.retriever) == (dataset, wanted)), None)


def published() -> dict[str, Any]:
    """The paper's numbers."""
    return tomllib.loads((files("ragtrace.papers.s2mia") / "published.toml").read_text(encoding="utf-8"))


def tables(results: Results) -> Iterator[Table]:
    """Tables 1 to 4, and what the defenses of Table 4 cost."""
    paper = published()
    yield from _table_1(results, paper)
    rows = []
    for label, *values in paper["table_2"]["rows"]:
        name, _, rest = label.partition("(")
        stem = f"{SIMILARITIES[name]}{'_without_perplexity' if 'w/o' in rest else ''}"
        rows.append(_four(results, label, results.cell("natural_questions"), stem, values))
    yield Table("Table 2: the similarity, natural_questions", ("similarity",), _FOUR, tuple(rows))
    rows = []
    own = results.design.retrievers[0]
    if own not in RETRIEVERS.values():
        rows.append(_four(results, own, results.cell("natural_questions"), "", ()))
    for label, *values in paper["table_3"]["rows"]:
        rows.append(_four(results, label, results.cell("natural_questions", RETRIEVERS[label]), "", values))
    yield Table("Table 3: the retriever, natural_questions", ("retriever",), _FOUR, tuple(rows))
    yield _table_4(results, paper)
    yield utility(results)


_FOUR = ("T ROC AUC", "T PR AUC", "M ROC AUC", "M PR AUC")


def _four(results: Results, label: str, cell: Cell | None, stem: str, values: list[float] | tuple[()]) -> Entry:
    names = [f"{form}{stem}_{curve}" for form in (_t(stem), "s2mia_m") for curve in CURVES]
    return Entry(
        (label,), tuple(results.get(cell, n, "s2mia") for n in names), tuple((v,) for v in values) or ((),) * 4
    )


def _t(stem: str) -> str:
    return "s2mia_t" if stem else "s2mia"


def _table_1(results: Results, paper: dict[str, Any]) -> Iterator[Table]:
    for curve, title in CURVES.items():
        datasets = results.design.datasets
        printed = {d: {label: values for label, *values in paper["table_1"][curve][d]} for d in datasets}
        rows = [
            Entry(
                (label,),
                tuple(results.get(results.cell(d), f"{metric}_{curve}", attack) for d in datasets),
                tuple(tuple(printed[d][label]) for d in datasets),
            )
            for label, (metric, attack) in METRICS.items()
        ]
        for label, metric, attack, arm in NOT_PRINTED:
            ours = tuple(results.get(results.cell(d), f"{metric}_{curve}", attack, arm) for d in datasets)
            if any(n.note != MISSING for n in ours):
                rows.append(Entry((label,), ours, ((),) * len(datasets)))
        yield Table(
            f"Table 1: {title} ({', '.join(paper['models'])} in the paper)", ("attack",), tuple(datasets), tuple(rows)
        )


def _table_4(results: Results, paper: dict[str, Any]) -> Table:
    columns = [(d, form) for d in ("natural_questions", "triviaqa") for form in ("s2mia", "s2mia_m")]
    rows = []
    for label, curve, *values in paper["table_4"]["rows"]:
        ours = tuple(results.get(results.cell(d), f"{form}_{curve}", "s2mia", ARMS[label]) for d, form in columns)
        rows.append(Entry((label, CURVES[curve]), ours, tuple((v,) for v in values)))
    names = tuple(f"{d} {'T' if form == 's2mia' else 'M'}" for d, form in columns)
    return Table("Table 4: defenses", ("defense", "curve"), names, tuple(rows))


UTILITY = ("utility_token_f1", "utility_exact_match", "utility_refusal_rate")


def utility(results: Results) -> Table:
    """F1, exact match and refusals of the answers to plain questions, in the arms of Table 4."""
    rows = [
        Entry(
            (dataset, arm),
            tuple(results.get(results.cell(dataset), metric, "qa", arm) for metric in UTILITY),
            none_of(UTILITY),
        )
        for dataset in results.design.datasets
        for arm in ("none", *ARMS.values())
    ]
    return Table("Utility beside privacy: answers to plain questions", ("dataset", "arm"), UTILITY, tuple(rows))
