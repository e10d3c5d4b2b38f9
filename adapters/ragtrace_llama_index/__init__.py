"""ragtrace for LlamaIndex: ``LlamaIndexInstrumentor().instrument()``."""

from ragtrace_llama_index.instrumentor import LlamaIndexInstrumentor

__all__ = ["LlamaIndexInstrumentor"]
