"""ragtrace: which stage does each privacy defense of a RAG pipeline really change, and what leaks all the same?

Everything here is loaded on first use: importing ``ragtrace`` imports neither DuckDB nor pyarrow nor a framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.defense import Defense, declare, defend
    from ragtrace.errors import RagtraceError
    from ragtrace.ner import entities
    from ragtrace.record.observe import observe
    from ragtrace.record.scope import conversation, probing
    from ragtrace.record.setup import setup
    from ragtrace.record.stages import context, generation, pipeline, retrieval
    from ragtrace.store import open
    from ragtrace.tables import results, table, verdicts
    from ragtrace.types import Canary, Document, Entity, Message, Probe

__all__ = [
    "Canary",
    "Defense",
    "Document",
    "Entity",
    "Message",
    "Probe",
    "RagtraceError",
    "context",
    "conversation",
    "declare",
    "defend",
    "entities",
    "generation",
    "observe",
    "open",
    "pipeline",
    "probing",
    "results",
    "retrieval",
    "setup",
    "table",
    "verdicts",
]

_HOME = {
    "Defense": "defense",
    "RagtraceError": "errors",
    "context": "record.stages",
    "conversation": "record.scope",
    "declare": "defense",
    "defend": "defense",
    "entities": "ner",
    "generation": "record.stages",
    "observe": "record.observe",
    "open": "store",
    "pipeline": "record.stages",
    "probing": "record.scope",
    "results": "tables",
    "retrieval": "record.stages",
    "setup": "record.setup",
    "table": "tables",
    "verdicts": "tables",
}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ragtrace' has no attribute {name!r}")
    value = getattr(import_module(f"ragtrace.{_HOME.get(name, 'types')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
