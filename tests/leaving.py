"""An app whose every text holds one string, along every path and into every failure: what of it leaves the process?

    python tests/leaving.py CAPTURE FOLDER ENDPOINT STRING

Records into FOLDER/traces.duckdb, exports to the OTLP/HTTP ENDPOINT, and logs everything to FOLDER/log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from both import FRAMEWORKS, PATHS, LIFiles, ask  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from llama_pipelines import agent, context_chat, fusion  # noqa: E402
from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: E402
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: E402
from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: E402
from pipelines import Hooked, call, lcel  # noqa: E402

import ragtrace  # noqa: E402
from ragtrace.types import HOOKS  # noqa: E402

TOOK: list[str] = []  # what has been tried


def tried(name: str, work: Callable[[], Any]) -> None:
    """The app's own errors are its own."""
    with suppress(Exception):
        work()
    TOOK.append(name)


def boom(text: str) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise ValueError(f"cannot take {text}")

    return fail


def pipelines_of(framework: str, path: str, s: str) -> None:
    documents = {"d1": f"Please write to {s}@corp.com about it.", "d2": f"Nothing else but {s} {s}."}
    metadata = {s: s, "list": [s, {s: s}], "object": ValueError(s)}
    config = {"tags": [s], "metadata": {s: s, "thread": s}} if framework == "langchain" else None
    questions = (f"What of {s}?", f"Who is {s}?")

    def asked(name: str, answer: str | None = f"Mr. {s} says {s}.", **more: Any) -> None:
        told = {"metadata": metadata, "config": config, "questions": questions} | more
        tried(f"{framework} {path} {name}", lambda: ask(framework, path, documents, answer, **told))

    @ragtrace.observe(hook="response", name="house-mask")
    def masked(text: str) -> str:
        return f"{s} {text}".upper()

    failing_mask = ragtrace.observe(hook="response", name="failing-mask")(boom(s))
    asked("fine")
    asked("echo", None)
    asked("masked", after=masked)
    asked("mask fails", after=failing_mask)
    asked("retriever fails", retriever_error=ValueError(s))
    asked("retriever fails with a key", retriever_error=KeyError(s))
    for fail_at in (0, 2):
        asked(f"model fails at {fail_at}", fail_at=fail_at)
    for hook in HOOKS:
        for on_error in ("open", "raise", "block"):
            with ragtrace.defend(Hooked(hook, boom(s), on_error, is_async=path.startswith("a"))):
                asked(f"{hook} fails {on_error}")
        with ragtrace.defend(Hooked(hook, lambda value: object())):
            asked(f"{hook} returns what it must not")
    with ragtrace.defend(Hooked("content", lambda ds: [*ds[:1], ragtrace.Document(f"new {s}", "n", None, {s: s})])):
        asked("content changes")
    with ragtrace.defend(Hooked("query", lambda q: q + s), Hooked("response", lambda r: r + s)):
        asked("query and response change")


def others(s: str) -> None:
    @tool
    def look(query: str) -> str:
        """Looks."""
        raise ValueError(query)

    for path in PATHS:
        tried(f"tool {path}", lambda path=path: call(path, RunnableLambda(lambda q: look.invoke({"query": q})), [s, s]))
    tried("no model", lambda: lcel(retriever=None).invoke(s))
    for error in (None, ValueError(s)):
        shelf = LIFiles({"d": f"It is {s}."}, {s: s}, error)
        tried("agent", lambda shelf=shelf: asyncio.run(_run(agent(shelf), s)))
        tried("chat", lambda shelf=shelf: context_chat(retriever=shelf).chat(s))
        tried("fusion", lambda shelf=shelf: fusion(shelf).retrieve(s))

    with suppress(ValueError), ragtrace.pipeline("own"):
        with ragtrace.retrieval(s) as stage:
            stage.documents([{"content": s, "id": "x", "metadata": {s: s}}])
        with ragtrace.context():
            prompt = f"{s}?"
        with ragtrace.generation(prompt, model="m") as stage:
            stage.response(s)
            stage.measured(logprobs=[-0.5], first_token=[(s, -0.5)])
            raise ValueError(s)
    TOOK.append("own stages")


async def _run(workflow: Any, question: str) -> Any:
    return await workflow.run(question)


def main(capture: str, folder: str, endpoint: str, s: str) -> None:
    logging.basicConfig(filename=Path(folder) / "log", level=logging.DEBUG, format="%(name)s | %(message)s")
    mode: Any = capture
    tracing = ragtrace.setup(Path(folder) / "traces.duckdb", capture=mode, canaries=[s], also="openinference")
    exporter = OTLPSpanExporter(endpoint=endpoint, compression=Compression.Gzip)
    tracing.provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
    for framework in FRAMEWORKS:
        for path in PATHS:
            pipelines_of(framework, path, s)
    others(s)
    tracing.shutdown()
    tracing.provider.shutdown()
    print(json.dumps(TOOK))


if __name__ == "__main__":
    main(*sys.argv[1:])
