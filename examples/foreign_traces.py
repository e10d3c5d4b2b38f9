"""Audit somebody else's traces: OpenInference spans in an OTLP file, as Phoenix and other back ends export them.

pip install 'ragtrace-audit'
python examples/foreign_traces.py [FILE]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import ragtrace
from ragtrace.store import import_files

folder = Path(tempfile.mkdtemp())


def span(number: int, parent: int | None, name: str, attributes: dict[str, str]) -> dict[str, object]:
    start = 1_790_000_000_000_000_000 + number * 1_000_000
    return {
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": f"{number:016x}", "name": name, "kind": 1,
        "parentSpanId": f"{parent:016x}" if parent else "", "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 900_000), "status": {"code": 1},
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }  # fmt: skip


def made() -> Path:
    """What a LangChain app with OpenInference's instrumentation says of one question."""
    found, masked = "Ann Lee, ann.lee@corp.com, signs.", "Ann Lee, [e-mail], signs."
    kind = "openinference.span.kind"
    spans = [
        span(1, None, "RetrievalQA", {kind: "CHAIN", "input.value": "Who signs?"}),
        span(2, 1, "VectorStoreRetriever", {
            kind: "RETRIEVER", "input.value": "Who signs?",
            "retrieval.documents.0.document.id": "contract", "retrieval.documents.0.document.content": found,
        }),
        span(3, 1, "PIIGuard", {kind: "GUARDRAIL", "input.value": found, "output.value": masked}),
        span(4, 1, "ChatOpenAI", {
            kind: "LLM", "llm.model_name": "gpt-4o", "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": f"{found}\n\nWho signs?",  # the guard's output was thrown away
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "Ann Lee does: ann.lee@corp.com.",
        }),
    ]  # fmt: skip
    scope = {"name": "openinference.instrumentation.langchain"}
    file = folder / "theirs.json"
    file.write_text(json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": scope, "spans": spans}]}]}))
    return file


file = Path(sys.argv[1]) if len(sys.argv) > 1 else made()
with ragtrace.open(folder / "traces.duckdb") as db:
    report = import_files(db, [file])  # on the command line: ragtrace import FILE --db traces.duckdb
    print(f"{report.spans} spans from {report.files} file", *report.failed)

    print("\nIts stages, in the same views as our own traces:")
    for row in db.execute("SELECT stage, dialect, coalesce(query, '') FROM stages ORDER BY start_time").fetchall():
        print("  " + " · ".join(row))

    print("\nWhat of the retrieved text was given away?")
    for row in db.execute("SELECT type, text, in_documents, in_query FROM entities ORDER BY type, text").fetchall():
        print(
            "  {} {}: {}".format(row[0], row[1], "from a document" if row[2] and not row[3] else "not from a document")
        )

    print("\nWhat of its defenses?")
    for row in ragtrace.verdicts(db):
        print(f"  {row['defense']}: {row['verdict']}, {row['evidence']}")
