"""The analyst's side: one DuckDB file, filled from the spool, asked through views."""

from ragtrace.store.compacting import Compacted, compact
from ragtrace.store.database import MEMORY, existing, in_memory, open, open_readonly
from ragtrace.store.forgetting import forget
from ragtrace.store.merge import ImportReport, MergeReport, SegmentWarning, add, add_tables, import_files

__all__ = [
    "MEMORY",
    "Compacted",
    "ImportReport",
    "MergeReport",
    "SegmentWarning",
    "add",
    "add_tables",
    "compact",
    "existing",
    "forget",
    "import_files",
    "in_memory",
    "open",
    "open_readonly",
]
