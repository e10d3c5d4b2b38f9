"""LlamaIndex's PII postprocessor masks the nodes of the engine that has it. A second engine on the same index has not.

pip install 'ragtrace-audit[llama-index]'
python examples/llama_index_pii_postprocessor.py
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import CompletionResponse, MockLLM
from llama_index.core.postprocessor import PIINodePostprocessor
from llama_index.core.schema import TextNode

import ragtrace

database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database, capture="full")

# Frameworks' parts are observed as they are. Declared, one is also missed where it does not run.
ragtrace.declare("PIINodePostprocessor", hooks=["content"])


class Masker(MockLLM):
    """Stands for the local model that finds the PII: it answers in the form that the postprocessor reads."""

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        text = "Ann Lee, ann.lee@corp.com, signs." if "ann.lee@corp.com" in prompt else ""
        masked = re.sub(r"\S+@\S+,", "[EMAIL],", text)
        return CompletionResponse(text=f'{masked}\nOutput Mapping:\n{{"[EMAIL]": "ann.lee@corp.com"}}')


index = VectorStoreIndex([TextNode(text="Ann Lee, ann.lee@corp.com, signs.")], embed_model=MockEmbedding(embed_dim=8))
masked = index.as_query_engine(llm=MockLLM(), node_postprocessors=[PIINodePostprocessor(llm=Masker())])
forgotten = index.as_query_engine(llm=MockLLM(), streaming=True)  # the mock model repeats its prompt

answer = masked.query("Who signs?")
print("with it, the answer has the address:", "ann.lee@corp.com" in str(answer))
print("with it, the sources have it still:", "ann.lee@corp.com" in str(answer.source_nodes[0].metadata))
print("without it:", "ann.lee@corp.com" in "".join(forgotten.query("Who signs?").response_gen))

tracing.flush()
with ragtrace.open(database) as db:
    for row in ragtrace.verdicts(db):
        print(f"\n{row['defense']} at {row['hook']}: {row['verdict']}")
        print(row["evidence"])
