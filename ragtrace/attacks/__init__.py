"""One file an attack: each exposes ``ATTACK``; third parties use the entry point group ``ragtrace.attacks``.

What an attack of your own is made from is here too: an :class:`Attack` makes probes; an :class:`AdaptiveAttack` sees
each answer before it asks on; a :class:`MembershipAttack` says what to ask about a target and how answers become a
score.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragtrace.plugins import scan

if TYPE_CHECKING:
    from ragtrace.attacks._membership import MembershipAttack, Query
    from ragtrace.attacks.base import AdaptiveAttack, Attack, Card

__all__ = ["AdaptiveAttack", "Attack", "Card", "MembershipAttack", "Query", "load"]

_PLACES = {"MembershipAttack": "_membership", "Query": "_membership"}  # the others are in `base`


def load() -> dict[str, Attack]:
    """Everything found, by name."""
    return scan(__name__, "ATTACK", "ragtrace.attacks")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'base')}"), name)
