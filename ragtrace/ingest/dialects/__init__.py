"""What the attributes of others mean: one file an instrumentation, each with a ``DIALECT``.

A third party adds one by an entry point in the group ``ragtrace.dialects``.
"""

from ragtrace.ingest.dialects.base import Dialect, Seen

__all__ = ["Dialect", "Seen"]
