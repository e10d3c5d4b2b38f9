"""May this number be read? Each result with its verdict, the reason in words, and what the canaries say of it."""

from ragtrace.reading.judge import Reader

__all__ = ["Reader"]
