"""ragtrace for LangChain: ``LangChainInstrumentor().instrument()``."""

from ragtrace_langchain.instrumentor import LangChainInstrumentor

__all__ = ["LangChainInstrumentor"]
