"""``ragtrace doctor``: each problem is told with its fix, and what is fine is no problem."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from store_fixtures import Bench, effect
from typer.testing import CliRunner

import ragtrace
from ragtrace import doctor
from ragtrace.cli import app
from ragtrace.doctor import Check, examine
from ragtrace.record.stages import pipeline, retrieval


def told(checks: list[Check], area: str) -> list[tuple[str, str, str | None]]:
    return [(c.status, c.found, c.fix) for c in checks if c.area == area]


def problems(checks: list[Check]) -> list[Check]:
    return [c for c in checks if c.status == "problem"]


def test_here_everything_is_in_place() -> None:
    checks = examine()
    assert problems(checks) == []
    assert any("langchain-core" in c.found and "ragtrace_langchain" in c.found for c in checks)
    assert ("ok", "extra demo", None) in told(checks, "installed")


def test_packages_that_are_missing_or_too_old(monkeypatch: Any) -> None:
    versions = {"presidio-analyzer": None, "faiss-cpu": "1.0", "duckdb": "0.1"}
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: versions[name] if name in versions else real(name))
    found = told(examine(), "installed")
    assert ("note", "extra presidio is not complete: presidio-analyzer is not installed",
            'if you need it: pip install "ragtrace-audit[presidio]"') in found  # fmt: skip
    assert any(status == "note" and "faiss-cpu 1.0 is installed, >=1.9 expected" in said for status, said, _ in found)
    assert [said for status, said, _ in found if status == "problem"] == ["duckdb 0.1 is installed, >=1.4 expected"]


def test_a_framework_without_its_entry_point_or_of_a_version_not_supported(monkeypatch: Any) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.2" if name == "langchain-core" else real(name))
    found = told(examine(), "instrumented")
    assert ("problem", "langchain-core 0.2 is installed, >=1.0 expected", 'pip install "langchain-core>=1.0"') in found
    monkeypatch.setattr(doctor, "entry_points", lambda group: ())
    found = told(examine(), "instrumented")
    assert [status for status, _, _ in found] == ["problem", "problem"]
    assert "the entry point ragtrace_langchain is not registered" in found[0][1]
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert [status for status, _, _ in told(examine(), "instrumented")] == ["note"]


@pytest.mark.parametrize(("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")])
def test_tracing_that_is_switched_off(monkeypatch: Any, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    [problem] = problems(examine())
    assert (
        problem.area == "environment" and problem.fix == f"unset {variable}" and f"{variable}={value}" in problem.found
    )


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    checks = examine(tmp_path / "no.duckdb")
    [problem] = problems(checks)
    assert problem.area == "database" and "no database at" in problem.found and "ragtrace.setup" in (problem.fix or "")
    assert list(tmp_path.iterdir()) == []
    missing = problems(examine(tmp_path / "no" / "no.duckdb"))
    assert {p.area for p in missing} == {"writable", "database"} and "mkdir" in (missing[0].fix or "")


def test_what_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "x.duckdb"
    file.write_text("no database")
    [problem] = problems(examine(file))
    assert "not a readable DuckDB database" in problem.found and "move it away" in (problem.fix or "")
    assert file.read_text() == "no database"


def test_nothing_arrives(bench: Bench) -> None:
    bench.open().close()
    [problem] = problems(examine(bench.database))
    assert problem.area == "arriving" and "no span has come" in problem.found
    with bench.span("something else"):
        pass
    bench.write()
    [problem] = problems(examine(bench.database))
    assert problem.area == "arriving" and "no retrieval or generation among them" in problem.found


def test_defenses_and_what_to_do_about_them(bench: Bench) -> None:
    ran = [effect("noise", "retrieval", scores_changed=True)]
    declared = {"mask": ["response"], "noise": ["retrieval"], "guard": ["prompt"]}
    with bench.request(declared=declared), bench.stage("retrieval", effects=ran):
        pass
    with bench.request("stream", declared={"mask": ["response"]}), bench.stage("generation", "stream"):
        pass
    bench.write()
    with bench.open() as db:
        db.execute("INSERT INTO inventory_data VALUES ('mask', 'duck', 'response', 'active', 'app.py', 4, 'r')")
    assert told(examine(bench.database), "defenses") == [
        ("note", "guard at prompt: not_run, 0 runs", "its hook was not crossed, or it stands in no pipeline that ran"),
        ("problem", "mask at response: bypassed, 0 runs", "put it on the path stream too (app.py:4)"),
        ("ok", "noise at retrieval: active, 1 runs", None),
    ]


def test_no_defense_at_all_is_worth_a_note(bench: Bench) -> None:
    with bench.request(), bench.stage("retrieval"):
        pass
    bench.write()
    [(status, found, fix)] = told(examine(bench.database), "defenses")
    assert (status, found) == ("note", "no defense is declared or seen") and "ragtrace.observe()" in str(fix)


def test_a_real_app_with_losses(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    tracing = ragtrace.setup(database)
    try:
        with pipeline("app"), retrieval("q") as stage:
            stage.documents(["d"])
        tracing.flush()
        checks = examine(database)
        assert problems(checks) == []
        assert told(checks, "processes") == [("ok", "1 have recorded here, 1 of them running; no span was lost", None)]
        assert any(
            f.startswith("2 spans, the last ended ") and f.endswith(" seconds ago")
            for _, f, _ in told(checks, "arriving")
        )
        assert any(f == f"digest key: {database}.key" for _, f, _ in told(checks, "writable"))
        Path(f"{database}.key").chmod(0o644)
        [problem] = problems(examine(database))
        assert problem.fix == f"chmod 600 {database}.key"
    finally:
        tracing.shutdown()
    Path(f"{database}.key").chmod(0o600)
    with ragtrace.open(database) as db:
        db.execute("INSERT INTO loss_data VALUES ('p', 7, 'shop', 0, now()::TIMESTAMP, false, 10, 6, 3, 1, 0)")
    [problem] = problems(examine(database))
    assert problem.found == "process 7 (shop, ended): 10 spans, 3 dropped by a full queue, 1 refused by the disk"


def test_a_database_that_another_process_holds(bench: Bench) -> None:
    bench.open().close()
    script = (
        f"import duckdb, sys; c = duckdb.connect({str(bench.database)!r}); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        [problem] = problems(examine(bench.database))
        holder.communicate("")
    assert "is open in another process" in problem.found and "close it there" in (problem.fix or "")


def test_the_command(bench: Bench) -> None:
    run = CliRunner().invoke(app, ["doctor", "--json"])
    assert run.exit_code == 0 and {"area", "status", "found", "fix"} == set(json.loads(run.stdout)[0])
    bench.open().close()
    broken = CliRunner().invoke(app, ["doctor", "--db", str(bench.database)])
    assert broken.exit_code == 1 and "no span has come" in broken.output and "ragtrace.setup(" in broken.output
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from ragtrace.cli import main; main()", "doctor", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)
