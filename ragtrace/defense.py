"""Defenses: what one is, how it is switched on, and how the app's own is declared.

A defense is anything that means to protect data. Ours subclass :class:`Defense` and override the
hooks they use; what is not overridden is absent, not a stub. The app's own functions are marked with
``ragtrace.observe`` (see ``record.observe``), and those out of reach are named with :func:`declare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import Any, TypeVar, get_args

from ragtrace.errors import UsageError
from ragtrace.types import HOOKS, Document, Hook, Message, OnError

F = TypeVar("F", bound=Callable[..., Any])


def _absent(method: F) -> F:
    """Marks the base class's hooks: a subclass that keeps one has no such hook."""
    method.__ragtrace_absent__ = True  # type: ignore[attr-defined]
    return method


class Defense:
    """Subclass it and override the hooks you use. A hook may be ``async def`` where the path is async.

    ``name`` defaults to the class's name. ``on_error`` says what happens when a hook raises:
    ``"open"`` (the app goes on with the value from before the hook), ``"raise"``, or ``"block"``
    (the stage's text is withheld). Each of them is recorded as an effect with status ``error``.
    A defense may keep state across calls; it must then be safe to call from several threads.
    """

    name: str
    on_error: OnError = "open"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    @_absent
    def on_query(self, query: str) -> str:
        """Rewrites the query before retrieval."""
        return query

    @_absent
    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """Changes scores, order or top-k; may see more documents than the app asked for."""
        return documents

    @_absent
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        """Rewrites the text of what was retrieved."""
        return documents

    @_absent
    def on_prompt(self, messages: list[Message]) -> list[Message]:
        """Changes the messages given to the model."""
        return messages

    @_absent
    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Changes the generated text."""
        return response

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks this defense has, in the pipeline's order."""
        return tuple(h for h in HOOKS if not hasattr(getattr(self, f"on_{h}"), "__ragtrace_absent__"))

    def constants(self) -> frozenset[str]:
        """Strings this defense may write by itself (placeholders, substitutes); canaries are minted outside them."""
        return frozenset()


_active: ContextVar[tuple[Defense, ...]] = ContextVar("ragtrace_defenses", default=())


def active() -> tuple[Defense, ...]:
    """The defenses that :func:`defend` has switched on here, outermost first."""
    return _active.get()


@contextmanager
def defend(*defenses: Defense) -> Iterator[None]:
    """Switches defenses on, in this order, for the pipeline calls made inside (threads and tasks included)."""
    token = _active.set(_active.get() + checked(defenses, "defend()"))
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator of the app's, closed in another context
            _active.reset(token)


def checked(defenses: Any, where: str) -> tuple[Defense, ...]:
    """``defenses`` as a tuple.

    :raises UsageError: for anything in it that is not a :class:`Defense` instance.
    """
    wanted = tuple(defenses) if isinstance(defenses, Iterable) else (defenses,)
    for defense in wanted:
        if not isinstance(defense, Defense):
            found = f"the class {defense.__name__}" if isinstance(defense, type) else repr(type(defense).__name__)
            raise UsageError(
                f"{where} got {found}, expected ragtrace.Defense instances; "
                "mark the app's own functions with @ragtrace.observe instead"
            )
        if defense.on_error not in get_args(OnError):
            expected = ", ".join(get_args(OnError))
            raise UsageError(f"defense {defense.name!r}: on_error={defense.on_error!r}; expected one of {expected}")
    return wanted


_declared: dict[str, tuple[Hook, ...]] = {}
_declared_lock = Lock()


def declare(name: str, hooks: Iterable[Hook]) -> None:
    """Declares a defense that lives elsewhere, so that ``coverage`` can say when it did not run.

    :param name: the name by which the defense's effects are recorded.
    :param hooks: where it claims to act; declared again, hooks are added.
    :raises UsageError: for a hook that is not one of ``query, retrieval, content, prompt, response``.
    """
    wanted = tuple(hooks)
    for hook in wanted:
        check_hook(hook)
    with _declared_lock:
        merged = set(_declared.get(name, ())) | set(wanted)
        _declared[name] = tuple(h for h in HOOKS if h in merged)


def declared() -> dict[str, tuple[Hook, ...]]:
    """Everything declared in this process so far: name → hooks."""
    return _declared.copy()


def check_hook(hook: str) -> None:
    """Raises a :class:`UsageError` unless ``hook`` is one of the five."""
    if hook not in HOOKS:
        raise UsageError(f"unknown hook {hook!r}; expected one of {', '.join(HOOKS)}")
