"""The interpreter's values beside Python's own: classes and objects in sight, and what it knows nothing of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast

    from ragtrace.inventory.modules import Class, Module


class GiveUpError(BaseException):
    """The run depends on something that is not known. No ``Exception``: the code under trial must not catch it."""


class Opaque:
    """Something out of sight: a client, an environment variable, a library's object."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _unknown(self, *_: Any) -> Any:
        raise GiveUpError(self.name)

    __bool__ = __iter__ = __str__ = __len__ = __contains__ = __hash__ = __eq__ = _unknown
    __lt__ = __gt__ = __le__ = __ge__ = __format__ = __repr__ = __getattr__ = _unknown

    def __deepcopy__(self, memo: Any) -> Opaque:
        return self

    __copy__ = __deepcopy__


class Scope:
    """Variables of a function or class body, inside those of the module."""

    __slots__ = ("first", "function", "module", "names", "owner", "parent", "self_", "shared")

    def __init__(self, module: Module, parent: Scope | None = None, owner: Class | None = None) -> None:
        self.module, self.parent, self.owner = module, parent, owner
        self.names: dict[str, Any] = {}
        self.shared: dict[str, Scope] = {}  # names declared global or nonlocal
        self.function: frozenset[str] = frozenset()  # names that are local to the function
        self.first: Any = None  # the first argument, for super()


class Function:
    """A function in sight."""

    def __init__(self, machine: Any, node: Any, scope: Scope, owner: Class | None, receiver: Any = None) -> None:
        self.machine, self.node, self.scope, self.owner, self.receiver = machine, node, scope, owner, receiver
        self.defaults: tuple[list[Any], list[Any]] = ([], [])
        self.attributes: dict[str, Any] = {}

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.machine.enter(self, args, kw)

    def bind(self, receiver: Any) -> Function:
        bound = copy.copy(self)
        bound.receiver = receiver
        return bound

    def __deepcopy__(self, memo: Any) -> Function:
        return self


class Namespace:
    """A module of the standard library, or one in sight."""

    def __init__(self, dotted: str, module: Module | None = None) -> None:
        self.dotted, self.module = dotted, module

    def __deepcopy__(self, memo: Any) -> Namespace:
        return self


class Deferred:
    """What a framework's module imports: read when it is first asked for."""

    def __init__(self, base: str, name: str, module: Module) -> None:
        self.base, self.name, self.module = base, name, module


class Later:
    """A coroutine: nothing of it happens before it is awaited."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run


class Generator:
    """A generator: nothing of it happens before the first item is asked for, and then all."""

    def __init__(self, run: Callable[[], list[Any]]) -> None:
        self._run, self._items = run, iter(())
        self._begun = False

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        if not self._begun:
            self._begun = True
            self._items = iter(self._run())
        return next(self._items)

    def close(self) -> None:
        self._begun = True


class Property:
    """A property, a static method, a class method."""

    def __init__(self, kind: str, function: Any) -> None:
        self.kind, self.function = kind, function


class FieldSpec:
    """``field(…)``, ``Field(…)``, ``PrivateAttr(…)``."""

    def __init__(self, default: Any = ..., factory: Any = None) -> None:
        self.default, self.factory = default, factory

    def make(self) -> Any:
        if self.factory is not None:
            return self.factory()
        if self.default is ...:
            raise TypeError("a field has no default")
        return copy.deepcopy(self.default)


class Super:
    """``super()``."""

    def __init__(self, owner: Class, receiver: Any) -> None:
        self.owner, self.receiver = owner, receiver


class Instance:
    """An object of a class in sight, or of a framework's class that carries text (``_k`` is its name then)."""

    def __init__(self, machine: Any, kind: Any, attrs: dict[str, Any]) -> None:
        self.__dict__.update(_m=machine, _k=kind, _a=attrs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._m.attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._m.set_attribute(self, name, value)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Instance) or other._k is not self._k or not self._m.is_data(self._k):
            return False
        return bool(self._a == other._a)

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: Any) -> Instance:
        made = Instance(self._m, self._k, {})
        memo[id(self)] = made
        made._a.update(copy.deepcopy(self._a, memo))
        return made

    def __copy__(self) -> Instance:
        return Instance(self._m, self._k, dict(self._a))

    def _special(self, name: str, *args: Any) -> Any:
        return self._m.special(self, name, *args)

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self._m.attribute(self, "__call__")(*args, **kw)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._special("__iter__"))

    def __next__(self) -> Any:
        return self._special("__next__")

    def __getitem__(self, key: Any) -> Any:
        return self._special("__getitem__", key)

    def __contains__(self, key: Any) -> bool:
        return bool(self._special("__contains__", key))

    def __len__(self) -> int:
        return int(self._special("__len__"))

    def __bool__(self) -> bool:
        found = self._m.truth_method(self)
        return True if found is None else bool(found())

    def __str__(self) -> str:
        return str(self._special("__str__"))

    __repr__ = __str__

    def __lt__(self, other: Any) -> bool:
        return bool(self._special("__lt__", other))


class Record:
    """A framework's class that carries text, by its name."""

    def __init__(self, machine: Any, name: str) -> None:
        self.machine, self.name = machine, name

    def __call__(self, *args: Any, **kw: Any) -> Instance:
        return self.machine.record(self, args, kw)  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: Any) -> Record:
        return self


class Klass:
    """A class in sight. ``names`` is its namespace."""

    def __init__(self, machine: Any, cls: Class) -> None:
        self.machine, self.cls = machine, cls
        self.names: dict[str, Any] = {}

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.machine.construct(self, args, kw)

    def __deepcopy__(self, memo: Any) -> Klass:
        return self


class Dispatch:
    """``functools.singledispatch``."""

    def __init__(self, machine: Any, function: Function) -> None:
        self.machine, self.function = machine, function
        self.known: list[tuple[Any, Any]] = []

    def __call__(self, *args: Any, **kw: Any) -> Any:
        for kind, function in reversed(self.known):
            if self.machine.is_instance(args[0], kind):
                return function(*args, **kw)
        return self.function(*args, **kw)

    def register(self, kind: Any, function: Any = None) -> Any:
        if function is not None:
            self.known.append((kind, function))
            return function
        if isinstance(kind, Function):
            told: ast.arg = kind.node.args.args[0]
            self.known.append((self.machine.eval(told.annotation, kind.scope), kind))
            return kind
        return lambda f: self.register(kind, f)


def own(function: Any) -> Any:
    """Marks a function that the interpreter itself has made: it may be given anything."""
    function.own = True
    return function


class Chain:
    """``RunnableLambda``, and several one after the other."""

    own = True

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def __or__(self, other: Any) -> Chain:
        return Chain([*self.steps, *(other.steps if isinstance(other, Chain) else [other])])

    def invoke(self, value: Any, *_: Any, **__: Any) -> Any:
        for step in self.steps:
            value = step.invoke(value) if isinstance(step, Instance) else step(value)
            value = value.run() if isinstance(value, Later) else value
        return value

    def ainvoke(self, value: Any, *_: Any, **__: Any) -> Later:
        return Later(lambda: self.invoke(value))

    def batch(self, values: Any, *_: Any, **__: Any) -> list[Any]:
        return [self.invoke(v) for v in values]
