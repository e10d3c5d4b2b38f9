"""``ragtrace check``, ``inventory --fail-on``, ``score --json`` and every command's help, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from store_fixtures import Bench, effect
from typer.main import get_command
from typer.testing import CliRunner

import ragtrace
from ragtrace import cli

ROOT = Path(__file__).resolve().parent.parent
_MAIN = [sys.executable, "-W", "error", "-c", "from ragtrace.cli import main; main()"]
STUB = "import ragtrace\n\n\nclass Mask(ragtrace.Defense):\n    name = 'mask'\n\n"
STUB += "    def on_response(self, query, documents, response):\n        return response  # TODO\n"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: Any) -> Bench:
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path / "t.duckdb")
    ran = [effect("mask", "response", "unchanged")]
    with bench.request(declared={"mask": ["response"]}), bench.stage("generation", effects=ran):
        pass
    bench.write()
    (tmp_path / "defenses.py").write_text(STUB)
    (tmp_path / "policy.toml").write_text("[defenses_act]\n")
    return bench


def _ragtrace(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_MAIN, *map(str, arguments)], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_the_way_of_a_pull_request(bench: Bench, tmp_path: Path) -> None:
    """Inventory, check, reports: in processes of their own."""
    assert _ragtrace("inventory", "defenses.py", "--db", "t.duckdb").returncode == 0
    files = ("--sarif", "o.sarif", "--junit", "o.xml", "--markdown", "o.md")
    done = _ragtrace("check", "--db", "t.duckdb", "--policy", "policy.toml", *files, NO_COLOR="1")
    assert (done.returncode, done.stderr) == (1, "") and "\x1b" not in done.stdout
    assert "breach  defenses_act: Every defense acts" in done.stdout and "1 of 1 rules breached" in done.stdout
    [found] = json.loads((tmp_path / "o.sarif").read_text())["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "defenses.py", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": 7},
    }  # fmt: skip
    assert ElementTree.parse(tmp_path / "o.xml").getroot().get("failures") == "1"
    assert (tmp_path / "o.md").read_text().startswith("## ragtrace check: 1 of 1 rules breached\n")
    (tmp_path / "policy.toml").write_text("[[defenses_act.exceptions]]\ndefense = 'mask'\nreason = 'known'\n")
    fine = _ragtrace("check", "--db", "t.duckdb", "--policy", "policy.toml", *files)
    assert (fine.returncode, fine.stderr) == (0, "")
    assert json.loads((tmp_path / "o.sarif").read_text())["runs"][0]["results"][0]["suppressions"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--db", "no.duckdb"], "no database at no.duckdb"),
        (["--policy", "no.toml"], "cannot read the policy no.toml"),
        (["--policy", "wrong.toml"], "there is no rule 'loses'; did you mean 'losses'?"),
        (["--policy", "policy.toml", "--baseline", "t.duckdb"], "add [not_worse]"),
        (["--baseline", "t.duckdb"], "is the database under check"),
        (["--baseline", "defenses.py"], "not a readable DuckDB database"),
        (["--init", "--policy", "policy.toml"], "is there already"),
    ],
)
def test_wrong_input_is_exit_code_2_and_writes_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: Any, capsys: Any, arguments: list[str], said: str
) -> None:
    (tmp_path / "wrong.toml").write_text("[loses]\n")
    given = arguments if "--db" in arguments else [*arguments, "--db", "t.duckdb"]
    monkeypatch.setattr(sys, "argv", ["ragtrace", "check", *given, "--sarif", "o.sarif"])
    monkeypatch.setattr("warnings.formatwarning", None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "") and said in err and not (tmp_path / "o.sarif").exists()


def test_json_and_init(bench: Bench, tmp_path: Path) -> None:
    run = CliRunner().invoke(cli.app, ["check", "--db", "t.duckdb", "--json"])
    told = json.loads(run.stdout)
    assert run.exit_code == 1 and told["passed"] is False and told["policy"] is None
    assert {r["rule"]: r["status"] for r in told["rules"]} == {
        "defenses_act": "breach", "no_undeclared": "pass", "no_canary": "breach", "losses": "breach",
        "probes": "breach",
    }  # fmt: skip
    made = CliRunner().invoke(cli.app, ["check", "--init", "--policy", "new.toml"])
    text = (tmp_path / "new.toml").read_text()
    assert made.exit_code == 0 and text.startswith("# The policy of `ragtrace check`")
    assert CliRunner().invoke(cli.app, ["check", "--db", "t.duckdb", "--policy", "new.toml"]).exit_code == 1


def test_names_from_traces_carry_no_escapes(bench: Bench) -> None:
    with bench.request(declared={"\x1b[31mevil\u202e": ["response"]}), bench.stage("generation"):
        pass
    bench.write()
    run = CliRunner().invoke(cli.app, ["check", "--db", "t.duckdb", "--policy", "policy.toml"])
    assert run.exit_code == 1 and "[31mevil" in run.stdout and not {"\x1b", "\u202e"} & set(run.stdout)


# --- inventory --fail-on, and the pre-commit hook


@pytest.mark.parametrize(
    ("statuses", "code"), [("stub,dead", 1), ("stub", 1), ("dead", 0), (" dead , active ", 0), (None, 0)]
)
def test_inventory_fails_on_the_statuses_asked_for(bench: Bench, statuses: str | None, code: int) -> None:
    option = [] if statuses is None else ["--fail-on", statuses]
    run = CliRunner().invoke(cli.app, ["inventory", "defenses.py", *option])
    assert run.exit_code == code, run.output
    line = "ragtrace: defenses.py:7: defenses.Mask, hook response: stub: returns its input unchanged"
    assert (line in run.stderr) == (code == 1)
    as_json = CliRunner().invoke(cli.app, ["inventory", "defenses.py", "--json", *option])
    assert as_json.exit_code == code and json.loads(as_json.stdout)[0]["name"] == "mask"


def test_a_status_that_no_hook_has(bench: Bench) -> None:
    run = CliRunner().invoke(cli.app, ["inventory", "defenses.py", "--fail-on", "stubs"])
    assert "no hook has the status 'stubs'; did you mean 'stub'?" in str(run.exception)
    empty = CliRunner().invoke(cli.app, ["inventory", "defenses.py", "--fail-on", ","])
    assert "--fail-on is empty; expected some of active, conditional, stub" in str(empty.exception)


def test_the_pre_commit_hook_runs_as_it_is_written(bench: Bench, tmp_path: Path) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["id"] == "ragtrace-inventory" and hook["language"] == "python"
    (tmp_path / "plain.py").write_text("x = 1\n")
    program, *arguments = hook["entry"].split()
    assert program == "ragtrace"
    assert _ragtrace(*arguments, "plain.py", "defenses.py").returncode == 1
    assert _ragtrace(*arguments, "plain.py").returncode == 0


def test_the_workflow_calls_what_there_is() -> None:
    """Every option in it is known to its command."""
    text = (ROOT / "examples" / "github-workflow.yml").read_text("utf-8")
    steps = yaml.safe_load(text)["jobs"]["privacy"]["steps"]
    run = "\n".join(s["run"] for s in steps if "run" in s).replace("\\\n", " ")
    commands: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]
    called = re.findall(r"ragtrace (inventory|audit|check)\b([^\n]*)", run)
    assert [name for name, _ in called] == ["inventory", "audit", "check"]
    for name, rest in called:
        known = {option for p in commands[name].params for option in p.opts}
        assert set(re.findall(r"--[\w-]+", rest)) <= known
    wanted = {word for _, rest in called for word in re.findall(r"ragtrace\.(?:sarif|xml|md)", rest)}
    assert wanted == {"ragtrace.sarif", "ragtrace.xml", "ragtrace.md"}


# --- comfort


def test_score_as_json(bench: Bench) -> None:
    with bench.open() as db:
        db.execute(
            "INSERT INTO result_data (run_id, metric, value, ci_low) VALUES ('r', 'm', 0.5, 'nan'), ('s', 'm', 1, 1)"
        )
    run = CliRunner().invoke(cli.app, ["score", "--db", "t.duckdb", "--json"])
    told = json.loads(run.stdout, parse_constant=pytest.fail)
    assert run.exit_code == 0 and [(v["defense"], v["verdict"]) for v in told["verdicts"]] == [("mask", "dormant")]
    assert [(r["run_id"], r["value"], r["ci_low"]) for r in told["results"]] == [("r", 0.5, None), ("s", 1.0, 1.0)]


def _commands(group: Any, prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found += _commands(command, (*prefix, name)) if inner else [((*prefix, name), command)]
    return found


def test_every_command_has_an_example_whose_options_it_knows() -> None:
    there = _commands(get_command(cli.app))
    assert {"check", "doctor", "sql", "inventory"} <= {path[-1] for path, _ in there}
    for path, command in there:
        shown = CliRunner().invoke(cli.app, [*path, "--help"])
        assert shown.exit_code == 0 and "For example:" in shown.output, path
        examples = [line.strip() for line in (command.epilog or "").partition("For example:")[2].strip().splitlines()]
        assert examples
        for line in examples:
            assert line.startswith(f"ragtrace {' '.join(path)} ") and line in shown.output
            known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
            assert set(re.findall(r"(?<=\s)--?[\w-]+", line)) <= known, line


def test_completion_can_be_had() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    assert "--install-completion" in shown
    asked = os.environ | {"_RAGTRACE_COMPLETE": "complete_bash", "COMP_WORDS": "ragtrace che", "COMP_CWORD": "1"}
    done = subprocess.run(
        [Path(sys.executable).parent / "ragtrace"], capture_output=True, text=True, env=asked, check=True
    )
    assert done.stdout.split() == ["check"]


def test_no_color_is_respected() -> None:
    script = "from ragtrace.cli_help import console; import sys; sys.stdout.isatty = lambda: True; "
    script += "c = console(); print(c.no_color)"
    for value, expected in (({"NO_COLOR": "1"}, "True"), ({}, "False")):
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | value
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
        assert done.stdout.strip() == expected


def test_version_of_the_gate_is_that_of_the_package() -> None:
    from ragtrace.gate import Gate, sarif

    log = json.loads(sarif.render(Gate("x", None, [])))
    assert log["runs"][0]["tool"]["driver"]["version"] == ragtrace.__version__
