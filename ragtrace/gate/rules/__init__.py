"""One file a rule: each exposes ``RULE``, a class; third parties use the entry point group ``ragtrace.rules``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.plugins import scan

if TYPE_CHECKING:
    from ragtrace.gate.rules.base import Rule


def load() -> dict[str, type[Rule]]:
    """Every rule found, by the name that a policy calls it."""
    return scan(__name__, "RULE", "ragtrace.rules")
