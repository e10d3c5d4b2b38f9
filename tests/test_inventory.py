"""The source witness: a labelled zoo whose labels are checked by running it, and random programs checked the same way."""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
import json
import os
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ragtrace
from ragtrace.defense import Defense
from ragtrace.defenses import DPRetrieval, Paraphrase, RegexMask, load
from ragtrace.errors import InputError, UsageError
from ragtrace.inventory import inventory
from ragtrace.papers.dp_r import DPStub
from ragtrace.types import Document, Message

ZOO = Path(__file__).parent / "zoo"
sys.path.insert(0, str(ZOO.parent))
MODULES = [importlib.import_module(f"zoo.{p.stem}") for p in sorted(ZOO.glob("*.py")) if p.stem != "__init__"]
CASES = [(m, cls, hook, truth) for m in MODULES for cls, t in m.TRUTH.items() for hook, truth in t.items()]
IDS = [f"{cls}-{hook}" for _, cls, hook, _ in CASES]
INERT = {"stub", "pass_through", "dead"}
ACTING = {"active", "conditional"}


@pytest.fixture(scope="module")
def by_file() -> dict[str, dict[str, str]]:
    found = inventory(ZOO)
    assert not found.warnings
    return {d.name: {h.hook: h.status for h in d.hooks} for d in found}


def test_the_zoo_is_found_whole(by_file: dict[str, dict[str, str]]) -> None:
    assert set(by_file) == {cls for _, cls, _, _ in CASES}
    assert len(by_file) >= 60


@pytest.mark.parametrize(("module", "cls", "hook", "truth"), CASES, ids=IDS)
def test_status(module: object, cls: str, hook: str, truth: str, by_file: dict[str, dict[str, str]]) -> None:
    assert by_file[cls][hook] == truth
    live = {h.hook: h for h in inventory(getattr(module, cls))[0].hooks}
    assert (live[hook].status, set(live)) == (truth, set(by_file[cls]))
    finding = live[hook]
    assert finding.file == module.__file__
    assert f"def on_{hook}" in Path(finding.file).read_text().splitlines()[finding.line - 1]


@pytest.mark.parametrize(("module", "cls", "hook", "truth"), CASES, ids=IDS)
def test_the_label_is_true(module: object, cls: str, hook: str, truth: str) -> None:
    """The reference: the hook is run, on inputs with and without something to protect."""
    if truth == "unknown":
        pytest.skip("what it does is not in its source")
    changed = [run_hook(getattr(module, cls)(), hook, rich) for rich in (True, False)]
    assert any(changed) == (truth in ACTING)
    if truth == "conditional" and cls not in ("EarlyReturn", "SkipsFirst"):
        assert changed == [True, False]


def run_hook(defense: Defense, hook: str, rich: bool) -> bool:
    """Whether the hook changes anything."""
    text = "Write to jo@mail.org now" if rich else "Nothing here"
    documents = [Document(f"{i} {text}", f"d{i}", 0.9 - i / 4) for i in (2, 0, 1)]
    value = {"query": text, "prompt": [Message("user", text)], "response": text}.get(hook, documents)
    before = copy.deepcopy(value)
    arguments = {"query": [value], "prompt": [value], "response": ["q", [], value]}.get(hook, ["q", value])
    try:
        after = getattr(defense, f"on_{hook}")(*arguments)
        if inspect.isawaitable(after):
            after = asyncio.run(after)
    except NotImplementedError:
        return False
    return after is not None and after != before


# -- random programs ------------------------------------------------------------------------------

CONDITIONS = st.sampled_from(["self.flag", "not self.flag", "self.other", "self.off", "True", "False", "not {0}", "{0}"])


def expressions(leaves: list[str], wraps: list[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(leaves),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(wraps), inner).map(lambda t: t[0].format(t[1])),
            st.tuples(inner, CONDITIONS, inner).map(lambda t: f"({t[0]} if {t[1].format(leaves[0])} else {t[2]})"),
        ),
        max_leaves=3,
    )


def programs(leaves: list[str], wraps: list[str], effects: list[str]) -> st.SearchStrategy[list[str]]:
    """Function bodies over the input and two variables, as lines."""
    expression = expressions(leaves, wraps)
    statement = st.one_of(
        st.tuples(st.sampled_from(["x", "y", leaves[0]]), expression).map(lambda t: [f"{t[0]} = {t[1]}"]),
        st.tuples(st.sampled_from(effects), expression).map(lambda t: t[0].format(t[1]).split("\n")),
        expression.map(lambda e: [f"return {e}"]),
    )

    def indent(lines: list[str]) -> list[str]:
        return [f"    {line}" for line in lines]

    def blocks(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
        body = st.lists(inner, min_size=1, max_size=2).map(lambda b: indent(sum(b, [])))
        return st.one_of(
            st.tuples(CONDITIONS, body, body).map(lambda t: [f"if {t[0].format(leaves[0])}:", *t[1], "else:", *t[2]]),
            body.map(lambda b: ["for _ in (1, 2):", *b]),
            st.tuples(body, body).map(lambda t: ["try:", *t[0], "except ValueError:", *t[1]]),
        )

    body = st.lists(st.recursive(statement, blocks, max_leaves=3), min_size=1, max_size=4)
    return st.tuples(body, expression).map(lambda t: [f"x = y = {leaves[0]}", *sum(t[0], []), f"return {t[1]}"])


TEXT = programs(
    ["response", "x", "y"],
    ["({} + '!')", "({} + '')", "({} or '')", "f'{{{}}}'", "self.same({})", "self.mask({})", "str({})"],
    ["self.mask({})", "x += '!'", "y = [{}][0]"],
)
LISTS = programs(
    ["documents", "x", "y"],
    ["list({})", "({} + [self.extra()])", "[d for d in {}]", "{}[:]", "self.same({})", "{}[1:]"],
    [
        "{}.append(self.extra())",
        "for d in {}:\n    d.content += '!'",
        "z = []\nfor d in {}:\n    z.append(d)\nx = z",
        "{}[0].content = 'new'",
        "{}.insert(0, self.extra())",
    ],
)
HEAD = """
from ragtrace.defense import Defense
from ragtrace.types import Document

class Random(Defense):
    off = False
    def __init__(self, flag, other):
        self.flag, self.other = flag, other
    def same(self, value):
        return value
    def mask(self, text):
        return text + "!"
    def extra(self):
        return Document("extra", "e")
"""


def check(lines: list[str], signature: str, hook: str, inputs: list[object], folder: Path) -> None:
    code = HEAD + f"    def on_{hook}({signature}):\n" + "".join(f"        {line}\n" for line in lines)
    path = folder / "random_defense.py"
    path.write_text(code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scope: dict[str, type] = {"__name__": "random_defense"}
        exec(compile(code, "random", "exec"), scope)
    changed = []
    for flags in product((True, False), repeat=2):
        for value in inputs:
            given, before = copy.deepcopy(value), copy.deepcopy(value)
            arguments = ["q", [], given] if hook == "response" else ["q", given]
            try:
                changed.append(getattr(scope["Random"](*flags), f"on_{hook}")(*arguments) != before)
            except (IndexError, TypeError, AttributeError):
                changed.append(False)  # it raises: no effect, and recorded as an error
    (finding,) = inventory(path)[0].hooks
    told = f"{finding.status}: {finding.reason}\n{code}"
    assert "could not be followed" not in finding.reason, told
    if any(changed):
        assert finding.status not in INERT, told
    else:
        assert finding.status not in ACTING, told


RANDOM = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@RANDOM
@given(lines=TEXT)
def test_random_text_hooks_are_never_taken_for_the_opposite(lines: list[str], tmp_path: Path) -> None:
    check(lines, "self, query, documents, response", "response", ["banana", ""], tmp_path)


@RANDOM
@given(lines=LISTS)
def test_random_list_hooks_are_never_taken_for_the_opposite(lines: list[str], tmp_path: Path) -> None:
    inputs = [[Document("a", "1"), Document("b", "2")], []]
    check(lines, "self, query, documents", "content", inputs, tmp_path)
