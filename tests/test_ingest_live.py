"""Round trips: a real small pipeline under a real instrumentation, out through each exporter's format, and in again.

In a process of its own, for what OpenLLMetry and LlamaIndex's instrumentations put on stays on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ingest_fixtures import Store, store

__all__ = ["store"]
QUERY = "who?"
TEXTS = ["Alice Smith, room 0", "Bob Stone, room 1", "Carol Reed, room 2"]


def write_spans(instrumentation: str, framework: str, folder: Path) -> None:
    """Runs the pipeline and writes its spans in three formats."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    _instrumentor(instrumentation, framework).instrument(tracer_provider=provider)
    (_langchain if framework == "langchain" else _llama_index)(memory.clear)
    spans = memory.get_finished_spans()
    request = encode_spans(spans)
    (folder / "protobuf").write_bytes(request.SerializeToString())
    (folder / "json").write_text(json.dumps(MessageToDict(request)))
    (folder / "console").write_text("\n".join(s.to_json() for s in spans))


def _instrumentor(instrumentation: str, framework: str) -> Any:
    if instrumentation == "openinference":
        if framework == "langchain":
            from openinference.instrumentation.langchain import LangChainInstrumentor as Theirs
        else:
            from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as Theirs
    elif framework == "langchain":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor as Theirs
    else:
        from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor as Theirs
    return Theirs()


def _langchain(clear: Any) -> None:
    from langchain_core.documents import Document
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough
    from langchain_core.vectorstores import InMemoryVectorStore

    shelf = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    shelf.add_documents([Document(page_content=t, id=f"d{i}", metadata={"n": i}) for i, t in enumerate(TEXTS)])
    usage = {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}
    said = AIMessage(content="Alice.", usage_metadata=usage, response_metadata={"model_name": "fake-model"})
    prompt = ChatPromptTemplate.from_messages([("system", "Use this: {context}"), ("human", "{question}")])
    docs = shelf.as_retriever(search_kwargs={"k": 3}) | _joined
    chain = {"context": docs, "question": RunnablePassthrough()} | prompt | GenericFakeChatModel(messages=iter([said]))
    clear()
    assert chain.invoke(QUERY).text == "Alice."


def _joined(found: Any) -> str:
    return " / ".join(sorted(document.page_content for document in found))


def _llama_index(clear: Any) -> None:
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=t, id_=f"d{i}", metadata={"n": i}, excluded_llm_metadata_keys=["n"])
             for i, t in enumerate(TEXTS)]  # fmt: skip
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    clear()
    index.as_query_engine(llm=MockLLM(), similarity_top_k=3).query(QUERY)


def _spans(folder: Path, instrumentation: str, framework: str) -> None:
    call = f"t.write_spans({instrumentation!r}, {framework!r}, pathlib.Path.cwd())"
    code = f"import test_ingest_live as t, pathlib; {call}"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {code}"],
        cwd=folder, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("instrumentation", ["openinference", "openllmetry"])
@pytest.mark.parametrize("framework", ["langchain", "llama_index"])
def test_round_trip(tmp_path: Path, instrumentation: str, framework: str) -> None:
    folder = tmp_path / "spans"
    folder.mkdir()
    _spans(folder, instrumentation, framework)
    all_found = []
    for format in ("protobuf", "json", "console"):
        (tmp_path / format).mkdir()
        mine = Store(tmp_path / format)
        report = mine.take(folder / format)
        assert report.failed == [] and report.spans > 5
        all_found.append(_told(mine))
        mine.db.close()
    assert all_found[0] == all_found[1]
    found = all_found[0]
    assert found["stages"] == [("retrieval", QUERY, instrumentation, framework, "shop"),
                               ("generation", QUERY, instrumentation, framework, "shop")]  # fmt: skip
    assert sorted(c for _, _, c in found["documents"]) == TEXTS
    assert [r for r, _, _ in found["documents"]] == [1, 2, 3]
    ids = {text: f"d{i}" for i, text in enumerate(TEXTS)}
    known = not (instrumentation == "openllmetry" and framework == "langchain")  # that one keeps no ids
    assert {c: i for _, i, c in found["documents"]} == (ids if known else dict.fromkeys(TEXTS))
    [(prompt, response, model, given, made)] = found["generations"]
    assert all(text in prompt for text in TEXTS) and QUERY in prompt
    if framework == "langchain":
        assert prompt == f"Use this: {' / '.join(TEXTS)}\n\n{QUERY}"
        assert (response, given, made) == ("Alice.", 11, 3)
        assert model == ("fake-model" if instrumentation == "openinference" else "unknown")  # its own word
    else:
        assert response == prompt  # the mock says its prompt again
    # the console's JSON has no scope, by which the framework is known where LangChain does not name itself
    for view in ("documents", "generations"):
        assert all_found[2][view] == found[view]


def _told(mine: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "stages": mine.rows("SELECT stage, query, t.dialect, framework, service FROM stages t JOIN spans "
                            "USING (trace_id, span_id) ORDER BY t.start_time"),
        "documents": mine.rows("SELECT rank, document_id, content FROM documents ORDER BY rank"),
        "generations": mine.rows("SELECT prompt, response, model, prompt_tokens, completion_tokens FROM generations"),
    }  # fmt: skip
