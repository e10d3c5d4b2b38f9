"""Wraps on a framework's classes, put on and taken off together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import wrapt

from ragtrace.record.steps import recording

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""``wrapper(wrapped, instance, args, kwargs)``: what runs in place of a method."""


def inside(request: Wrapper, stage: Wrapper) -> Wrapper:
    """Runs ``stage`` inside a request."""

    def both(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return request(lambda *a, **k: stage(wrapped, instance, a, k), instance, args, kwargs)

    return both


def ainside(request: Wrapper, stage: Wrapper) -> Wrapper:
    """:func:`inside` for async methods."""

    def both(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        async def inner(*a: Any, **k: Any) -> Any:
            return await stage(wrapped, instance, a, k)

        return request(inner, instance, args, kwargs)

    return both


class Wraps:
    """The wraps of one instrumentor.

    A wrap that another instrumentor has wrapped again stays on its class after :meth:`remove`, and stands aside.
    """

    def __init__(self) -> None:
        self._on: Any = [True]  # wrapt asks for its truth at each call, without a call into Python
        self._methods: list[tuple[Any, str, Any]] = []
        self._families: list[tuple[type, Any, Any]] = []

    def method(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """Wraps one method of a class (or function of a module), unless it is abstract."""
        if not getattr(vars(owner).get(name), "__isabstractmethod__", False):
            made = wrapt.wrap_object(owner, name, wrapt.FunctionWrapper, (wrapper,), {"enabled": self._on})
            self._methods.append((owner, name, made))

    def family(self, base: type, wrappers: Mapping[str, Wrapper], descendants_only: bool = False) -> None:
        """Wraps the methods of these names on ``base`` and on every class below it, of now and of later.

        Later classes are met by ``__init_subclass__``. None is kept in a list, so a class may be collected.
        """
        own, on = vars(base).get("__init_subclass__"), self._on

        def init_subclass(cls: Any, /, **kwargs: Any) -> None:
            if own is None:
                super(base, cls).__init_subclass__(**kwargs)  # type: ignore[arg-type]
            else:
                own.__func__(cls, **kwargs)
            if on:
                with recording:
                    self._wrap_own(cls, wrappers)

        for kind in _with_descendants(base):
            if not (descendants_only and kind is base):
                self._wrap_own(kind, wrappers)
        hook: Any = classmethod(init_subclass)
        setattr(base, "__init_subclass__", hook)  # noqa: B010
        self._families.append((base, own, hook))

    def late(self, module: str, wrap: Callable[[Any], None]) -> None:
        """Calls ``wrap`` with a module that may be imported later, or never; at once where it is there already."""
        on = self._on

        def hook(imported: Any) -> None:
            if on:
                with recording:
                    wrap(imported)

        wrapt.register_post_import_hook(hook, module)

    def remove(self) -> None:
        """Gives every class its own functions back."""
        for owner, name, wrapper in reversed(self._methods):
            _restore(owner, name, wrapper)
        for base, own, hook in reversed(self._families):
            if vars(base).get("__init_subclass__") is hook:
                if own is None:
                    del base.__init_subclass__
                else:
                    base.__init_subclass__ = own
            for kind in _with_descendants(base):
                for name, value in list(vars(kind).items()):
                    if isinstance(value, wrapt.FunctionWrapper) and value._self_enabled is self._on:
                        _restore(kind, name, value)
        self._on.clear()
        self._methods, self._families = [], []

    def _wrap_own(self, kind: type, wrappers: Mapping[str, Wrapper]) -> None:
        for name, wrapper in wrappers.items():
            own = vars(kind).get(name)
            if own is None or not callable(own) or getattr(own, "__isabstractmethod__", False):
                continue
            if getattr(own, "_self_enabled", None) is not self._on:  # a class may be below two bases
                setattr(kind, name, wrapt.FunctionWrapper(own, wrapper, enabled=self._on))


def _restore(owner: Any, name: str, wrapper: Any) -> None:
    if vars(owner).get(name) is wrapper:
        setattr(owner, name, wrapper.__wrapped__)


def _with_descendants(base: type) -> Iterator[type]:
    seen: set[type] = set()
    waiting = [base]
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            waiting += type.__subclasses__(kind)
            yield kind
