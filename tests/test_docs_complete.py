"""Whatever is public is documented, and the site builds: strictly, from its own files alone."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import documentation as docs
import pytest

import ragtrace

sys.path.insert(0, str(docs.DOCS))

import from_code
from from_code import attributes, cards, commands, interface, rules, views


def _says(text: str | None, word: str) -> bool:
    return text is not None and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _unsaid(function: Any, doc: str) -> set[str]:
    """The parameters of a function that its docstring has no word for."""
    given = inspect.signature(function).parameters
    return {name for name in given if name not in ("self", "cls", "args", "kwargs") and not _says(doc, name)}


@pytest.mark.parametrize("name", ragtrace.__all__)
def test_a_public_name_says_what_it_is_and_what_it_takes(name: str) -> None:
    thing = getattr(ragtrace, name)
    assert len(_doc(thing)) > 20
    if dataclasses.is_dataclass(thing):
        missing = {field.name for field in dataclasses.fields(thing) if not _says(_doc(thing), field.name)}
    elif inspect.isclass(thing):
        missing = set()
    else:
        missing = _unsaid(thing, _doc(thing))
    assert not missing


PUBLIC_CLASSES = [
    *(f"ragtrace.{n}" for n in ragtrace.__all__ if inspect.isclass(getattr(ragtrace, n))),
    *interface.HANDED_OUT,
    *(p for paths in interface.ANALYST.values() for p in paths if inspect.isclass(interface.found(p))),
]


@pytest.mark.parametrize("path", PUBLIC_CLASSES)
def test_public_methods_say_what_they_do(path: str) -> None:
    cls: Any = interface.found(path)
    assert _doc(cls)
    own = {n: m for n, m in inspect.getmembers(cls) if not n.startswith("_") and n not in dir(tuple)}
    silent = [n for n, m in own.items() if (inspect.isroutine(m) or isinstance(m, property)) and not _doc(m)]
    assert silent == []


@pytest.mark.parametrize("path", [p for paths in interface.ANALYST.values() for p in paths])
def test_what_analysts_call_says_what_it_takes(path: str) -> None:
    thing = interface.found(path)
    assert len(_doc(thing)) > 20
    assert inspect.isclass(thing) or _unsaid(thing, _doc(thing)) == set()


def test_the_page_has_every_public_name() -> None:
    page = from_code.filled((docs.DOCS / "reference" / "python.md").read_text())
    assert [n for n in ragtrace.__all__ if not _says(page, f"ragtrace.{n}") and n != "RagtraceError"] == []


def test_every_view_and_column_has_a_comment() -> None:
    described, columns = views.read()
    assert [view for view, comment in described.items() if not comment] == []
    assert [(c.view, c.name) for c in columns if not c.comment] == []
    page = views.markdown()
    assert [view for view in described if f"\n## {view}\n" not in f"\n{page}"] == []
    assert len(columns) > 200


def test_every_attribute_says_what_it_is() -> None:
    from ragtrace.record import attributes as module

    found = attributes.read()
    named = {n: v for n, v in vars(module).items() if n.isupper() and isinstance(v, str)}
    assert {a.constant: a.name for a in found} == named
    assert not [a.name for a in found if len(a.means) < 4]
    sections = {a.section for a in found if a.constant != "SCOPE"}
    assert len(sections) > 3
    assert "" not in sections


def test_every_command_and_option_has_a_help_text() -> None:
    silent: list[str] = []
    for name, command in commands.walk():
        silent += [name] if not command.help else []
        silent += [name + " has no example"] if not commands.examples(command) else []
        silent += [f"{name} {p.opts}" for p in commands.parameters(command) if not p.help]
    assert silent == []
    assert {"ragtrace sql", "ragtrace papers s2mia", "ragtrace canary mint"} <= {name for name, _ in commands.walk()}


@pytest.mark.parametrize(("name", "line"), [(n, line) for n, c in commands.walk() for line in commands.examples(c)])
def test_an_example_of_a_command_is_one_that_it_takes(name: str, line: str) -> None:
    command = dict(commands.walk())[name]
    words = shlex.split(line)
    assert words[: len(name.split())] == name.split()
    command.make_context(name, words[len(name.split()) :]).close()  # parses, and runs nothing


def test_every_attack_has_a_card_and_says_what_its_score_is() -> None:
    from ragtrace.attacks import load

    for name, attack in load().items():
        empty = [f.name for f in dataclasses.fields(attack.card) if not str(getattr(attack.card, f.name)).strip()]
        assert (name, empty) == (name, [])
    _documented(load().values(), cards.attacks())


def test_every_defense_says_what_it_takes() -> None:
    from ragtrace.defenses import load

    _documented(load().values(), cards.defenses())


def test_every_corpus_says_what_it_takes() -> None:
    from ragtrace.corpora import load

    _documented(load().values(), cards.corpora())


def _documented(things: Any, page: str) -> None:
    for thing in things:
        cls = thing if isinstance(thing, type) else type(thing)
        assert cls.__dict__.get("__doc__"), f"{thing.name}: {cls.__qualname__} has no docstring of its own"
        assert f"\n## {thing.name}\n" in f"\n{page}"
        said = "".join(_doc(base) for base in cls.__mro__ if base is not object)
        assert (thing.name, _unsaid(cls, said) if cls.__init__ is not object.__init__ else set()) == (thing.name, set())


def test_every_metric_says_what_it_observes() -> None:
    from ragtrace.metrics import load

    page = cards.metrics()
    for name, metric in load().items():
        assert len(metric.observes) > 10, name
        assert f"`{name}`" in page


def test_every_rule_of_the_gate_says_what_it_asks_for() -> None:
    page = rules.markdown()
    for name, rule in rules.load().items():
        assert f"\n### {name}\n" in f"\n{page}"
        inherited = {"no_data", "exceptions"}  # said once, with the policy
        keys = {f.name for f in dataclasses.fields(rule)} - inherited
        assert (name, {k for k in keys if not _says(rule.__doc__, k)}) == (name, set())
    assert {k for k in inherited if not _says(rules.policy(), k)} == set()


def _variables() -> Iterator[str]:
    """Every environment variable that the code names, and every one that it reads."""
    ours = re.compile(r"(RAGTRACE|OTEL|OPENINFERENCE|XDG)_[A-Z_]+")
    for file in [*(docs.ROOT / "ragtrace").rglob("*.py"), *(docs.ROOT / "adapters").rglob("*.py")]:
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ours.fullmatch(node.value):
                yield node.value
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("environment_variables"):
                yield from (alias.name for alias in node.names)
        yield from re.findall(r"(?:environ(?:\.get)?|getenv)[(\[]\s*\"([A-Z_]+)\"", text)


def test_every_environment_variable_is_named() -> None:
    page = (docs.DOCS / "reference" / "environment.md").read_text()
    found = set(_variables())
    assert {v for v in found if v not in page} == set()
    assert {"RAGTRACE_DB_KEY", "OTEL_SDK_DISABLED", "XDG_CACHE_HOME"} <= found
    told = set(re.findall(r"^\| `([A-Z_]+)", page, re.MULTILINE))
    assert {v for v in told if not any(v in f or f in v for f in found)} == set()  # none that nobody reads


def test_every_question_says_what_it_asks_and_takes() -> None:
    from ragtrace.questions import load

    page = from_code.filled((docs.DOCS / "reference" / "questions.md").read_text())
    for name, question in load().items():
        assert f"\n## {name}\n" in page
        assert question.title
        assert question.description
        assert all(p.meaning for p in question.parameters.values())


def test_every_key_of_an_audit_file_is_told() -> None:
    from ragtrace import audit_file

    page = from_code.filled((docs.DOCS / "reference" / "audit-file.md").read_text())
    assert [key for key in (*audit_file._KEYS, *audit_file._CORPUS_KEYS) if not _says(page, key)] == []


def test_every_error_is_in_the_tree() -> None:
    from ragtrace import errors

    drawn = _doc(errors)
    classes = [n for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, Exception)]
    assert [n for n in classes if not _says(drawn, n)] == []


def test_vocabulary_is_all_explained() -> None:
    from typing import get_args

    from ragtrace.gate.rules.base import VERDICTS
    from ragtrace.gate.rules.metric_bound import READINGS
    from ragtrace.types import HOOKS, Path

    page = (docs.DOCS / "concepts.md").read_text()
    picture = (docs.DOCS / "_static" / "hooks.svg").read_text()
    assert [w for w in (*HOOKS, *VERDICTS, *READINGS, *get_args(Path), "no data") if f"`{w}`" not in page] == []
    assert [w for w in (*HOOKS, *VERDICTS) if w not in picture] == []


class _Loaded(HTMLParser):
    """What a page would load by itself, as a link would not."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}.get(tag)
        self.urls += [value for key, value in attrs if key == name and value]


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for needed in ("sphinx", "furo", "myst_parser", "sphinx_design"):
        pytest.importorskip(needed, reason="the extra docs is not installed")
    told = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(docs.DOCS), str(tmp_path)]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {p.relative_to(tmp_path).with_suffix(".md").as_posix() for p in tmp_path.rglob("*.html")}
    assert set(docs.pages()) <= made
    assert "sparse_vote" in (tmp_path / "searchindex.js").read_text()
    for page in tmp_path.rglob("*.html"):
        loaded = _Loaded()
        loaded.feed(page.read_text("utf-8"))
        assert [url for url in loaded.urls if re.match(r"(?:\w+:)?//", url)] == []
        assert "from the code:" not in page.read_text("utf-8")
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)[\"' ]*https?:", sheet.read_text("utf-8")), sheet
    assert not re.search(r"\b(?:href|src)=\"https?:", (docs.DOCS / "_static" / "hooks.svg").read_text())
