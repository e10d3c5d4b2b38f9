"""The gate: does what was traced keep a policy? One file a rule, in ``rules``; each outcome says what was looked at."""

from ragtrace.gate.judging import check
from ragtrace.gate.outcomes import Finding, Gate, Outcome
from ragtrace.gate.policy import Policy, default, read, write_template

__all__ = ["Finding", "Gate", "Outcome", "Policy", "check", "default", "read", "write_template"]
