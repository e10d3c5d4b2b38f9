"""Beside OpenInference and OpenLLMetry, and started by OpenTelemetry's own zero-code launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pipelines import BATCHES, PATHS, Hooked, Traces, call, lcel
from ragtrace_langchain import LangChainInstrumentor

import ragtrace


def parent_of(traces: Traces, span: Any) -> Any:
    """The span above ``span``, of the same trace."""
    [above] = [s for s in traces.spans if s.context.span_id == span.parent.span_id]
    assert above.context.trace_id == span.context.trace_id
    return above


# beside other instrumentations


def together(theirs: Any, theirs_first: bool) -> tuple[Traces, Any]:
    """Both on, in memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ours = LangChainInstrumentor()
    for each in (theirs, ours) if theirs_first else (ours, theirs):
        each.instrument(tracer_provider=provider, **({"capture": "full"} if each is ours else {}))
    return Traces(exporter), ours


def whole(traces: Traces, path: str) -> None:
    """Each request is whole and once, in a trace that theirs is in too."""
    requests = [s for s in traces.spans if s.name.startswith("pipeline ")]
    mine = {r.context.trace_id for r in requests}
    assert len(mine) == len(requests) == (2 if path in BATCHES else 1)
    for stage in ("retrieval", "context", "generation"):
        assert [s.context.trace_id for s in traces.stages(stage)].count(requests[0].context.trace_id) == 1
        assert {s.context.trace_id for s in traces.stages(stage)} == mine
        assert all(parent_of(traces, s) for s in traces.stages(stage))
    foreign = [s for s in traces.spans if s.instrumentation_scope.name != "ragtrace"]
    assert foreign and not any(k.startswith("ragtrace.") for s in foreign for k in s.attributes)
    if path not in BATCHES:  # there theirs begin before any one request is current
        assert {s.context.trace_id for s in foreign} == mine


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("theirs_first", [True, False])
@pytest.mark.parametrize("theirs_off_first", [True, False])
def test_beside_openinference(path: str, theirs_first: bool, theirs_off_first: bool, caplog: Any) -> None:
    from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference

    expected = call(path, lcel(), ["q", "r"])
    theirs = OpenInference()
    traces, ours = together(theirs, theirs_first)
    try:
        assert call(path, lcel(), ["q", "r"]) == expected
        whole(traces, path)
        with ragtrace.defend(Hooked("response", str.upper)):
            assert "".join(call(path, lcel(), ["q", "r"])).isupper()
        first, second = (theirs, ours) if theirs_off_first else (ours, theirs)
        first.uninstrument()
        traces.clear()
        assert call(path, lcel(), ["q", "r"]) == expected
        assert {s.instrumentation_scope.name == "ragtrace" for s in traces.spans} == {theirs_off_first}
        second.uninstrument()
        traces.clear()
        assert call(path, lcel(), ["q", "r"]) == expected
        assert traces.spans == []
    finally:
        for each in (theirs, ours):
            if each.is_instrumented_by_opentelemetry:
                each.uninstrument()
    assert "detach" not in caplog.text and "ragtrace" not in caplog.text


@pytest.mark.parametrize("theirs_first", ["True", "False"])
def test_beside_openllmetry(theirs_first: str) -> None:
    """In a process of its own: it leaves spans current after a batch, and its uninstrument takes nothing off."""
    code = f"import test_beside_others as t; t.beside_openllmetry({theirs_first})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "detach" not in done.stderr and "ragtrace" not in done.stderr


def beside_openllmetry(theirs_first: bool) -> None:
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor

    expected = {path: call(path, lcel(), ["q", "r"]) for path in PATHS}
    theirs = LangchainInstrumentor()
    traces, ours = together(theirs, theirs_first)
    for path in PATHS:
        traces.clear()
        assert call(path, lcel(), ["q", "r"]) == expected[path]
        assert not trace.get_current_span().get_span_context().is_valid, path
        whole(traces, path)
        with ragtrace.defend(Hooked("response", str.upper)):
            assert "".join(call(path, lcel(), ["q", "r"])).isupper()
    for each in (theirs, ours):
        each.uninstrument()
    traces.clear()
    assert {path: call(path, lcel(), ["q", "r"]) for path in PATHS} == expected
    assert {s.instrumentation_scope.name == "ragtrace" for s in traces.spans} == {False}


# the zero-code start

APP = """
import sys
from langchain_core.language_models import FakeListChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.documents import Document
import ragtrace

class Shelf(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content="secret text", id="d1")]

class Mask(ragtrace.Defense):
    name = "mask"
    def on_response(self, query, documents, response):
        return "MASKED"

chain = Shelf() | (lambda ds: ds[0].page_content) | FakeListChatModel(responses=["fine"])
sys.stderr.write(chain.invoke("q").text + "\\n")
with ragtrace.defend(Mask()):
    sys.stderr.write(chain.invoke("q").text + "\\n")
"""
CONFIGURATOR = (
    "from opentelemetry.sdk._configuration import _OTelSDKConfigurator\nclass C(_OTelSDKConfigurator): pass\n"
)


def _zero_code(folder: Path, **environment: str) -> tuple[list[str], list[dict[str, Any]]]:
    """What the app says, and the spans on its console. The configurator is the one that a distribution brings."""
    (folder / "app.py").write_text(APP)
    (folder / "configurator_for_tests.py").write_text(CONFIGURATOR)
    info = folder / "configurator_for_tests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: configurator-for-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opentelemetry_configurator]\nc = configurator_for_tests:C\n")
    others = "langchain,llama_index,llama-index,ragtrace_llama_index"
    env = os.environ | {
        "PYTHONPATH": str(folder), "OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": others,
    }  # fmt: skip
    start = Path(sys.executable).with_name("opentelemetry-instrument")
    done = subprocess.run(
        [str(start), sys.executable, str(folder / "app.py")],
        env=env | environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    decoder, place, spans, out = json.JSONDecoder(), 0, [], done.stdout.strip()
    while place < len(out):
        span, place = decoder.raw_decode(out, place)
        spans.append(span)
        place += len(out[place:]) - len(out[place:].lstrip())
    return done.stderr.splitlines(), spans


def test_the_zero_code_start(tmp_path: Path) -> None:
    said, spans = _zero_code(tmp_path)
    assert said[-2:] == ["fine", "MASKED"] and "Traceback" not in "\n".join(said)
    assert sorted(s["name"] for s in spans if s["attributes"].get("ragtrace.stage")) == sorted(
        2 * ["chat FakeListChatModel", "context", "retrieval Shelf"]
    )
    assert {s["attributes"]["ragtrace.capture"] for s in spans} == {"digest"}
    assert "secret text" not in json.dumps(spans)
    [effects] = [s["attributes"]["ragtrace.effects"] for s in spans if "ragtrace.effects" in s["attributes"]]
    assert [(e["defense"], e["status"]) for e in json.loads(effects)] == [("mask", "changed")]


def test_the_zero_code_start_can_leave_us_out(tmp_path: Path) -> None:
    said, spans = _zero_code(
        tmp_path, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="ragtrace_langchain,ragtrace_llama_index,langchain"
    )
    assert said[-2:] == ["fine", "fine"] and spans == []


def test_a_disabled_sdk_records_nothing_and_defends_all_the_same(tmp_path: Path) -> None:
    said, spans = _zero_code(tmp_path, OTEL_SDK_DISABLED="true")
    assert said[-2:] == ["fine", "MASKED"] and spans == []
