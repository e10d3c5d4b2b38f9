"""Names of the parameters by which a duck-typed hook is given what it may change, the likeliest first."""

from __future__ import annotations

import ast

TEXTS = ("text", "value", "content", "data", "string", "s", "input")
LISTS = ("documents", "docs", "document_list", "chunks", "passages", "nodes", "hits", "results", "contexts",
          "retrieved", "retrieved_docs", "retrieved_documents", "retrieved_chunks", "items", "records",
          "search_results", "context_chunks", "texts", "snippets", "doc_list", "scored_docs",
          "docs_and_scores", "context_docs", "candidates")  # fmt: skip
WANTED = {
    "query": ("query", "question", "user_query", "user_input", "prompt", "q", "query_text", "query_str", *TEXTS),
    "retrieval": (*LISTS, "scores", "similarities", "distances"),
    "content": (*LISTS, "context", "contexts", "document", "doc", "passage", "chunk",
                *TEXTS),
    "prompt": ("prompt", "messages", "prompt_text", "final_prompt", "system_prompt", *TEXTS),
    "response": ("response", "answer", "output", "completion", "generation", "generated_text", "generated", "reply",
                 "llm_output", "model_output", "response_text", "result", "raw_output", "raw", "llm_response",
                 "message", *TEXTS),
}  # fmt: skip
SCORES = frozenset({"scores", "similarities", "distances", "sims", "ids", "indices", "doc_ids", "doc_scores"})
AMBIGUOUS = frozenset(
    "redact redact_text redact_pii anonymize anonymise anonymize_text pseudonymize deidentify mask mask_text mask_pii "
    "scrub scrub_text scrub_pii sanitize sanitize_text".split()
)
"""Methods that many classes have: a defense's only if its parameters say that it is given a text or documents."""


def takes_text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a parameter is named, or annotated, as a text, documents or messages are."""
    known = {name for names in WANTED.values() for name in names} | {"document", "doc"}
    given = [a for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
    return any(a.arg in known or (a.annotation is not None and ast.unparse(a.annotation) == "str") for a in given)
