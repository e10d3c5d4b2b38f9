"""The analyst's side: one DuckDB file, filled from the spool, asked through views."""

from ragtrace.store.compacting import Compacted, compact
from ragtrace.store.database import existing, open, open_readonly
from ragtrace.store.forgetting import forget
from ragtrace.store.merge import ImportReport, MergeReport, SegmentWarning, add, import_files

__all__ = [
    "Compacted",
    "ImportReport",
    "MergeReport",
    "SegmentWarning",
    "add",
    "compact",
    "existing",
    "forget",
    "import_files",
    "open",
    "open_readonly",
]
