"""setup(): one line at start-up, never in the app's way, and what ended is on disk."""

from __future__ import annotations

import importlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ragtrace_langchain import LangChainInstrumentor

import ragtrace
from ragtrace.errors import UsageError
from ragtrace.record import setup as module


@pytest.fixture(autouse=True)
def undone(monkeypatch: Any) -> Iterator[None]:
    """A provider of each test's own, and nothing left on."""
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield
    for tracing in list(module._installed.values()):
        tracing.shutdown()
    provider.shutdown()


def _run(code: str, folder: Path, **environment: str) -> str:
    """A process of its own, as an app would be."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def _names(database: Path) -> set[str]:
    with ragtrace.open(database) as db:
        return {name for (name,) in db.execute("SELECT name FROM spans").fetchall()}


def test_what_ended_is_on_disk_after_flush_and_twice_is_once(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    tracing = ragtrace.setup(database, capture="full")
    assert ragtrace.setup(database, capture="full") is tracing
    with trace.get_tracer_provider().get_tracer("app").start_as_current_span("own work"):
        pass
    tracing.flush()
    assert not database.exists()  # the app's process never opens it
    with ragtrace.open(database) as db:
        assert db.execute("SELECT name, dialect FROM spans").fetchall() == [("own work", "otel")]


def test_shutdown_takes_the_wraps_off_and_stops(tmp_path: Path) -> None:
    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    assert LangChainInstrumentor().is_instrumented_by_opentelemetry
    tracing.shutdown()
    assert not LangChainInstrumentor().is_instrumented_by_opentelemetry
    with tracing.provider.get_tracer("app").start_as_current_span("too late"):
        pass
    assert not (tmp_path / "t.duckdb.spool").exists()
    again = ragtrace.setup(tmp_path / "t.duckdb")
    assert again is not tracing


def test_a_framework_that_is_absent_or_broken_is_no_harm(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(module, "_FRAMEWORKS", {"ragtrace_langchain": "no_such_framework"})
    assert ragtrace.setup(tmp_path / "a.duckdb").instrumentors == [] and not caplog.records

    def fails(*_: Any, **__: Any) -> None:
        raise ImportError("half installed")

    monkeypatch.setattr(module, "_FRAMEWORKS", {"ragtrace_langchain": "langchain_core"})
    monkeypatch.setattr(LangChainInstrumentor, "instrument", fails)
    assert ragtrace.setup(tmp_path / "b.duckdb").instrumentors == [] and "half installed" in caplog.text


def test_an_instrumentor_that_the_app_has_switched_on_is_left_to_it(tmp_path: Path, caplog: Any) -> None:
    LangChainInstrumentor().instrument(tracer_provider=trace.get_tracer_provider())
    try:
        ragtrace.setup(tmp_path / "t.duckdb").shutdown()
        assert "on already" in caplog.text and LangChainInstrumentor().is_instrumented_by_opentelemetry
    finally:
        LangChainInstrumentor().uninstrument()


def test_bad_arguments_change_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of full, masked, digest, none"):
        ragtrace.setup(tmp_path / "t.duckdb", capture="everything")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"expected ragtrace\.Defense instances"):
        ragtrace.setup(tmp_path / "t.duckdb", defenses=[str.upper])  # type: ignore[list-item]
    assert not module._installed and list(tmp_path.iterdir()) == []


def test_one_process_takes_texts_in_one_mode(tmp_path: Path) -> None:
    ragtrace.setup(tmp_path / "a.duckdb", capture="full")
    with pytest.raises(UsageError, match=r"already records with capture='full'.*shutdown\(\)"):
        ragtrace.setup(tmp_path / "b.duckdb", capture="digest")


def test_the_digest_key_is_for_its_owner_and_kept(tmp_path: Path, monkeypatch: Any) -> None:
    database = tmp_path / "new" / "t.duckdb"
    key = module._digest_key(database)
    file = database.with_name("t.duckdb.key")
    assert len(key) == 32 and key == file.read_bytes() == module._digest_key(database)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [p.name for p in file.parent.iterdir()] == [file.name]
    monkeypatch.setenv("RAGTRACE_DIGEST_KEY", "ours")
    assert module._digest_key(database) == b"ours"


def test_workers_that_start_together_share_one_whole_key(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from ragtrace.record.setup import _digest_key; print(_digest_key(Path('t')).hex())"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    keys = {worker.communicate(timeout=60)[0].strip() for worker in workers}
    assert len(keys) == 1 and len(keys.pop()) == 64


def test_a_key_that_cannot_be_kept_is_a_warning(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").write_text("")
    assert len(module._digest_key(tmp_path / "file" / "t.duckdb")) == 32
    assert "digests differ between processes" in caplog.text


_APP = """
import ragtrace
from opentelemetry import trace
{before}
ragtrace.setup("t.duckdb", capture="full")
with trace.get_tracer("app").start_as_current_span("own work"):
    print(type(trace.get_current_span()).__name__)
"""
_JOINED = """
from opentelemetry.sdk.trace import TracerProvider
theirs = TracerProvider(shutdown_on_exit=False)
trace.set_tracer_provider(theirs)
"""


@pytest.mark.parametrize("before", ["", _JOINED], ids=["installed", "joined"])
def test_a_normal_exit_flushes(tmp_path: Path, before: str) -> None:
    _run(_APP.format(before=before), tmp_path)
    assert _names(tmp_path / "t.duckdb") == {"own work"}


def test_a_disabled_sdk_records_nothing(tmp_path: Path) -> None:
    assert _run(_APP.format(before=""), tmp_path, OTEL_SDK_DISABLED=" True").strip() == "NonRecordingSpan"
    assert list(tmp_path.iterdir()) == []


def test_a_disabled_sdk_with_digests_and_a_provider_of_the_apps_own(tmp_path: Path, monkeypatch: Any) -> None:
    theirs = trace.get_tracer_provider()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")  # after the app has made its provider
    exporter = InMemorySpanExporter()
    theirs.add_span_processor(SimpleSpanProcessor(exporter))  # type: ignore[attr-defined]
    threads = threading.active_count()
    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    with ragtrace.retrieval("q") as stage:
        stage.documents(["text"])
    FakeListChatModel(responses=["a"]).invoke("q")
    tracing.flush()
    tracing.shutdown()
    assert exporter.get_finished_spans() == () and list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_a_disabled_sdk_does_not_disable_defenses(tmp_path: Path) -> None:
    code = """
import ragtrace
from langchain_core.language_models import FakeListChatModel
class Mask(ragtrace.Defense):
    def on_response(self, query, documents, response): return "masked"
ragtrace.setup("t.duckdb", defenses=[Mask()])
print(FakeListChatModel(responses=["secret"]).invoke("q").content)
with ragtrace.generation("q") as stage: print(stage.response("secret"))
"""
    assert _run(code, tmp_path, OTEL_SDK_DISABLED="true").split() == ["masked", "masked"]
    assert list(tmp_path.iterdir()) == []
    assert _run(code, tmp_path).split() == ["masked", "masked"]
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        found = db.execute("SELECT framework, defense, hook, status FROM effects ORDER BY framework").fetchall()
        assert found == [(framework, "Mask", "response", "changed") for framework in ("langchain", "none")]


LATE = """
import sys, ragtrace
tracing = ragtrace.setup({database!r}, capture="full")
assert not [m for m in sys.modules if m.split(".")[0] in ("langchain_core", "llama_index")]
from llama_index.core.llms import MockLLM
assert "langchain_core" not in sys.modules
from langchain_core.runnables import RunnableLambda
MockLLM().complete("a")
RunnableLambda(str.upper).invoke("b")
names = [type(i).__name__ for i in tracing.instrumentors]
tracing.shutdown()
MockLLM().complete("a")
print(names)
"""


def test_a_framework_is_instrumented_when_it_is_imported(tmp_path: Path) -> None:
    """Setup imports none: an app need not pay for a framework that it has and does not use."""
    database = tmp_path / "t.duckdb"
    script = LATE.format(database=str(database))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.stdout == "['LlamaIndexInstrumentor', 'LangChainInstrumentor']\n", run.stderr
    with ragtrace.open(database) as db:
        found = db.execute(
            "SELECT framework, path FROM roots JOIN own_spans USING (trace_id, path) WHERE stage IS NULL"
        )
        assert sorted(found.fetchall()) == [("langchain", "invoke"), ("llama_index", "invoke")]


def test_a_framework_imported_after_the_end_is_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_FRAMEWORKS", {"ragtrace_langchain": "some_framework"})
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "some_framework.py").write_text("")
    tracing = ragtrace.setup(tmp_path / "t.duckdb")
    tracing.shutdown()
    importlib.import_module("some_framework")
    assert tracing.instrumentors == [] and not LangChainInstrumentor().is_instrumented_by_opentelemetry


def test_what_ended_some_seconds_ago_is_on_disk_though_the_process_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, time
from ragtrace.record import queueing
queueing.FLUSH_EVERY_MS = 300
{_APP.format(before="")}
deadline = time.time() + 10
while not list(pathlib.Path(".").glob("*.spool/*.parquet")) and time.time() < deadline:
    time.sleep(0.1)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60, capture_output=True)
    assert done.returncode == -9 and _names(tmp_path / "t.duckdb") == {"own work"}


def test_a_forked_worker_writes_its_own_segments(tmp_path: Path) -> None:
    code = """
import os, ragtrace
from opentelemetry import trace
tracing = ragtrace.setup("t.duckdb", capture="full")
child = os.fork()
with trace.get_tracer("app").start_as_current_span("child" if child == 0 else "parent"): pass
if child == 0:
    tracing.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
    _run(code, tmp_path)
    assert len({p.name.split("-")[1] for p in (tmp_path / "t.duckdb.spool").glob("*.parquet")}) == 2
    assert _names(tmp_path / "t.duckdb") == {"child", "parent"}
