"""More samples for a hook that the first ones did not move: what they lack, in the order of how often it matters."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ragtrace.inventory.modules import FunctionNode
from ragtrace.inventory.trial.outcomes import Case
from ragtrace.inventory.trial.samples import LONG, PLAIN, RICH
from ragtrace.inventory.trial.switches import others

_CALLS = 130  # what is counted is often counted to a hundred
_PAIRS = 4
_FEW = 8
Form = Callable[[], Iterator[Case]]


def more_texts(words: list[str]) -> list[str]:
    """Much of everything, and pairs of words at both ends."""
    all_of_them = f"{RICH} {' '.join(words)}"
    found = [
        f"{all_of_them}\n" * 8,
        f"{all_of_them} {LONG} {all_of_them}",
        all_of_them.upper(),
        all_of_them.lower(),
        "",
    ]
    some = words[:_PAIRS]
    return found + [f"{one} {PLAIN} {other}" for one in some for other in some if one != other]


def wider(form: Form, again: Form | None, node: FunctionNode | ast.Lambda, words: list[str]) -> Iterator[Form]:
    """The same calls with other texts, many times over, and with arguments that may be left out.

    :param again: the form with :func:`more_texts`.
    """
    if again is not None:
        yield again
    if any(
        isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self" for n in ast.walk(node)
    ):
        yield lambda: _repeated(form)  # it may count
    for extra in _arguments(node, words):
        yield lambda extra=extra: _with(form, extra)  # type: ignore[misc]
    yield lambda: _flagged(form, words)


def _repeated(form: Form) -> Iterator[Case]:
    for _ in range(_CALLS):
        yield from islice(form(), 1)


def _arguments(node: FunctionNode | ast.Lambda, words: list[str]) -> Iterator[dict[str, Any]]:
    spec = node.args
    pairs = list(zip(reversed(spec.args), reversed(spec.defaults), strict=False))
    for arg, default in [*pairs, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]:
        if isinstance(default, ast.Constant):
            yield from ({arg.arg: value} for value in others(default.value, words))
    if spec.kwarg is not None:
        named = [w for w in words if w.isidentifier()]
        yield from (dict.fromkeys(named, value) for value in (True, *words[:_PAIRS]))


def _with(form: Form, extra: dict[str, Any]) -> Iterator[Case]:
    for case in islice(form(), _FEW):
        case.kw = {**case.kw, **extra}
        yield case


def _flagged(form: Form, words: list[str]) -> Iterator[Case]:
    """A state of the conversation in which every flag is set."""
    for case in islice(form(), _FEW):
        if case.shape == "update":
            case.args[0].update({w: True for w in words if w.isidentifier() and w not in case.args[0]})
            yield case
