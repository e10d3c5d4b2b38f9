"""One file an attack: each exposes ``ATTACK``; third parties use the entry point group ``ragtrace.attacks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.plugins import scan

if TYPE_CHECKING:
    from ragtrace.attacks.base import Attack


def load() -> dict[str, Attack]:
    """Everything found, by name."""
    return scan(__name__, "ATTACK", "ragtrace.attacks")
