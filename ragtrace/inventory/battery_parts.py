"""In the battery's child: an object of any kind as a defense whose hooks can be fed.

A defense is recognised by its class, its mark (``ragtrace.observe``) or its methods' names. Each hook of it becomes a
:class:`Feed`: how an input is made in the form the hook takes, and how the hook is called with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isabstract, isfunction, isroutine
from typing import Any

from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.inventory import battery_inputs as inputs
from ragtrace.inventory.battery_calls import Call
from ragtrace.inventory.battery_inputs import Specimen
from ragtrace.types import HOOKS, Message

DOCUMENTS = "documents"
"""Stands for ``retrieval`` or ``content`` until it is known which: what a framework's part changes names the hook."""


@dataclass(frozen=True)
class Feed:
    """One hook of one instance: ``make`` gives the input in the hook's form, ``call`` what the hook makes of it.

    ``read(value, given)`` makes either of them comparable. ``forms`` are those that the input may have where nothing
    tells which one the hook takes; ``choose`` settles it.
    """

    make: Callable[[Specimen], Any]
    call: Callable[[Any, Specimen], Any]
    read: Callable[[Any, Any], Any] = lambda value, given: value
    forms: tuple[str, ...] = ()
    choose: Callable[[str], None] = lambda form: None


@dataclass(frozen=True)
class Part:
    """A defense of any kind. ``feeds`` are for this instance: one gets them anew from each fresh one."""

    name: str
    kind: str
    feeds: dict[str, Feed]


def part_of(value: Any, names: Mapping[str, str]) -> Part:
    """``value`` as a defense.

    :raises UsageError: if it is none that is known.
    """
    if isinstance(value, Defense):
        return Part(value.name, "ragtrace", {hook: _own(value, hook) for hook in value.hooks})
    if observed := _observed(value):
        name = next(iter(observed.values()))[1] if isroutine(value) else type(value).__name__
        return Part(name, "ragtrace", {hook: _function(f, hook, arg) for hook, (f, _, arg) in observed.items()})
    families = {(c.__module__.partition(".")[0], c.__name__) for c in type(value).__mro__}
    from ragtrace.inventory import battery_frameworks as frameworks

    if feeds := frameworks.langchain(value, families):
        return Part(type(value).__name__, "langchain", feeds)
    if feeds := frameworks.llama_index(value, families):
        return Part(type(value).__name__, "llama_index", feeds)
    if isroutine(value):
        if (hook := names.get(value.__name__)) is not None:
            return Part(value.__name__, "duck", {hook: _function(value, hook)})
        raise UsageError(
            f"the function {value.__name__} says no hook; mark it with @ragtrace.observe(hook=…), or give a factory "
            "that takes no arguments"
        )
    methods = {names[m]: getattr(value, m) for m in reversed([*names]) if callable(getattr(value, m, None))}
    if not methods:
        raise UsageError(
            f"{type(value).__name__} is no ragtrace.Defense, no part of LangChain or LlamaIndex that is known, and has "
            f"no method of the table (such as {', '.join(list(names)[:3])}); wrap it in a ragtrace.Defense"
        )
    return Part(type(value).__name__, "duck", {h: _function(methods[h], h) for h in HOOKS if h in methods})


def is_defense(value: Any, names: Mapping[str, str]) -> bool:
    """Whether a name of a module stands for a defense: a class, an instance or a function."""
    if isfunction(value):
        return bool(_observed(value))
    if not isinstance(value, type):
        return isinstance(value, Defense)
    if issubclass(value, Defense) or any(_mark(v) for v in vars(value).values()):
        return True
    known = {"BaseDocumentCompressor", "BaseDocumentTransformer", "AgentMiddleware", "BaseNodePostprocessor"}
    if isabstract(value):
        return False
    return any(c.__name__ in known for c in value.__mro__[1:]) or any(n in names for n in dir(value))


def _own(defense: Defense, hook: str) -> Feed:
    run: Callable[..., Any] = getattr(defense, f"on_{hook}")
    if hook == "query":
        return Feed(lambda s: s.text, lambda given, s: run(given))
    if hook == "prompt":
        return Feed(_messages, lambda given, s: run(given))
    if hook == "response":
        return Feed(
            lambda s: s.text, lambda given, s: run(inputs.QUERY, inputs.documents(Specimen(inputs.PLAIN[0])), given)
        )
    return Feed(inputs.documents, lambda given, s: run(inputs.QUERY, given))


def _messages(specimen: Specimen) -> list[Message]:
    return [Message("system", "You answer questions."), Message("user", inputs.question(specimen))]


def _function(function: Callable[..., Any], hook: str, arg: str | None = None) -> Feed:
    call = Call(function, hook, arg)
    return Feed(call.make, call, call.read, call.forms, lambda form: setattr(call, "form", form))


def _mark(value: Any) -> tuple[str, str, str | None] | None:
    found = getattr(value, "__ragtrace_observed__", None) if isroutine(value) else None
    return found if isinstance(found, tuple) else None


def _observed(value: Any) -> dict[str, tuple[Callable[..., Any], str, str | None]]:
    """Functions marked with ``ragtrace.observe``, by hook: ``value`` itself, or methods of it."""
    if isroutine(value):
        named = {"": value}
    else:
        named = {n: getattr(value, n) for n, v in _class_attributes(type(value)) if _mark(v)}
    found = {}
    for function in named.values():
        if mark := _mark(function):
            found[mark[0]] = (function, mark[1], mark[2])
    return {hook: found[hook] for hook in HOOKS if hook in found}


def _class_attributes(cls: type) -> list[tuple[str, Any]]:
    return [(n, v) for c in reversed(cls.__mro__) for n, v in vars(c).items()]
