"""The six of Mind the Hook, as the artefact under audit: Table I from their source, and from running them."""

from __future__ import annotations

import math

import pytest
from scipy import stats

import ragtrace
from ragtrace.defense import Defense
from ragtrace.defenses import DPRetrieval
from ragtrace.inventory import inventory
from ragtrace.inventory.battery import battery
from ragtrace.papers.ca_dp import CADP
from ragtrace.papers.dp_r import DPStub
from ragtrace.papers.lprag import LPRAG
from ragtrace.papers.no_defense import NoDefense
from ragtrace.papers.pad import PAD
from ragtrace.papers.private_rag import PrivateRAG
from ragtrace.types import Document

TABLE_1: dict[type[Defense], set[str]] = {  # Mind the Hook, Table I: the hooks at which each acts
    NoDefense: set(),
    DPStub: {"retrieval"},
    CADP: {"retrieval"},
    PrivateRAG: {"retrieval"},
    PAD: {"response"},
    LPRAG: {"content", "response"},
}
STUBS = (DPStub, CADP, PrivateRAG)
SECRET = "Mary Johnson, mary.johnson@enron.com, EMP-10293"


def docs(*scores: float | None) -> list[Document]:
    return [Document(f"{i} {SECRET}", f"d{i}", s) for i, s in enumerate(scores)]


def ids(documents: list[Document]) -> list[str]:
    return [d.id for d in documents]


def test_table_1_from_the_source_of_each_module() -> None:
    """By import path of the module, as `ragtrace inventory ragtrace.papers.dp_r …` reads them: nothing is run."""
    found = {d.name: d for d in inventory(*sorted({cls.__module__ for cls in TABLE_1}))}
    assert set(found) == {cls.name for cls, hooks in TABLE_1.items() if hooks}  # No-Defense has no hook to show
    for cls, hooks in TABLE_1.items():
        statuses = {h.hook: h.status for h in found[cls.name].hooks} if hooks else {}
        assert {h for h, s in statuses.items() if s in ("active", "conditional")} == hooks
        assert [h for h, s in statuses.items() if s == "stub"] == (["response"] if cls in STUBS else [])
        assert len(statuses) == len(hooks) + (cls in STUBS)


def test_table_1_from_running_them() -> None:
    instances = [cls(seed=1) if issubclass(cls, DPRetrieval) else cls() for cls in TABLE_1]
    for found, cls in zip(battery(*instances), TABLE_1, strict=True):
        assert {c.hook for c in found.capabilities if c.changed} == TABLE_1[cls]
        assert not any(c.errors or c.mutates for c in found.capabilities)
    assert cls is LPRAG


@pytest.mark.parametrize("cls", STUBS, ids=lambda c: c.name)
def test_the_stubs_give_the_response_back(cls: type[DPRetrieval]) -> None:
    assert cls(seed=1).hooks == ("retrieval", "response")
    assert cls(seed=1).on_response("q", docs(0.5), SECRET) == SECRET


def test_no_defense() -> None:
    assert NoDefense().hooks == ()


def test_ca_dp_gets_noisier_from_turn_to_turn_of_a_dialogue() -> None:
    """Reference: Laplace noise of scale Δ ÷ (ε ÷ 2^turn), by a Kolmogorov-Smirnov test on 2,000 draws of each turn."""
    defense, zeros = CADP(epsilon=4.0, seed=3, higher_is_better=True), docs(*[0.0] * 2_000)
    with ragtrace.conversation("a"):
        turns = [[d.score or 0.0 for d in defense.on_retrieval(f"q{t}", zeros)] for t in range(3)]
    for noise, scale in zip(turns, (0.5, 1.0, 2.0), strict=True):
        assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > 0.01
    first_turn = DPRetrieval(2.0, seed=3, higher_is_better=True).on_retrieval("q0", docs(0.9, 0.5))
    assert [defense.on_retrieval("q0", docs(0.9, 0.5)) for _ in range(2)] == [first_turn] * 2  # each a dialogue
    with ragtrace.conversation("b"):
        assert defense.on_retrieval("q0", docs(0.9, 0.5)) == first_turn


def test_ca_dp_takes_a_dialogue_of_any_length() -> None:
    defense = CADP(seed=1)
    with ragtrace.conversation("a"):
        for turn in range(2_000):
            found = defense.on_retrieval(f"q{turn}", docs(0.9, 0.5))
    assert all(math.isfinite(d.score or 0.0) for d in found)


def test_private_rag_keeps_the_better_half_by_noisy_scores() -> None:
    certain = PrivateRAG(epsilon=1e9, seed=1)
    assert ids(certain.on_retrieval("q", docs(0.9, 0.7, 0.5, 0.3))) == ["d0", "d1"]
    assert ids(certain.on_retrieval("q", docs(0.1, 0.2, 0.3))) == ["d0", "d1"]  # distances
    assert ids(certain.on_retrieval("q", docs(0.9, None, 0.1))) == ["d0", "d1"]
    assert ids(certain.on_retrieval("q", docs(0.9))) == ["d0"] and certain.on_retrieval("q", []) == []
    dropped = [ids(PrivateRAG(epsilon=0.1, seed=s).on_retrieval("q", docs(0.9, 0.1))) for s in range(40)]
    assert 5 < dropped.count(["d1"]) < 35


def test_pad_masks_addresses_and_identifiers_on_a_match_only() -> None:
    assert PAD().hooks == ("response",) and PAD().constants() == {"[EMAIL]", "[ID]"}
    assert PAD().on_response("q", [], SECRET) == "Mary Johnson, [EMAIL], [ID]"
    text = "Mary Johnson, +1 415-555-0132, came."
    assert PAD().on_response("q", [], text) is text


def test_lprag_writes_fixed_names_and_placeholder_domains() -> None:
    defense = LPRAG()
    assert defense.hooks == ("content", "response") and defense.name == "lprag"
    (found,) = defense.on_content("q", docs(0.5))
    assert found.content == defense.on_response("q", [], f"0 {SECRET}")
    assert "Mary" not in found.content and "@example.com" in found.content and "EMP-10293" in found.content
