"""No-Defense of Mind the Hook: the baseline arm."""

from __future__ import annotations

from ragtrace.defense import Defense


class NoDefense(Defense):
    """The baseline of Mind the Hook (arXiv 2608.09001, Table I): it has no hook, and so changes nothing anywhere."""

    name = "no_defense"
