"""May this number be read, would it come out again, and what does the defense trade? All of it from the store."""

from ragtrace.reading.judge import Reader
from ragtrace.reading.replication import replications
from ragtrace.reading.tradeoffs import tradeoffs

__all__ = ["Reader", "replications", "tradeoffs"]
