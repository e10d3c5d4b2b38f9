"""What follows from the battery, before any model is run: which metrics a defense can move, which ones to combine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from ragtrace.errors import UsageError
from ragtrace.inventory.battery import Battery, Capability
from ragtrace.inventory.battery_inputs import FAMILIES, GROUPS, TEXTS
from ragtrace.metrics.base import Metric
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    from ragtrace.defense import Defense

_TYPES = {
    "EMAIL_REAL": ("email",),
    "PERSON_NAME": ("person_common",),
    "PERSON_NAME_AMBIGUOUS": ("person_common",),
    "PHONE": ("phone",),
    "IDENTIFIER": ("id",),
    "ADDRESS": ("address",),
}
"""Type of ``ragtrace.ner`` → the families whose specimens hold it. A rare name is none that it recognises."""
CHANNEL_HOOKS: dict[str, tuple[str, ...]] = {
    "query": ("query",),
    "retrieval": ("retrieval",),
    "content": ("content",),
    "prompt": ("content", "prompt"),
    "response": ("content", "response"),
}
"""Channel → the hooks that can take a string out of it: its own, and the one that rewrites the text it repeats."""
_EXACT = 12  # defenses; above it, all combinations are too many to try


@dataclass(frozen=True)
class Mitigation:
    """Whether a defense can move a metric directly.

    ``moves``: at ``hooks`` (of those that may move it), on ``families`` that it counts. ``cannot``: it leaves all of
    them alone there. ``unknown``: the battery could not tell.
    """

    defense: str
    metric: str
    channel: str
    attack: str | None
    status: Literal["moves", "cannot", "unknown"]
    hooks: tuple[str, ...]
    families: tuple[str, ...]
    reason: str


def mitigates(battery: Battery, metrics: Iterable[Metric] | None = None) -> list[Mitigation]:
    """One entry for each metric (default: the usual ones, of membership scores the ROC AUC): may this defense move it?

    A metric that counts certain strings (canaries of a family, entities of a type) is moved where some of these were
    taken out; any other one where anything was changed. Effects through another stage are left to paired runs.
    """
    if metrics is None:
        from ragtrace.metrics import load

        metrics = [m for m in load().values() if not getattr(m, "on_request", False) and _first(m)]
    return [_mitigation(battery, metric) for metric in metrics]


def _first(metric: Metric) -> bool:
    """Of several numbers made of one score, the one that stands for them."""
    return getattr(getattr(metric, "statistic", None), "name", "roc_auc") == "roc_auc"


def _mitigation(battery: Battery, metric: Metric) -> Mitigation:
    counted = _counted(metric)
    families = counted or tuple(FAMILIES)
    cells = [c for c in battery.capabilities if c.hook in metric.moved_by and c.family in families]
    hits = [c for c in cells if (c.removed if counted else c.changed)]
    hooks = tuple(h for h in HOOKS if any(c.hook == h for c in hits))
    what = tuple(f for f in families if any(c.family == f for c in hits))
    status: Literal["moves", "cannot", "unknown"] = "moves" if hits else "cannot"
    unsure = next((c.error for c in cells if c.status in ("error", "not_tried")), battery.error)
    if hits:
        verb = "takes out" if counted else "changes"
        named = ", ".join(what) if len(what) < 7 else f"{', '.join(what[:4])} and {len(what) - 4} more"
        reason = f"{verb} {named} at {', '.join(hooks)}"
    elif battery.error or any(c.status in ("error", "not_tried") for c in cells):
        status, reason = "unknown", f"not known: {unsure or 'it was not tried'}"
    elif not cells:
        reason = f"has no hook that may move it ({', '.join(metric.moved_by)}); it acts at {', '.join(_acts(battery))}"
    else:
        at = ", ".join(h for h in metric.moved_by if any(c.hook == h for c in cells))
        reason = f"takes out none of {', '.join(counted)} at {at}" if counted else f"changes nothing at {at}"
    return Mitigation(
        battery.defense, metric.name, metric.channel, getattr(metric, "attack", None), status, hooks, what, reason
    )


def _acts(battery: Battery) -> list[str]:
    return [h for h in battery.hooks if any(c.changed for c in battery.capabilities if c.hook == h)] or ["no hook"]


def _counted(metric: Metric) -> tuple[str, ...]:
    """The families of strings that a metric counts; empty for one that counts none."""
    if types := getattr(metric, "types", ()):
        return tuple(dict.fromkeys(f for t in types for f in _TYPES.get(t, ())))
    if hasattr(metric, "family"):
        return (f"canary_{metric.family}",) if metric.family else GROUPS["canary"]
    return ()


@dataclass(frozen=True)
class Gap:
    """What no given defense takes out of a channel in every specimen, and how near one comes."""

    family: str
    channel: str
    reason: str


@dataclass(frozen=True)
class Recommendation:
    """The smallest combinations that take out all that any can; first those that change least of ordinary text.

    ``exact``: all combinations were tried; else one was found step by step, and there may be a smaller one.
    """

    combinations: tuple[tuple[Battery, ...], ...]
    covered: tuple[tuple[str, str], ...]
    uncovered: tuple[Gap, ...]
    exact: bool


def recommend(
    batteries: Sequence[Battery], protect: Iterable[str], channels: Iterable[str] = ("response",)
) -> Recommendation:
    """Which of these defenses together keep ``protect`` out of ``channels``.

    A defense covers a family in a channel if it took out every specimen at one of :data:`CHANNEL_HOOKS`; partial cover
    of several is not added up. It is what the fixed specimens say: a model can still put the same fact in other words.

    :param protect: families, or ``person`` and ``canary`` for all of these.
    :raises UsageError: for a family with nothing to protect, an unknown channel, or none of either.
    """
    families, wanted = _families(protect), tuple(dict.fromkeys(channels))
    if not wanted or not set(wanted) <= CHANNEL_HOOKS.keys():
        raise UsageError(f"channels {sorted(wanted)}; expected some of {', '.join(CHANNEL_HOOKS)}")
    needs = [(family, channel) for channel in wanted for family in families]
    covers = [frozenset(n for n in needs if _covered(b, *n)) for b in batteries]
    coverable = frozenset().union(*covers)
    exact = len(batteries) <= _EXACT
    chosen = _all_smallest(covers, coverable) if exact else [_greedy(covers, coverable)]
    combos = [tuple(batteries[i] for i in c) for c in chosen if c]
    combos.sort(key=lambda c: sum(map(_side_effects, c)))
    gaps = [Gap(f, c, _nearest(batteries, f, c)) for f, c in needs if (f, c) not in coverable]
    return Recommendation(tuple(combos), tuple(n for n in needs if n in coverable), tuple(gaps), exact)


def combine(batteries: Sequence[Battery], defenses: Sequence[Defense]) -> tuple[Defense, ...]:
    """The first of the smallest combinations that together keep out of responses every family that any of them can.

    :param batteries: what :func:`ragtrace.inventory.battery.battery` says of ``defenses``, in their order.
    :return: in the order of ``defenses``; empty where none of them takes anything out.
    """
    everything = [f for f, specimens in TEXTS.items() if any(s.secrets for s in specimens)]
    advice = recommend(batteries, everything)
    chosen = advice.combinations[0] if advice.combinations else ()
    return tuple(d for d, b in zip(defenses, batteries, strict=True) if any(b is one for one in chosen))


def _families(protect: Iterable[str]) -> tuple[str, ...]:
    asked = list(dict.fromkeys([protect] if isinstance(protect, str) else protect))
    known = [f for f, specimens in TEXTS.items() if any(s.secrets for s in specimens)]
    if wrong := [f for f in asked if f not in known and f not in GROUPS]:
        raise UsageError(
            f"cannot protect {', '.join(map(repr, wrong))}; expected some of {', '.join([*GROUPS, *known])}"
        )
    if not asked:
        raise UsageError(f"nothing to protect; expected some of {', '.join([*GROUPS, *known])}")
    return tuple(dict.fromkeys(family for f in asked for family in GROUPS.get(f, (f,))))


def _cells(battery: Battery, family: str, channel: str) -> list[Capability]:
    return [c for c in battery.capabilities if c.family == family and c.hook in CHANNEL_HOOKS[channel]]


def _covered(battery: Battery, family: str, channel: str) -> bool:
    return any(c.n and c.removed == c.n for c in _cells(battery, family, channel))


def _all_smallest(
    covers: Sequence[frozenset[tuple[str, str]]], wanted: frozenset[tuple[str, str]]
) -> list[tuple[int, ...]]:
    for size in range(len(covers) + 1):
        found = [
            c for c in combinations(range(len(covers)), size) if frozenset().union(*(covers[i] for i in c)) == wanted
        ]
        if found:
            return found
    return []


def _greedy(covers: Sequence[frozenset[tuple[str, str]]], wanted: frozenset[tuple[str, str]]) -> tuple[int, ...]:
    chosen: list[int] = []
    left = wanted
    while left:
        best = max(range(len(covers)), key=lambda i: len(covers[i] & left))
        chosen.append(best)
        left -= covers[best]
    return tuple(chosen)


def _side_effects(battery: Battery) -> int:
    return sum(c.changed for c in battery.capabilities if c.family in ("plain", "long"))


def _nearest(batteries: Sequence[Battery], family: str, channel: str) -> str:
    cells = [(c.removed or 0, b.defense, c) for b in batteries for c in _cells(b, family, channel)]
    if not cells:
        return f"none of these has a hook at {' or '.join(CHANNEL_HOOKS[channel])}"
    removed, defense, cell = max(cells, key=lambda found: found[0])
    if removed:
        return f"{defense} takes out {removed} of {cell.n} at {cell.hook}"
    failed = next((f"{d} at {c.hook}: {c.error}" for _, d, c in cells if c.error), None)
    return f"not known: {failed}" if failed else "none of these takes out any of it"
