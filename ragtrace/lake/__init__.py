"""A lake: spans as Parquet files by date, in a folder or in an object store, for more than one machine's database.

``layout`` says where a span lies, ``writing`` puts spans there, each file whole or not at all and the same file only
once. An engine (``ragtrace.engine``) reads it.
"""

from ragtrace.lake.layout import Lake
from ragtrace.lake.writing import Added, add

__all__ = ["Added", "Lake", "add"]
