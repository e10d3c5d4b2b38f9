"""The analyst's side: one DuckDB file, filled from the spool, asked through views."""

from ragtrace.store.database import existing, open, open_readonly
from ragtrace.store.merge import MergeReport, SegmentWarning, add

__all__ = ["MergeReport", "SegmentWarning", "add", "existing", "open", "open_readonly"]
