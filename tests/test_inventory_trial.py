"""Hooks tried out in an interpreter of our own: it decides what the paths alone cannot, and nothing gets out of it."""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path

import pytest

from ragtrace.inventory import inventory
from ragtrace.inventory.trial.natives import degree
from ragtrace.inventory.trial.samples import samples

HEAD = "import collections, itertools, json, operator, os, random, re, statistics, string, subprocess, sys, textwrap\n"


def status(tmp_path: Path, body: str, before: str = "", method: str = "filter_output(self, text)") -> tuple[str, str]:
    """The status of a hook, and the reason."""
    path = tmp_path / "guard.py"
    hook = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    path.write_text(f"{HEAD}{textwrap.dedent(before)}\nclass Guard:\n    def {method}:\n{hook}\n", "utf-8")
    (found,) = inventory(path)
    return found.hooks[0].status, found.hooks[0].reason


ESCAPES = [
    "return operator.attrgetter('__class__.__mro__')(text)[-1].__subclasses__()[0]",
    "return textwrap.re.enum.sys.modules['os'].system('touch MARK')",
    "return json.codecs.open('MARK', 'w').name",
    "f = string.Formatter().get_field('0.__init__', (text,), {})\nreturn f[0].__globals__['os'].remove('MARK')",
    "g = (x for x in text)\nreturn g.gi_frame.f_back.f_globals['__builtins__']['open']('MARK', 'w').name",
    "os.system('touch MARK')\nreturn text",
    "subprocess.run(['touch', 'MARK'])\nreturn text",
    "open('MARK', 'w').close()\nreturn text",
    "exec('import os; os.system(\"touch MARK\")')\nreturn text",
    "__import__('os').system('touch MARK')\nreturn text",
    "return type('X', (), {'__init__': lambda s: open('MARK', 'w')})() or text",
    "return statistics.sys.modules['os'].popen('touch MARK').read()",
    "raise KeyboardInterrupt",
    "raise SystemExit(3)",
    "sys.exit(3)",
    "try:\n    return text.upper\nexcept BaseException:\n    return os.remove('MARK')",
]


@pytest.mark.parametrize("body", ESCAPES)
def test_nothing_of_the_code_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.chdir(tmp_path)
    status(tmp_path, body.replace("MARK", str(tmp_path / "mark")), before="os.system('touch top')\nopen('top', 'w')\n")
    assert [p.name for p in tmp_path.iterdir()] == ["guard.py"]


def test_documents_that_cannot_be_made_are_no_crash(tmp_path: Path) -> None:
    before = """
    import client
    from dataclasses import dataclass
    @dataclass
    class Chunk:
        text: str
        def __post_init__(self):
            if client.ready(self):
                raise ValueError
    """
    body = "return [c for c in documents if '@' not in c.text]"
    found = status(tmp_path, body, before, "filter_documents(self, documents: list[Chunk])")
    assert found[0] == "active"


SLOW = [
    "while True:\n    text += 'x'\nreturn text",
    "return text * 10 ** 12",
    "return str(9 ** 9 ** 9)",
    "for _ in range(60):\n    text = text.replace('e', 'ee' * 9)\nreturn text",
    "return re.sub(r'(\\w+\\s?)+$', 'x', text)",
    "return re.sub(r'(.*)(.*)(.*)(.*)=', 'x', text)",
    "return ''.join(itertools.repeat(text, 10 ** 9))",
    "return sum(itertools.count()) and text",
    "return '{:1000000000}'.format(text)",
    "return f'{text:>{10 ** 9}}'",
    "return text.ljust(10 ** 10)",
    "x = [text]\nfor _ in range(99):\n    x = x + x\nreturn ''.join(x)",
    "return ''.join(map(str, range(10 ** 11)))",
    "return self.filter_output(text)",
]


@pytest.mark.parametrize("body", SLOW)
def test_what_would_take_long_is_given_up(tmp_path: Path, body: str) -> None:
    started = time.process_time()
    status(tmp_path, body)
    assert time.process_time() - started < 3


DECIDED = {
    "return ''.join(c for c in text)": "pass_through",
    "head, sep, tail = text.partition('@')\nreturn head + sep + tail": "pass_through",
    "return json.loads(json.dumps({'t': text}))['t']": "pass_through",
    "return string.Template(text).template": "pass_through",
    "return text[::-1][::-1]": "pass_through",
    "hits = (m for m in re.finditer('@', text))\nlen(list(hits))\nfor h in hits:\n    text = text.replace('@', '')\n"
    "return text": "dead",
    "if text.lower() == 'SECRET':\n    return 'no'\nreturn text": "dead",
    "if re.search('SECRET', text.lower()):\n    return 'no'\nreturn text": "dead",
    "table = {}\ntry:\n    return re.sub('@', table['at'], text)\nexcept KeyError:\n    return text": "dead",
    "if type(text) == 'str':\n    return text.replace('@', '')\nreturn text": "dead",
    "if 'secret' in text:\n    return 'no'\nreturn text": "conditional",
    "return ' '.join('x' if '@' in w else w for w in text.split(' '))": "active",
    "out = ''\nfor c in text:\n    out += '*' if c.isdigit() else c\nreturn out": "active",
    "cleaned = text.replace('@', '')\nreturn text": "dead",
    "text + ' (no personal data, please)'\nreturn text": "dead",
    "if len([c for c in text]) == len(text):\n    return text\nreturn ''": "dead",
    "words = set(text.lower().split())\nif words & {'SECRET', 'TOKEN'}:\n    return 'no'\nreturn text": "dead",
    "words = set(text.lower().split())\nif words & {'secret', 'token'}:\n    return 'no'\nreturn text": "conditional",
    "if '@' in text or '@' not in text:\n    return text\nreturn text.replace('@', '')": "dead",
    "found = False\nfor w in ('SSN', 'MRN'):\n    if w in text.lower():\n        found = True\n"
    "if found:\n    return 'no'\nreturn text": "dead",
    "found = False\nfor w in ('SSN', 'MRN'):\n    if w in text:\n        found = True\n"
    "if found:\n    return 'no'\nreturn text": "conditional",
    "if text.strip().startswith(' '):\n    return 'no'\nreturn text": "dead",
    "n = text.count('@')\nif n < 0:\n    return 'no'\nreturn text": "dead",
    "n = text.count('@')\nif n > 4:\n    return 'no'\nreturn text": "conditional",
    "if len(text) > 2000:\n    return text[:2000]\nreturn text": "conditional",
    "return text or text.replace('@', '')": "dead",
    "return re.sub(r'$\\w+@', '', text)": "dead",
    "return re.sub('\\\\\\\\d{3}', '', text)": "dead",
    "for word in ():\n    text = text.replace(word, '')\nreturn text": "dead",
}


@pytest.mark.parametrize(("body", "wanted"), DECIDED.items())
def test_what_the_paths_alone_leave_open(tmp_path: Path, body: str, wanted: str) -> None:
    found = status(tmp_path, body)
    assert found[0] == wanted, found


def test_what_is_written_without_def_is_a_hook_too(tmp_path: Path) -> None:
    path = tmp_path / "guard.py"
    path.write_text("class Guard:\n    filter_output = staticmethod(lambda text: text.replace('@', ''))\n", "utf-8")
    (hook,) = inventory(path)[0].hooks
    assert (hook.hook, hook.status) == ("response", "active")


def test_a_transformation_of_nodes_is_a_hook_and_a_splitter_is_none(tmp_path: Path) -> None:
    path = tmp_path / "parts.py"
    path.write_text(
        "from llama_index.core.schema import TransformComponent\n"
        "from llama_index.core.node_parser import SentenceSplitter\n"
        "class Scrub(TransformComponent):\n    def __call__(self, nodes, **kwargs):\n"
        "        for n in nodes:\n            n.set_content(n.get_content().replace('@', ''))\n        return nodes\n"
        "class Cut(SentenceSplitter):\n    def __call__(self, nodes, **kwargs):\n        return nodes\n",
        "utf-8",
    )
    assert [(d.name, h.hook, h.status) for d in inventory(path) for h in d.hooks] == [("Scrub", "content", "active")]


def test_a_constructor_that_leaves_it_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "guard.py"
    path.write_text(
        "import re\nclass Guard:\n    def __init__(self, patterns: list | None = None):\n"
        "        self.patterns = patterns or []\n    def filter_output(self, text):\n"
        "        for p in self.patterns:\n            text = re.sub(p, 'x', text)\n        return text\n",
        "utf-8",
    )
    (hook,) = inventory(path)[0].hooks
    assert hook.status == "dead"
    assert "`self.patterns`" in hook.reason and "`patterns` is given" in hook.reason


@pytest.mark.parametrize(
    ("pattern", "power"),
    [
        (r"[\w.+-]+@[\w-]+\.\w+", 2),
        (r"\d{3}-\d{2}-\d{4}", 1),
        (r"(.*)(.*)x", 3),
        (r"(\w+\s?)+$", 99),
        (r"(?:[A-Z][a-z]+,)+", 2),
    ],
)
def test_how_long_a_pattern_may_take(pattern: str, power: int) -> None:
    assert degree(pattern, 0) == power


@pytest.mark.parametrize(
    "pattern", [r"\b\d{3}-\d{2}-\d{4}\b", r"[\w.]+@[\w.]+", r"(?i)secret|token", r"(['\"]).+?\1", r"^SYSTEM:\s*\S+$"]
)
def test_samples_match_their_pattern(pattern: str) -> None:
    made = samples(pattern)
    assert made and all(re.search(pattern, text) for text in made)


SWITCHED = {
    "scale: float = 0.0|return [s + self.scale * random.gauss(0, 1) for s in scores]": "dead",
    "most: int | None = None|return scores if self.most is None else scores[: self.most]": "dead",
    "most: int = 2|return scores[: self.most]": "active",
    "banned: tuple = ()|return [s for s in scores if s not in self.banned]": "dead",
}


@pytest.mark.parametrize(("code", "wanted"), SWITCHED.items())
def test_what_its_constructor_leaves_off_is_dead(tmp_path: Path, code: str, wanted: str) -> None:
    parameter, body = code.split("|", 1) if "None|" not in code else code.rsplit("|", 1)
    name = parameter.partition(":")[0]
    path = tmp_path / "guard.py"
    path.write_text(
        f"import random\nclass Guard:\n    def __init__(self, {parameter}):\n        self.{name} = {name}\n"
        f"    def perturb_scores(self, scores):\n        {body}\n",
        "utf-8",
    )
    (hook,) = inventory(path)[0].hooks
    assert hook.status == wanted, hook


ELSEWHERE = {
    "return self.client.redact(text)": "unknown",  # nothing else is known of it
    "return self.client.rewrite(text).text": "active",
    "out = self.client.rewrite(text)\nreturn f'{out} (checked)'": "active",
    "return self.client.loads(self.client.dumps(text))": "unknown",
    "self.client.rewrite([text])\nreturn text": "pass_through",
}


@pytest.mark.parametrize(("body", "wanted"), ELSEWHERE.items())
def test_what_is_done_with_an_answer_out_of_sight(tmp_path: Path, body: str, wanted: str) -> None:
    path = tmp_path / "guard.py"
    hook = textwrap.indent(body, " " * 8)
    path.write_text(
        "class Guard:\n    def __init__(self, client):\n        self.client = client\n"
        f"    def filter_output(self, text):\n{hook}\n",
        "utf-8",
    )
    (found,) = inventory(path)[0].hooks
    assert found.status == wanted, found
