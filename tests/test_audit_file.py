"""``ragtrace audit``: an app of the user's own, from a file or from the command line, to verdicts and results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import ragtrace
from ragtrace import audit_file
from ragtrace.auditing import conduct
from ragtrace.cli import app as cli
from ragtrace.defenses import DPRetrieval, RegexMask
from ragtrace.errors import InputError, UsageError

FACTORY = """
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from ragtrace import Defense


class Parrot(BaseChatModel):
    @property
    def _llm_type(self):
        return "parrot"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(messages[-1].text))])


class House(Defense):
    name = "house"

    def on_response(self, query, documents, response):
        return "no comment"


def make(documents):
    index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    index.add_documents([Document(page_content=d.content, id=d.id) for d in documents])
    prompt = ChatPromptTemplate.from_template("{context} {question}")
    retriever = index.as_retriever(search_kwargs={"k": 5})
    return {"context": retriever, "question": RunnablePassthrough()} | prompt | Parrot() | StrOutputParser()


def fixed():
    return lambda query: "always the same"


def broken(documents):
    return 3
"""
AUDIT = """
app = "the_app:make"
db = "out.duckdb"
seeds = [1, 2]
concurrency = 2

[corpus]
name = "synthetic_email"
members = 10
non_members = 6
canaries = ["email"]

[attacks]
canary = { count = 4 }
s2mia = { count = 8 }

[arms]
none = []
masked = ["regex_mask"]
house = ["the_app:House"]
noisy = [{ name = "dp_retrieval", epsilon = 0.5, seed = 3 }]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "the_app.py").write_text(FACTORY)
    (tmp_path / "audit.toml").write_text(AUDIT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "the_app", raising=False)
    return tmp_path


def test_a_file_says_all(here: Path) -> None:
    found = audit_file.read(here / "audit.toml")
    assert (found.app, found.seeds, found.concurrency, found.members, found.families) == (
        "the_app:make", (1, 2), 2, 10, ("email",),
    )  # fmt: skip
    assert [arm.name for arm in found.arms] == ["none", "masked", "house", "noisy", "no_retrieval", "without_target"]
    assert [arm.attacks for arm in found.arms[-2:]] == [("canary", "s2mia"), ("s2mia",)]
    mask, house, noisy, *_ = found.defenses
    assert isinstance(mask, RegexMask)
    assert house.name == "house"
    assert isinstance(noisy, DPRetrieval) and (noisy.epsilon, noisy.seed) == (0.5, 3)
    assert [a.name for a in found.attacks] == ["canary", "s2mia"]


def test_an_audit_from_its_file_to_its_verdicts(here: Path) -> None:
    done = CliRunner().invoke(cli, ["audit", "audit.toml"])
    assert done.exit_code == 0, done.output
    assert "136 requests, 0 failed" in done.output  # (4 arms + no_retrieval) × 2 × 12, without_target × 2 × 8
    with ragtrace.open(here / "out.duckdb") as db:
        assert db.execute("SELECT count(*), count(DISTINCT seed), count(DISTINCT run_id) FROM probes").fetchone() == (
            136, 2, 1,
        )  # fmt: skip
        verdicts = dict(db.execute("SELECT defense, verdict FROM verdicts WHERE hook = 'response'").fetchall())
        assert verdicts == {"regex_mask": "active", "house": "active"}
        sources = dict(db.execute("SELECT defense, source_status FROM verdicts WHERE hook = 'response'").fetchall())
        assert sources["house"] == "active"
        recovered = dict(db.execute("SELECT arm, value FROM results WHERE metric = 'canary_recovery_email'").fetchall())
        assert recovered["none"] > 0.2
        assert recovered["masked"] == recovered["house"] == 0


def test_dry_run_asks_and_writes_nothing(here: Path) -> None:
    done = CliRunner().invoke(cli, ["audit", "audit.toml", "--dry-run"])
    assert done.exit_code == 0
    assert "at most 136 requests" in done.output
    assert not list(here.glob("out.duckdb*"))


def test_from_the_command_line(here: Path) -> None:
    words = ["audit", "--app", "the_app:make", "--members", "6", "--canary", "email", "--attack", "benign",
             "--defense", "the_app:House", "--defense", "regex_mask", "--seed", "5", "--db", "cli.duckdb"]  # fmt: skip
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    with ragtrace.open(here / "cli.duckdb") as db:
        arms = db.execute("SELECT DISTINCT arm FROM probes ORDER BY arm").fetchall()
        assert arms == [("House",), ("no_retrieval",), ("none",), ("regex_mask",)]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('app = "the_app:make"', "", "app is None; expected 'module:factory'"),
        ("seeds = [1, 2]", "seedz = [1]", "'seedz' is not known; did you mean 'seeds'"),
        ("seeds = [1, 2]", "seeds = []", "expected a list of whole numbers"),
        ("concurrency = 2", "concurrency = 0", "concurrency is 0"),
        ("concurrency = 2", 'capture = "all"', "capture is 'all'; expected one of"),
        ("concurrency = 2", 'mode = "chatty"', "mode is 'chatty'; expected one of single_turn"),
        ('"synthetic_email"', '"synthetic_emails"', "did you mean 'synthetic_email'"),
        ("members = 10", "members = -1", r"\[corpus\] members is -1"),
        ("members = 10", "member = 10", "member.*it takes longest"),
        ("canary = { count = 4 }", "canari = {}", "did you mean 'canary'"),
        ("canary = { count = 4 }", "canary = { counts = 4 }", "counts.*it takes count"),
        ("canary = { count = 4 }", "canary = 4", "expected its parameters"),
        ('["regex_mask"]', '["regex_maks"]', "did you mean 'regex_mask'"),
        ('["regex_mask"]', '"regex_mask"', "expected a list of defenses"),
        ('["the_app:House"]', '["the_app:Hous"]', "cannot be imported"),
        ('["the_app:House"]', '["the_app:fixed"]', "expected a ragtrace.Defense"),
        ('["email"]', '"email"', "expected a list of families"),
    ],
)
def test_what_is_wrong_is_told_with_what_was_expected(here: Path, old: str, new: str, says: str) -> None:
    assert old in AUDIT
    (here / "audit.toml").write_text(AUDIT.replace(old, new, 1))
    with pytest.raises(UsageError, match=says):
        audit_file.read(here / "audit.toml")


@pytest.mark.parametrize(
    ("factory", "says"), [("fixed", "takes no documents"), ("broken", "made int"), ("none", "cannot be")]
)
def test_factories_that_do_not_fit(here: Path, factory: str, says: str) -> None:
    (here / "audit.toml").write_text(AUDIT.replace("the_app:make", f"the_app:{factory}"))
    done = CliRunner().invoke(cli, ["audit", "audit.toml"], catch_exceptions=True)
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)


def test_no_file_and_no_toml(here: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.toml cannot be read"):
        audit_file.read(here / "missing.toml")
    (here / "bad.toml").write_text("app = [")
    with pytest.raises(InputError, match=r"bad\.toml is not TOML"):
        audit_file.read(here / "bad.toml")
    done = CliRunner().invoke(cli, ["audit"])
    assert isinstance(done.exception, UsageError)


@pytest.mark.parametrize("method", ["invoke", "query", "chat", "run"])
def test_what_takes_a_query(method: str) -> None:
    app: Any = type("App", (), {method: lambda self, query: f"{query}!"})()
    assert audit_file.callable_of(app, "a:b")("q") == "q!"


def test_controls_can_be_left_out(here: Path) -> None:
    (here / "audit.toml").write_text(AUDIT.replace("concurrency = 2", "controls = false"))
    assert len(audit_file.read(here / "audit.toml").arms) == 4


def test_the_recommended_combination_is_an_arm_of_its_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """House answers nothing at all, so it alone covers everything; without it two are needed, or one that is there."""
    told = {
        "app": "the_app:make", "db": "out.duckdb", "corpus": {"name": "synthetic_email", "members": 6},
        "attacks": {"prompt_stealing": {"count": 2}}, "recommended": True,
    }  # fmt: skip
    arms = {"none": [], "masked": ["regex_mask"], "names": ["entity_substitution"]}
    run = conduct(audit_file.made(told | {"arms": arms}), Console())
    assert "recommended: regex_mask + entity_substitution, an arm of its own" in capsys.readouterr().out
    with ragtrace.open("out.duckdb") as db:
        found = dict(db.execute("SELECT DISTINCT arm, defense FROM results WHERE run_id = ?", [run]).fetchall())
        kept = db.execute("SELECT DISTINCT defense FROM capabilities ORDER BY ALL").fetchall()
    assert found == {
        "none": None, "masked": "regex_mask", "names": "entity_substitution",
        "recommended": "regex_mask+entity_substitution", "no_retrieval": "no_retrieval",
    }  # fmt: skip
    assert kept == [("entity_substitution",), ("regex_mask",)]

    conduct(audit_file.made(told | {"arms": arms | {"both": ["the_app:House"]}}), Console())
    assert "recommended: house, which is the arm both" in capsys.readouterr().out


def test_nothing_to_recommend(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {
        "app": "the_app:make", "attacks": {"prompt_stealing": {"count": 1}}, "recommended": True,
        "corpus": {"name": "synthetic_email", "members": 6},
    }  # fmt: skip
    conduct(audit_file.made(told | {"db": "x.duckdb", "arms": {"none": [], "noisy": ["dp_retrieval"]}}), Console())
    assert "none of the defenses takes anything out of a response" in capsys.readouterr().out
    with ragtrace.open("x.duckdb") as db:
        assert db.execute("SELECT DISTINCT defense FROM capabilities").fetchall() == [("dp_retrieval",)], "no control"
    for wrong in ({"arms": {"none": []}}, {"arms": {"none": [], "recommended": ["regex_mask"]}}, {"recommended": 3}):
        with pytest.raises(UsageError, match="recommended"):
            audit_file.made(told | {"arms": {"none": [], "masked": ["regex_mask"]}} | wrong)
