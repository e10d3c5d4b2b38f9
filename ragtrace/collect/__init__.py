"""The receiver: OTLP/HTTP in, segments beside the database out. It never opens DuckDB, and never logs content."""

from ragtrace.collect.server import serve

__all__ = ["serve"]
