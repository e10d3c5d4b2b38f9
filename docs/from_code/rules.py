"""The gate's rules, and the default policy."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from from_code.writing import code, rest, table


def load() -> dict[str, Any]:
    """Every rule by the name that a policy calls it."""
    from ragtrace.gate.rules import load

    return load()


def markdown() -> str:
    """A part of the section on rules for each."""
    made = []
    for name, rule in sorted(load().items()):
        rows = [
            (code(f.name), code("required" if f.default is MISSING else _toml(f.default)), code(f.type))
            for f in fields(rule)
        ]
        made.append(
            f"### {name}\n\n{table(('key', 'default', 'type'), rows)}\n"
            f"{rest(f'.. autoclass:: {rule.__module__}.{rule.__qualname__}')}"
        )
    return "\n".join(made)


def policy() -> str:
    """The commented policy that ``ragtrace check --init`` writes."""
    from ragtrace.gate.policy import template

    return f"```toml\n{template()}```\n"


def _toml(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return repr(list(default) if isinstance(default, tuple) else default).replace("'", '"')
