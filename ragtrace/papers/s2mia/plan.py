"""What the reproduction of S²MIA asks, of whom, and how often: made before anything is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragtrace import attacks
from ragtrace.audit import Arm, distinct
from ragtrace.controls import NoRetrieval, WithoutTarget, WithTarget
from ragtrace.defenses import Paraphrase, PromptModifying, Rerank
from ragtrace.defenses.paraphrase import REQUEST
from ragtrace.embedded.pipeline import TOP_K
from ragtrace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragtrace.types import Corpus, Probe

PAPER_SIZE = 1_000
SHARE = 5
"""The index has four times as many documents as there are targets on one side, as 80 % to 20 % wants it."""
DATASETS = {"natural_questions": "nq", "triviaqa": "triviaqa"}
"""Name in the paper's tables → name of our corpus."""
SIMILARITIES = {"BLEU": "", "Cosine": "_cosine", "Euclidean": "_euclidean", "Inner Product": "_inner_product"}
CURVES = {"roc_auc": "ROC AUC", "pr_auc": "PR AUC"}
"""Both as in the paper's tables → in the names of our metrics, and the other way round."""
LIKELIHOOD = ("loss", "zlib_entropy", "min_k", "neighbourhood", "min_k_plus_plus", "recall")
PAPER_ATTACKS = ("s2mia", "rag_mia", *LIKELIHOOD[:4])
NEWER_ATTACKS = ("min_k_plus_plus", "recall", "difficulty_calibrated", "dcmi", "mba", "menta", "interrogation")


@dataclass(frozen=True)
class Cell:
    """One run: a dataset and a retriever, with one model."""

    dataset: str
    retriever: str
    tables: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.retriever}"


@dataclass(frozen=True)
class Design:
    """The experiment. ``size`` targets of each kind in the reference set, and as many in the evaluation set."""

    size: int = PAPER_SIZE
    datasets: tuple[str, ...] = tuple(DATASETS)
    retrievers: tuple[str, ...] = ("minilm",)
    attacks: tuple[str, ...] = PAPER_ATTACKS
    defenses: bool = True
    model: str = "embedded"
    max_tokens: int = 48
    seed: int = 101

    def __post_init__(self) -> None:
        if self.size < 2:
            raise UsageError(f"size is {self.size}; expected 2 or more targets of each kind (the paper has 1,000)")
        known = attacks.load()
        for what, given, expected in (
            ("dataset", self.datasets, tuple(DATASETS)),
            ("attack", self.attacks, (*PAPER_ATTACKS, *NEWER_ATTACKS)),
        ):
            if odd := [name for name in given if name not in expected]:
                raise UsageError(f"{what} {odd[0]!r}; expected some of {', '.join(expected)}")
        assert set(self.attacks) <= known.keys()

    @property
    def members(self) -> int:
        """Documents in the index: 80 % of the pool."""
        return 2 * self.size * (SHARE - 1)

    @property
    def non_members(self) -> int:
        """Documents outside: 20 % of the pool, each of them a target."""
        return 2 * self.size

    def cells(self) -> list[Cell]:
        """The runs: every dataset with the first retriever; the others where Table 3 has them, on the first dataset."""
        first, *others = self.retrievers
        cells = [Cell(dataset, first, (1, 2, 3, 4)) for dataset in self.datasets]
        return cells + [Cell(self.datasets[0], retriever, (3,)) for retriever in others]

    def arms(self, cell: Cell, rewrite: Callable[[str], str]) -> list[Arm]:
        """The undefended arm gets every attack, the controls and the defenses of Table 4 S²MIA and plain questions."""
        asked = ("s2mia", "qa")
        arms = [Arm("none")]
        if 1 in cell.tables:
            arms.append(Arm("no_retrieval", (NoRetrieval(),), ("s2mia",)))
            arms.append(Arm("without_target", (WithoutTarget(),), ("s2mia",)))
        if "difficulty_calibrated" in self.attacks:
            arms.append(Arm("with_target", (WithTarget(),), ("s2mia",)))
        if 4 in cell.tables and self.defenses:
            arms.append(Arm("paraphrase", (Paraphrase(rewrite),), asked))
            arms.append(Arm("prompt_modifying", (PromptModifying(),), asked))
            arms.append(Arm("rerank", (Rerank(seed=self.seed, order="shuffle", first=TOP_K),), asked))
        return arms

    def probes(self, cell: Cell, corpus: Corpus) -> list[Probe]:
        """Every attack's probes; those of Table 3 alone are S²MIA's."""
        known = attacks.load()
        names = self.attacks if 1 in cell.tables else ("s2mia",)
        made = [p for name in names for p in known[name].probes(corpus, self.seed)]
        if 4 in cell.tables and self.defenses:
            made += type(known["qa"])(count=min(100, self.size)).probes(corpus, self.seed)  # type: ignore[call-arg]
        return distinct(made)

    def facts(self, cell: Cell) -> dict[str, Any]:
        """What belongs into the run's manifest, and what a run that is resumed must have in common with this one."""
        return {
            "paper": "S2MIA", "dataset": cell.dataset, "retriever": cell.retriever, "size": self.size,
            "model": self.model, "max_tokens": self.max_tokens, "seed": self.seed, "top_k": TOP_K,
        }  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a run will ask at most: requests to the pipeline, and calls of the model (equal prompts are asked once)."""

    requests: int
    calls: int


def cost(arms: list[Arm], probes: list[Probe]) -> Cost:
    """An upper bound, known before anything is asked: each different query of an arm is one call.

    Where a control leaves the prompt as it was the cache answers; that is not known before, so it is not subtracted.
    A paraphrase takes one call more for each different query.
    """
    requests = calls = 0
    for arm in arms:
        asked = arm.gets(probes)
        different = len({p.query for p in asked})
        requests += len(asked)
        calls += different * (2 if any(d.name == "paraphrase" for d in arm.defenses) else 1)
    return Cost(requests, calls)


REWRITE = REQUEST
"""How the pipeline's own model is asked for a paraphrase."""
