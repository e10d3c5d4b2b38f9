"""What ``inventory`` takes: paths, import paths, notebooks, live objects; and input that is bad."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from ragtrace.errors import InputError, UsageError
from ragtrace.inventory import inventory
from ragtrace.inventory.patterns import impossible

MASK = "class Mask:\n    def filter_output(self, text):\n        return text.upper()\n"
STUB = "class Stub:\n    def filter_output(self, text):\n        return text\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``shop`` with a class that is defined in one module and named in another."""
    folder = tmp_path / "shop"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported!')\nfrom .guards import Mask as Guard\n")
    (folder / "guards.py").write_text(MASK + STUB)
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "other.py").write_text("from shop.guards import Mask\n\nclass Child(Mask):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def names(*targets: object) -> list[str]:
    return [d.defense for d in inventory(*targets)]


def test_import_paths_are_found_and_nothing_is_imported(package: Path) -> None:
    assert names("shop.guards") == ["shop.guards.Mask", "shop.guards.Stub"]
    assert names("shop.guards.Stub") == names("shop.guards:Stub") == ["shop.guards.Stub"]
    assert names("shop.Guard") == names("shop:Guard") == ["shop.guards.Mask"]
    assert names("shop") == ["shop.guards.Mask", "shop.guards.Stub", "shop.deep.other.Child"]
    assert names("shop.deep.other:Child") == ["shop.deep.other.Child"]
    assert not [m for m in sys.modules if m.partition(".")[0] == "shop"]


def test_an_import_path_is_found_from_the_current_folder(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(package)
    assert names("shop.guards:Mask") == ["shop.guards.Mask"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("sys", "built in or frozen"),
        ("zlib", "compiled module|built in"),
        ("no_such_package.module", "no module 'no_such_package'"),
        ("shop.guards.Nothing", "has no 'Nothing' .* it has Mask, Stub"),
        ("not a path", "no such file or folder"),
        ("./missing.py", "no such file or folder"),
        ("", "no such file or folder"),
    ],
)
def test_what_is_not_there_is_named(package: Path, target: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        inventory(target)
    found = inventory(target, package / "shop" / "guards.py")
    assert len(found) == 2 and len(found.warnings) == 1


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# TODO everything"]},
        {"cell_type": "code", "source": ["%pip install x\n", "import re\n", "files = !ls\n", "re.sub?"]},
        {"cell_type": "code", "source": "%%bash\nrm -rf /"},
        {"cell_type": "code", "source": "def broken(:\n"},
        {
            "cell_type": "code",
            "source": ["class G:\n", "    def filter_output(self, text):\n", "        return text[1:]\n", "\n",
                       "    def filter_input(self, query):\n", "        # TODO\n", "        return query"],
        },
        {"cell_type": "code", "source": ["x = await fetch()\n", "G().filter_output('a')"]},
    ],
    "nbformat": 4,
}  # fmt: skip


def test_notebooks_are_read_and_lines_are_those_of_the_cell(tmp_path: Path) -> None:
    file = tmp_path / "work.ipynb"
    file.write_text(json.dumps(NOTEBOOK))
    (found,) = inventory(file)
    assert (found.defense, found.cell, found.line) == ("work.G", 5, 1)
    query, response = found.hooks
    assert (query.status, query.cell, query.line, query.where) == ("stub", 5, 5, f"{file}, cell 5, line 5")
    assert "cell 5, line 6 says `TODO`" in query.reason
    assert (response.status, response.line) == ("active", 2) and "(cell 5, line 3)" in response.reason
    assert {"cell", "line", "file"} <= set(found.to_json()["hooks"][0])
    assert names(tmp_path) == ["work.G"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', "\ufeff{}"])
def test_a_broken_notebook_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.ipynb").write_text(text)
    (tmp_path / "good.py").write_text(MASK)
    found = inventory(tmp_path)
    assert len(found) == 1 and "bad.ipynb: skipped, no valid notebook" in found.warnings[0]


def test_bad_files_are_named_and_the_rest_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.py").write_text(MASK)
    (tmp_path / "two.py").write_text("class Old:\n    def filter_output(self, t):\n        print t\n")
    (tmp_path / "binary.py").write_bytes(b"\0\1\2" * 50)
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "cookie.py").write_bytes(b"# -*- coding: klingon -*-\n")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5_000 + ")" * 5_000)
    (tmp_path / "tall.py").write_text("x = " + "-" * 60_000 + "1")
    (tmp_path / "huge.py").write_text(MASK + "#" * 4_100_000)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "escape.py").write_text("class \x1b[31m:\n")
    found = inventory(tmp_path)
    assert [d.defense.rpartition(".")[2] for d in found] == ["Mask"]
    bad = ("two", "binary", "latin", "cookie", "deep", "tall", "huge", "self", "pipe", "escape")
    for name in bad:
        told = [w for w in found.warnings if f"{name}.py: skipped, " in w]
        assert len(told) == 1, (name, found.warnings)
    assert len(found.warnings) == len(bad)
    assert "4,100," in next(w for w in found.warnings if "huge.py" in w)


def test_an_expression_as_deep_as_the_parser_allows_is_survived(tmp_path: Path) -> None:
    long = " + ".join(["text"] * 3_000)
    (tmp_path / "long.py").write_text(f"class Long:\n    def filter_output(self, text):\n        return {long}\n")
    (tmp_path / "good.py").write_text(MASK)
    found = inventory(tmp_path)
    assert "good.Mask" in {d.defense for d in found}
    assert len(found) + len(found.warnings) == 2


def test_circular_imports_and_bases_are_survived(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from b import B, help_me\nclass A(B):\n    def filter_output(self, t):\n        return help_me(t)\n"
    )
    (tmp_path / "b.py").write_text("from a import A, help_me\nclass B(A):\n    pass\n")
    (tmp_path / "c.py").write_text(
        "from c import D as D\nclass E(E):\n    def filter_output(self, t):\n        return self.filter_output(t)\n"
    )
    found = inventory(tmp_path)
    assert {d.name for d in found} == {"A", "B", "E"} and not found.warnings


def test_unreadable_files_and_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(MASK)
    (tmp_path / "shut.py").write_text(MASK)
    (tmp_path / "shut.py").chmod(0)
    if os.access(tmp_path / "shut.py", os.R_OK):
        pytest.skip("this user may read everything")
    assert any("shut.py: skipped, Permission" in w for w in inventory(tmp_path).warnings)


# -- names ----------------------------------------------------------------------------------------

OWN = "class X:\n    def cook(self, text):\n        return text.upper()\n"


def test_the_table_of_names_can_be_extended(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(OWN)
    (tmp_path / "names.toml").write_text('[methods]\ncook = "prompt"\n')
    assert not inventory(tmp_path / "x.py")
    for given in ({"cook": "prompt"}, tmp_path / "names.toml", str(tmp_path / "names.toml")):
        ((hook,),) = (d.hooks for d in inventory(tmp_path / "x.py", names=given))
        assert (hook.hook, hook.status) == ("prompt", "active")


@pytest.mark.parametrize("text", ["[methods", '[methods]\ncook = "kitchen"\n', "methods = 3\n"])
def test_a_bad_table_of_names_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.py").write_text(OWN)
    (tmp_path / "names.toml").write_text(text)
    with pytest.raises(UsageError, match=r"names\.toml"):
        inventory(tmp_path / "x.py", names=tmp_path / "names.toml")
    with pytest.raises(UsageError, match=r"gone\.toml"):
        inventory(tmp_path / "x.py", names=tmp_path / "gone.toml")


# -- what is none ---------------------------------------------------------------------------------


def test_what_only_looks_like_a_defense_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "import abc, typing\n"
        "class P(typing.Protocol):\n    def filter_output(self, t): ...\n"
        "class A(abc.ABC):\n    @abc.abstractmethod\n    def redact(self, t): ...\n"
        "class User:\n    def go(self, g):\n        return g.filter_output('x')\n"
        "class Data:\n    mask = True\n    redact: bool = False\n"
        "class Prop:\n    @property\n    def mask(self):\n        return 1\n"
        "class Frame:\n    def mask(self, cond, other=None):\n        return self\n"
        "def filter_output(t):\n    return t\n"
        "class BaseNodePostprocessor: ...\n"
        "class Mine(BaseNodePostprocessor):\n    def _postprocess_nodes(self, nodes):\n        return nodes\n"
    )
    assert not inventory(tmp_path / "x.py")


# -- live objects ---------------------------------------------------------------------------------


class Switch:
    def __init__(self, on: bool = True) -> None:
        self.on = on

    def filter_output(self, text: str) -> str:
        return text.upper() if self.on else text


class Turned(Switch):
    def turn(self) -> None:
        self.on = True


def test_a_live_object_s_switches_are_seen() -> None:
    def status(target: object) -> str:
        ((hook,),) = (d.hooks for d in inventory(target))
        return hook.status

    assert [status(t) for t in (Switch, Switch(on=True), Switch(on=False))] == ["conditional", "active", "dead"]
    assert status(Turned(on=False)) == "conditional"  # one of its methods may turn it on


def test_live_objects_of_every_kind() -> None:
    from langchain_core.runnables import RunnableLambda
    from zoo import langchain_parts, llama_index_parts

    assert [d.name for d in inventory(langchain_parts.masker, langchain_parts.redact_answer)] == [
        "mask_output",
        "redact_answer",
    ]
    found = inventory(
        langchain_parts.redact_prompt, langchain_parts.house, langchain_parts.TopN(), llama_index_parts.MaskNodes()
    )
    assert [(d.name, d.kind) for d in found] == [
        ("redact_prompt", "langchain"), ("house-mask", "ragtrace"), ("TopN", "langchain"), ("MaskNodes", "llama_index"),
    ]  # fmt: skip
    assert isinstance(llama_index_parts, types.ModuleType) and len(inventory(llama_index_parts)) > 10
    with pytest.raises(UsageError, match="expected a defense"):
        inventory(RunnableLambda(len), functools.partial(len))


def test_a_method_exchanged_at_run_time_is_not_judged_by_its_old_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Switch, "filter_output", lambda self, text: text)
    ((hook,),) = (d.hooks for d in inventory(Switch()))
    assert hook.status == "unknown" and "exchanged" in hook.reason


# -- patterns, time -------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["$^", "(?!)", "a^", r"[^\s\S]", r"x\Z\w", "$a", "(a^)+", "(?:a^|b$c)"])
def test_patterns_that_cannot_match(pattern: str) -> None:
    import re

    texts = ["", "a", "b", "ab", "x", "xa", "a\nb", "\n", "b\nc", "$a", "a^"]
    assert impossible(pattern)
    assert not any(re.search(pattern, text) for text in texts if text.strip())


@pytest.mark.parametrize(
    "pattern", [r"\S+@\S+", "^a", "a$", "(?m)a$\n^b", "(?m:a\n^b)", "a*^b", "(a^)?b", "$", "(?<=a)b", "["]
)
def test_patterns_that_may_match(pattern: str) -> None:
    assert not impossible(pattern)


def test_the_frameworks_whole_packages_in_time_and_without_importing_them() -> None:
    code = (
        "import sys, time; from ragtrace.inventory import inventory; t = time.perf_counter(); "
        "found = inventory('langchain_core', 'langchain', 'langchain_classic', 'langchain_community', "
        "'llama_index.core'); "
        "print(len(found), time.perf_counter() - t, 'langchain_core' in sys.modules or 'llama_index' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, seconds, imported = done.stdout.split()
    assert int(count) > 50 and float(seconds) < 60 and imported == "False"


def test_one_file_in_half_a_second() -> None:
    zoo = Path(__file__).parent / "zoo" / "duck.py"
    best = min(_timed(zoo) for _ in range(3))
    assert best < 0.5


def _timed(file: Path) -> float:
    started = time.process_time()  # the cores are shared
    assert inventory(file)
    return time.process_time() - started


def test_a_folder_whose_bases_are_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is a defense by what it derives from, wherever that is: in our package, a framework, or beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop" / "guards").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "base.py").write_text("from ragtrace import Defense\nclass Base(Defense):\n    pass\n")
    (tmp_path / "shop" / "again.py").write_text("from .base import Base as Root\n")
    hook = "    def on_query(self, query):\n        return query.replace('@', '')\n"
    guards = tmp_path / "shop" / "guards"
    (guards / "__init__.py").touch()
    (guards / "one.py").write_text(f"from shop.base import Base\nclass One(Base):\n{hook}")
    (guards / "two.py").write_text(f"from ..again import Root\nclass Two(Root):\n{hook}")
    (guards / "three.py").write_text(
        f"from ragtrace.defenses.regex_mask import RegexMask\nclass Three(RegexMask):\n{hook}"
    )
    (guards / "four.py").write_text(f"from collections import OrderedDict\nclass Four(OrderedDict):\n{hook}")
    assert [d.defense.rpartition(".")[2] for d in inventory(guards)] == ["One", "Three", "Two"]


def test_the_papers_are_found_as_a_package() -> None:
    names = {d.defense.rpartition(".")[2] for d in inventory("ragtrace.papers")}
    assert {"CADP", "DPStub", "LPRAG", "PAD", "PrivateRAG"} <= names
