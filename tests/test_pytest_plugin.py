"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

APP = """
import ragtrace


@ragtrace.observe(hook="response", name="house-mask")
def mask(text):
    return text.replace("ann", "[name]")


@ragtrace.pipeline("app")
def answer(query, masked=True):
    with ragtrace.generation(query, model="m") as stage:
        text = stage.response(f"{query} ann")
        return mask(text) if masked else text


class Search:
    def __init__(self, documents):
        self.documents = documents

    def __call__(self, query):
        with ragtrace.pipeline("search"):
            with ragtrace.retrieval(query) as stage:
                found = stage.documents([d.content for d in self.documents])
            with ragtrace.generation("\\n".join(map(str, found)), model="m") as stage:
                return stage.response(stage.prompt)


def make(documents):
    return Search(documents)
"""


INI = """
[pytest]
addopts = --strict-markers
filterwarnings = error
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "pytest.ini").write_text(INI)
    return tmp_path


def run(project: Path, test: str, *options: str) -> tuple[dict[str, int], str]:
    """The counts of a test run with the plugin, and what it printed."""
    (project / "test_app.py").write_text(f"import pytest\nfrom app import answer, make\n\n{test}")
    loaded = any(p.name == "ragtrace" for p in entry_points(group="pytest11")) or "ragtrace.pytest_plugin" in options
    plugin = [] if loaded else ["-p", "ragtrace.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *plugin, *options],
        cwd=project, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path(project)},
    )  # fmt: skip
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout.splitlines()[-1])}
    return counts, done.stdout + done.stderr


def path(project: Path) -> str:
    return os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH"))))


def test_a_marked_test_fails_where_its_defense_is_gone_round(project: Path) -> None:
    counts, printed = run(
        project,
        "@pytest.mark.ragtrace\ndef test_masked():\n    assert answer('q') == 'q [name]'\n\n"
        "@pytest.mark.ragtrace\ndef test_forgotten():\n    assert answer('q') and answer('q', masked=False)\n\n"
        "def test_plain():\n    answer('q', masked=False)\n",
    )
    assert counts == {"passed": 2, "failed": 1}, printed
    assert "ragtrace: 1 of 3 rules breached" in printed and "FAILED test_app.py::test_forgotten" in printed
    assert "defenses_act: house-mask · response: bypassed: changed something in 1 of 1 runs" in printed
    assert "pytest_plugin.py" not in printed  # the failure speaks of the app, not of us


def test_a_test_that_fails_by_itself_fails_for_its_own_reason(project: Path) -> None:
    counts, printed = run(
        project, "@pytest.mark.ragtrace\ndef test_it():\n    answer('q', masked=False)\n    assert 1 == 2\n"
    )
    assert counts == {"failed": 1} and "assert 1 == 2" in printed and "rules breached" not in printed


def test_the_marker_takes_a_policy_as_file_or_mapping_and_a_class_or_coroutine(project: Path) -> None:
    (project / "policy.toml").write_text("[[defenses_act.exceptions]]\ndefense = 'house-mask'\nreason = 'known'\n")
    counts, printed = run(
        project,
        "GONE = dict(defenses_act={'allow': ['bypassed']})\n\n"
        "@pytest.mark.ragtrace(policy='policy.toml')\ndef test_file():\n    answer('q', masked=False)\n\n"
        "@pytest.mark.ragtrace(policy=GONE)\nclass TestThem:\n"
        "    def test_one(self): answer('q', masked=False)\n    async def test_two(self): answer('q', masked=False)\n\n"
        "@pytest.mark.ragtrace(policy={'defences_act': {}})\ndef test_wrong(): answer('q')\n\n"
        "@pytest.mark.ragtrace(polcy=1)\ndef test_misspelt(): answer('q')\n",
    )
    assert counts == {"passed": 3, "failed": 2}, printed
    assert "did you mean 'defenses_act'?" in printed and "the marker ragtrace got {'polcy'}" in printed


def test_a_marked_test_that_runs_no_defense_is_not_green(project: Path) -> None:
    counts, printed = run(project, "@pytest.mark.ragtrace\ndef test_nothing():\n    pass\n")
    assert counts == {"failed": 1} and "no data: no defense is declared" in printed


def test_the_fixture_answers_by_hand(project: Path) -> None:
    counts, printed = run(
        project,
        "def test_it(ragtrace_db):\n"
        "    answer('who?')\n"
        "    assert ragtrace_db.verdicts() == {('house-mask', 'response'): 'active'}\n"
        "    with ragtrace_db.open() as db:\n"
        "        assert db.execute('SELECT query, response FROM generations').fetchall() == [('who?', 'who? [name]')]\n"
        "    answer('who?', masked=False)\n"
        "    assert ragtrace_db.verdicts() == {('house-mask', 'response'): 'bypassed'}\n"
        "    assert not ragtrace_db.check().passed\n\n"
        "@pytest.mark.ragtrace(capture='digest', policy={'losses': {}})\n"
        "def test_digest(ragtrace_db):\n"
        "    answer('who?')\n"
        "    with ragtrace_db.open() as db:\n"
        "        assert db.execute('SELECT count(*), max(response) FROM generations').fetchone() == (1, None)\n",
    )
    assert counts == {"passed": 2}, printed


def test_an_audit_in_a_test(project: Path) -> None:
    """The app repeats what it finds: canaries leak without a mask, and not with one."""
    (project / "AUDIT.toml").write_text(
        'app = "app:make"\n[corpus]\nname = "synthetic_email"\nmembers = 4\ncanaries = ["email"]\n'
        "[attacks]\ncanary = { count = 2 }\n[arms]\nnone = []\nmasked = ['regex_mask']\n"
    )
    counts, printed = run(
        project,
        "def test_file(ragtrace_audit):\n"
        "    bound = {'metric': 'canary_recovery_email', 'upper_bound': 0.61}\n"  # 0 of 4, Clopper-Pearson: 0.602
        "    policy = {'no_canary': {}, 'probes': {'least': 2}, 'losses': {}, 'metric_bound': bound}\n"
        "    gate = ragtrace_audit('AUDIT.toml').check(policy)\n"
        "    assert gate.passed, gate.to_json()\n\n"
        "def test_keys(ragtrace_audit):\n"
        "    corpus = {'name': 'synthetic_email', 'members': 4, 'canaries': ['email']}\n"
        "    attacks = {'canary': {'count': 2}}\n"
        "    audited = ragtrace_audit(app=make, corpus=corpus, attacks=attacks, arms={'none': []})\n"
        "    [finding] = audited.check({'no_canary': {'arms': ['none']}}).outcomes[0].findings\n"
        "    assert (finding.subject, finding.kind) == ('none · email', 'breach')\n",
    )
    assert counts == {"passed": 2}, printed


def test_who_does_not_use_it_loads_none_of_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins load OpenTelemetry
    (project / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    (project / "conftest.py").write_text(
        "import sys\n\ndef pytest_unconfigure(config):\n"
        "    heavy = ('duckdb', 'pyarrow', 'opentelemetry', 'ragtrace.record', 'ragtrace.gate', 'rich', 'typer')\n"
        "    judged = config.pluginmanager.has_plugin('ragtrace-gate')\n"
        "    print('LOADED', [m for m in heavy if m in sys.modules], judged)\n"
    )
    (project / "app.py").write_text("answer = make = None\n")
    _, printed = run(project, "def test_plain():\n    pass\n", "-p", "ragtrace.pytest_plugin")
    assert "1 passed" in printed and "LOADED [] False" in printed
    _, printed = run(project, "", "-p", "ragtrace.pytest_plugin", "--markers")
    assert "@pytest.mark.ragtrace(policy=None, baseline=None, capture='full')" in printed
