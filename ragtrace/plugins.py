"""Finding what people added: one file in a folder of ours, or an entry point of somebody else's package."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from importlib.metadata import entry_points
from typing import Any

from ragtrace.errors import UsageError


def scan(package: str, attribute: str, group: str) -> dict[str, Any]:
    """Everything that ``package`` and the entry point ``group`` offer, by its ``name``.

    Each module of ``package`` that does not start with ``_`` and is not ``base`` exposes ``attribute``:
    one object with a ``name``, or a tuple of them. An entry point loads to the same. A third party's entry
    point that cannot be loaded is left out with a warning, so that it stops nobody's audit.

    :raises UsageError: for a module of ``package`` without the attribute, or a name that is taken already.
    """
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if not info.name.startswith("_") and info.name != "base":
            origin = f"{package}.{info.name}"
            module = importlib.import_module(origin)
            if not hasattr(module, attribute):
                raise UsageError(
                    f"{origin} has no {attribute}; expected `{attribute} = …` at module level "
                    "(start the file's name with _ if it is only a helper)"
                )
            _add(found, getattr(module, attribute), origin)
    for point in sorted(entry_points(group=group), key=lambda p: p.name):
        try:
            offered = point.load()
            # added to a copy first: a plug-in is taken whole or not at all
            extended = dict(found)
            _add(extended, offered, f"entry point {point.value}")
        except Exception as error:
            warnings.warn(f"{group} entry point {point.name} ({point.value}) left out: {error}", stacklevel=2)
        else:
            found = extended
    return found


def _add(found: dict[str, Any], offered: Any, origin: str) -> None:
    for thing in offered if isinstance(offered, tuple) else (offered,):
        name = getattr(thing, "name", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"{origin} offers {thing!r}, which has no name; expected a non-empty str in .name")
        if name in found:
            raise UsageError(f"{origin} offers {name!r}, which is taken by {found[name]!r}; rename one of them")
        found[name] = thing
