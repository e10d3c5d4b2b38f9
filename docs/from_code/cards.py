"""Attacks, defenses, metrics and corpora: the cards that the code carries, and the docstrings beside them."""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from typing import Any

from from_code.writing import code, doc, plain, rest, table


def _called(thing: Any) -> str:
    """``name`` with the parameters that an audit file may give, as TOML would have them."""
    of = thing if isinstance(thing, type) else type(thing)
    given = inspect.signature(of).parameters.values()
    return ", ".join(str(p.replace(annotation=p.empty)) for p in given)


def _where(thing: Any) -> tuple[str, str]:
    of = thing if isinstance(thing, type) else type(thing)
    return of.__module__, of.__qualname__


def _section(name: str, thing: Any, rows: list[tuple[str, str]]) -> str:
    module, cls = _where(thing)
    head = table(("card", "says"), [*rows, ("parameters", code(_called(thing)) or "none")])
    return f"## {name}\n\n{head}\n{rest(f'.. autoclass:: {module}.{cls}')}"


def attacks() -> str:
    """A section an attack."""
    from ragtrace.attacks import load

    made = []
    for name, attack in sorted(load().items()):
        card = attack.card
        rows = [
            ("paper", plain(card.paper)),
            ("sends", plain(card.prompt)),
            ("queries a target", plain(card.queries)),
            ("must be given", plain(card.access)),
            ("differs, or is our reading", plain(card.deviations)),
        ]
        if brought := [code(m.name) for m in getattr(attack, "metrics", ())]:
            rows.append(("brings metrics", ", ".join(brought)))
        made.append(_section(name, attack, rows))
    return "\n".join(made)


def defenses() -> str:
    """A section a defense."""
    from ragtrace.defenses import load
    from ragtrace.types import HOOKS

    made = []
    for name, cls in sorted(load().items()):
        hooks = [h for h in HOOKS if not hasattr(getattr(cls, f"on_{h}"), "__ragtrace_absent__")]
        made.append(_section(name, cls, [("acts at", ", ".join(map(code, hooks)))]))
    return "\n".join(made)


def corpora() -> str:
    """A section a corpus."""
    from ragtrace.corpora import load
    from ragtrace.corpora.table import Table

    made = [_section(name, source, []) for name, source in sorted(load().items())]
    return "\n".join([*made, _section("Table: a file of your own", Table, [])])


def metrics() -> str:
    """A section a family: the metrics of one file (an attack's where it brings them along), a row for those alike."""
    from ragtrace.attacks import load
    from ragtrace.metrics import load as load_metrics

    brought = {m.name: type(a).__module__ for a in load().values() for m in getattr(a, "metrics", ())}
    families: defaultdict[str, list[Any]] = defaultdict(list)
    for name, metric in load_metrics().items():
        families[brought.get(name, type(metric).__module__)].append(metric)
    made = []
    for home, members in sorted(families.items()):
        alike: defaultdict[tuple[Any, ...], list[str]] = defaultdict(list)
        for m in members:
            alike[m.observes, m.channel, m.moved_by, bool(getattr(m, "on_request", False))].append(m.name)
        rows = [
            (", ".join(map(code, names)), plain(observes), code(channel), ", ".join(map(code, moved)), "yes" * asked)
            for (observes, channel, moved, asked), names in alike.items()
        ]
        head = ("metric", "observes", "channel", "may be moved by", "on request only")
        about = rest(f".. currentmodule:: {home}\n\n{doc(sys.modules[home])}")
        made.append(f"## {home.rpartition('.')[2]}\n\n{about}\n{table(head, rows)}")
    return "\n".join(made)
