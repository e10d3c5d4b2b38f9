"""One call of a hook, and whether what it returned is another thing than what it was given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ragtrace.inventory.trial.samples import LONG
from ragtrace.inventory.trial.things import Generator, GiveUpError, Instance, Opaque


class Asked(list[Any]):
    """What a handler was given, in all copies of a call."""

    def __deepcopy__(self, memo: Any) -> Asked:
        return self


@dataclass
class Case:
    """One call. ``guarded`` is what the hook may change; ``asked`` what a handler was given."""

    args: list[Any]
    guarded: Any
    shape: str
    text: str = ""
    kw: dict[str, Any] = field(default_factory=dict)
    asked: Asked = field(default_factory=lambda: Asked())


def changed(case: Case, before: Any, after: Any) -> bool:
    """Whether the hook changed anything."""
    if case.shape == "update":
        return _updated(before, case.guarded, after)
    if case.shape == "asked":
        return not case.asked or view(case.asked[-1]) != view(before)
    if after is None:
        if case.shape == "strict" or isinstance(before, str):
            return False  # counts as an error: what was there is kept
        after = case.guarded
    if isinstance(after, tuple) and not isinstance(before, tuple):
        both = isinstance(before, list) and len(before) == len(after) == 2 and isinstance(before[0], list)
        if not both and after and not isinstance(before, list):
            after = after[0]
    one, other = view(before), view(after)
    if type(one) is not type(other):
        raise GiveUpError("a result of another kind")
    if one != other and thinner(one, other):
        raise GiveUpError("the same with less in it")  # whether that is another thing depends on what there is
    return bool(one != other)


def is_long(case: Case) -> bool:
    """Whether the long text is in it, which may be too much for some patterns."""
    held = view([case.guarded, *case.args, *case.kw.values()])
    return LONG in str(held)


def gather(value: Any, found: list[str]) -> None:
    """The texts in what a hook is given."""
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        gather(list(value.values()), found)
    elif isinstance(value, list | tuple):
        for item in value:
            gather(item, found)
    elif isinstance(value, Instance):
        gather(value._a, found)


def thinner(before: Any, after: Any) -> bool:
    """Whether nothing differs but what was left out when elements were built anew."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(k in before and before[k] == v for k, v in after.items())
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(a == b or (not b and isinstance(b, dict)) or (isinstance(b, dict | list) and thinner(a, b))
                   for a, b in zip(before, after, strict=True))  # fmt: skip
    return False


def view(value: Any) -> Any:
    """What counts of a value."""
    if isinstance(value, Opaque):
        raise GiveUpError(value.name)
    if isinstance(value, Generator | list | tuple) or (hasattr(value, "__next__") and not isinstance(value, Instance)):
        return [view(v) for v in value]
    if isinstance(value, dict):
        return {k: view(v) for k, v in value.items()}
    if isinstance(value, Instance):
        held = value._a
        if value._k == "NodeWithScore":
            return [view(held["node"]), held["score"]]
        if value._k == "ModelResponse":
            return [view(m) for m in held["result"]]
        if value._k == "ModelRequest":
            return [view(held["messages"]), view(held["system_message"])]
        if value._k in ("TextNode", "Document"):
            return [view(held.get("text", held.get("page_content"))), view(held["metadata"])]
        if isinstance(value._k, str) and value._k.endswith("Message"):
            return [view(held["content"]), held.get("role")]
        if isinstance(value._k, str) or value._m.is_data(value._k):
            return {k: view(v) for k, v in held.items()}
        raise GiveUpError("an object")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(float(value), 9)
    return value


def _updated(before: Any, state: Any, update: Any) -> bool:
    if isinstance(update, Instance) and update._k == "Command":
        raise GiveUpError("a command")
    if update is not None and not isinstance(update, dict):
        raise GiveUpError("an update")
    told = (update or {}).get("messages")
    new = [*state["messages"], *([told] if isinstance(told, Instance) else told or [])]
    gone = {m._a["id"] for m in new if m._k == "RemoveMessage"}
    merged: dict[Any, Any] = {}
    for i, m in enumerate(new):
        if m._a.get("id") not in gone:
            merged[m._a["id"] if m._a.get("id") is not None else f"new {i}"] = m
    return bool([view(m) for m in merged.values()] != [view(m) for m in before["messages"]])
