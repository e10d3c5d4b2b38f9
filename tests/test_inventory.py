"""The source witness: random programs, run to see what is true; targets, and what comes back."""

from __future__ import annotations

import ast
import copy
import gc
import json
import os
import subprocess
import sys
import time
import warnings
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragtrace.defense import Defense
from ragtrace.defenses import DPRetrieval, Paraphrase, RegexMask, load
from ragtrace.errors import InputError, UsageError
from ragtrace.inventory import inventory
from ragtrace.inventory.modules import parsed
from ragtrace.papers.dp_r import DPStub
from ragtrace.types import Document

INERT = {"stub", "pass_through", "dead"}
ACTING = {"active", "conditional"}


# -- random programs ------------------------------------------------------------------------------

CONDITIONS = st.sampled_from(["self.flag", "not self.flag", "self.other", "self.off", "True", "False"])


def flat(blocks: list[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


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
        body = st.lists(inner, min_size=1, max_size=2).map(lambda b: indent(flat(b)))
        return st.one_of(
            st.tuples(CONDITIONS, body, body).map(lambda t: [f"if {t[0].format(leaves[0])}:", *t[1], "else:", *t[2]]),
            body.map(lambda b: ["for _ in (1, 2):", *b]),
            st.tuples(body, body).map(lambda t: ["try:", *t[0], "except ValueError:", *t[1]]),
        )

    body = st.lists(st.recursive(statement, blocks, max_leaves=3), min_size=1, max_size=4)
    return st.tuples(body, expression).map(lambda t: [f"x = y = {leaves[0]}", *flat(t[0]), f"return {t[1]}"])


TEXT = programs(
    ["response", "x", "y"],
    ["({} + '!')", "({} + '')", "({} or '')", "self.same({})", "self.mask({})", "str({})"],
    ["self.mask({})", "x += '!'", "y = [{}][0]"],
)
LISTS = programs(
    ["documents", "x", "y"],
    ["list({})", "({} + [self.extra()])", "[d for d in {}]", "{}[:]", "self.same({})"],
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


def check(lines: list[str], signature: str, hook: str, inputs: list[object], folder: Path, head: str = HEAD) -> None:
    code = head + f"    def {hook}({signature}):\n" + "".join(f"        {line}\n" for line in lines)
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
            arguments = {"on_response": ["q", [], given], "on_content": ["q", given]}.get(hook, [given])
            try:
                changed.append(getattr(scope["Random"](*flags), hook)(*arguments) != before)
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
    check(lines, "self, query, documents, response", "on_response", ["banana", ""], tmp_path)


@RANDOM
@given(lines=LISTS)
def test_random_list_hooks_are_never_taken_for_the_opposite(lines: list[str], tmp_path: Path) -> None:
    inputs = [[Document("a", "1"), Document("b", "2")], []]
    check(lines, "self, query, documents", "on_content", inputs, tmp_path)


DICTS = programs(
    ["docs", "x", "y"],
    [
        "list({})",
        "[dict(d) for d in {}]",
        "[{{**d}} for d in {}]",
        "[{{**d, 'text': d['text'] + '!'}} for d in {}]",
        "copy.deepcopy({})",
        "{}.copy()",
        "self.same({})",
        "[d for d in {} if d['text'] != 'a']",
        "[{{'text': d['text']}} for d in {}]",
    ],
    [
        "for d in {}:\n    d['text'] += '!'",
        "for d in {}:\n    d['text'] = d['text']",
        "for d in {}:\n    d = dict(d)\n    d['text'] = 'new'",
        "{}[0]['text'] = 'new'",
        "{}[0].update(text='new')",
        "{}[0].update({{'text': 'new'}})",
        "z = []\nfor d in {}:\n    z.append({{**d}})\nx = z",
        "z = []\nfor d in {}:\n    e = d.copy()\n    e['text'] = 'new'\n    z.append(e)\nx = z",
        "{}.sort(key=lambda d: d['text'], reverse=True)",
        "(d.update(text='new') for d in {})",
        "[d.update(text='new') for d in {}]",
        "x, y = y, {}",
    ],
)
DUCK = """
import copy

class Random:
    off = False
    def __init__(self, flag, other):
        self.flag, self.other = flag, other
    def same(self, value):
        return value
"""


@RANDOM
@given(lines=DICTS)
def test_random_duck_hooks_are_never_taken_for_the_opposite(lines: list[str], tmp_path: Path) -> None:
    inputs = [[{"text": "a"}, {"text": "b"}], []]
    check(lines, "self, docs", "filter_documents", inputs, tmp_path, DUCK)


# -- targets, and what comes back -----------------------------------------------------------------


def test_dp_r_is_found_out_as_in_table_1() -> None:
    """Mind the Hook, Table I: DP-R acts on retrieval scores; its generation hook is a TODO-flagged pass-through."""
    (found,) = inventory(DPStub(seed=1))
    assert (found.name, found.kind, found.defense) == ("dp_r", "ragtrace", "ragtrace.papers.dp_r.DPStub")
    retrieval, response = found.hooks
    assert (retrieval.hook, retrieval.status) == ("retrieval", "active")
    assert Path(retrieval.file).name == "dp_retrieval.py" and retrieval.reason.startswith("inherited from DPRetrieval")
    assert (response.hook, response.status) == ("response", "stub")
    assert "TODO" in response.reason and Path(response.file).name == "dp_r.py"


def test_our_own_defenses_are_never_called_inert() -> None:
    statuses = {(cls.name, h.hook): h.status for cls in load().values() for h in inventory(cls)[0].hooks}
    assert INERT.isdisjoint(statuses.values())
    assert {hook for hook, status in statuses.items() if status == "unknown"} == {("paraphrase", "query")}


def test_a_live_defense_has_the_hooks_it_says_it_has() -> None:
    assert [h.hook for h in inventory(RegexMask())[0].hooks] == ["response"]
    assert [h.hook for h in inventory(RegexMask)[0].hooks] == ["content", "response"]

    async def rewrite(query: str) -> str:
        return query

    (hook,) = inventory(Paraphrase(rewrite))[0].hooks
    assert Path(hook.file).read_text().splitlines()[hook.line - 1].strip().startswith("async def _on_query_async")


def test_a_hook_that_was_exchanged_at_run_time_is_not_judged_by_its_old_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DPStub, "on_response", lambda self, query, documents, response: "other")
    assert inventory(DPStub())[0].hooks[-1].status == "unknown"


def test_a_class_without_source_is_unknown() -> None:
    scope: dict[str, type[Defense]] = {"__name__": "nowhere"}
    exec(
        "from ragtrace.defense import Defense\n"
        "class Unseen(Defense):\n    def on_query(self, query):\n        return query\n",
        scope,
    )
    (hook,) = inventory(scope["Unseen"])[0].hooks
    assert (hook.hook, hook.status) == ("query", "unknown")


def test_helpers_and_bases_are_followed_into_other_files(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from .base import Half\n")
    (tmp_path / "pkg" / "base.py").write_text(
        "import ragtrace as rt\nfrom pkg.tools import clean\n\n"
        "class Half(rt.Defense):\n    def on_query(self, query):\n        return clean(query)\n"
    )
    (tmp_path / "pkg" / "tools.py").write_text("def clean(text):\n    return text\n")
    (tmp_path / "app.py").write_text("import pkg\n\nclass Whole(pkg.Half):\n    name = 'whole'\n")
    (found,) = inventory(tmp_path / "app.py")
    assert (found.defense, found.name) == ("app.Whole", "whole")
    assert [(h.status, Path(h.file).name, h.line) for h in found.hooks] == [("pass_through", "base.py", 5)]
    assert {d.defense for d in inventory(tmp_path)} == {"app.Whole", "pkg.base.Half"}


def test_other_classes_named_defense_are_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "chess.py").write_text("class Defense: ...\nclass Sicilian(Defense):\n    def on_query(self, q): ...\n")
    assert len(inventory(tmp_path)) == 0


def test_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "bomb.py").write_text(
        "raise SystemExit('run!')\nfrom ragtrace import Defense\n"
        "class A(Defense):\n    def on_query(self, query):\n        return query\n"
    )
    assert inventory(tmp_path / "bomb.py")[0].hooks[0].status == "pass_through"


def test_what_cannot_be_read_is_named_and_the_rest_done(tmp_path: Path) -> None:
    (tmp_path / "py2.py").write_text("print 'hello'\n")
    (tmp_path / "binary.py").write_bytes(b"\0\1\2")
    (tmp_path / "good.py").write_text(
        "from ragtrace import Defense\nclass A(Defense):\n    def on_query(self, query):\n        return query\n"
    )
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    found = inventory(tmp_path, tmp_path / "missing.py")
    assert [d.name for d in found] == ["A"]
    for name in ("py2.py", "binary.py", "gone.py", "missing.py"):
        assert sum(name in w for w in found.warnings) == 1
    with pytest.raises(InputError, match=r"py2\.py.*line 1"):
        inventory(tmp_path / "py2.py")


@pytest.mark.parametrize("targets", [(), (3,), (len,), (int,)])
def test_wrong_targets(targets: tuple[object, ...]) -> None:
    with pytest.raises(UsageError, match="expected a"):
        inventory(*targets)  # type: ignore[arg-type]


def test_json_has_the_shape_of_the_contract() -> None:
    (found,) = json.loads(json.dumps(inventory(DPRetrieval(seed=1)).to_json()))
    assert {"defense", "file", "line", "kind", "hooks"} <= set(found)
    assert set(found["hooks"][0]) == {"hook", "status", "file", "line", "reason"}


def test_importing_the_inventory_is_light() -> None:
    """The standard library's own record of what was imported is the reference."""
    code = (
        "import sys, ragtrace.inventory; "
        "print([m for m in ('duckdb', 'pyarrow', 'torch', 'scipy', 'langchain_core') if m in sys.modules])"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_too_many_paths_are_not_guessed_and_take_no_time(tmp_path: Path) -> None:
    body = "".join(f"        if self.f{i}: response = response + '{i}'\n" for i in range(40))
    (tmp_path / "wide.py").write_text(
        f"import ragtrace\nclass Wide(ragtrace.Defense):\n    def on_response(self, q, d, response):\n{body}"
        "        return response\n"
    )
    started = time.perf_counter()
    found = inventory(tmp_path)[0].hooks[0]
    assert found.status in ("unknown", "conditional")  # it acts, if a flag is on; and never "active" or inert
    assert time.perf_counter() - started < 5


class Parses:
    """Garbage that parses something when it goes, as asyncio does where it prints the traceback of a lost task."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("x = [(1 if a else 2) for a in b]")


def test_garbage_that_parses_does_not_break_the_parsing() -> None:
    source = ("x = " + "(" * 60 + "1" + "+1)" * 60 + "\n") * 400
    before = gc.get_threshold()
    try:
        for young in range(50, 55):
            Parses()
            gc.set_threshold(young, 1, 1)
            assert len(parsed(source.encode()).body) == 400
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
