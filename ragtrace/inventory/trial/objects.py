"""Objects: attributes, items, calls, and what a name stands for."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import re
import types
from typing import Any

from ragtrace.inventory.calls import transparent
from ragtrace.inventory.modules import Module
from ragtrace.inventory.roots import FRAMEWORKS, in_framework
from ragtrace.inventory.trial.classes import Classes
from ragtrace.inventory.trial.natives import BUILTINS, LOGS, MODULES, SAFE, known
from ragtrace.inventory.trial.things import (
    Deferred,
    Dispatch,
    Function,
    GiveUpError,
    Instance,
    Klass,
    Namespace,
    Opaque,
    Property,
    Record,
    Scope,
    Super,
)

_LOOKS = frozenset("search match fullmatch sub subn findall finditer replace count find translate startswith endswith "
                   "isdisjoint intersection".split())  # fmt: skip
_DRAINS = (list, tuple, set, frozenset, dict, sorted, sum, max, min)
_PLAIN_KINDS = (str, int, float, bool, bytes, type(None))


class Objects(Classes):
    """Expressions are in :class:`~ragtrace.inventory.trial.expressions.Expressions`."""

    # -- names ------------------------------------------------------------------------------------

    def look_up(self, name: str, scope: Scope) -> Any:
        """What a name stands for."""
        at: Scope | None = scope
        while at is not None:
            if name in at.names:
                return self.held(name, at)
            if name in at.shared:
                at = at.shared[name]
                continue
            if name in at.function:
                raise UnboundLocalError(name)
            at = at.parent
            while at is not None and at.owner is not None and not at.function:
                at = at.parent  # a class body is no scope for its methods
        return self.global_name(name, scope.module)

    def global_name(self, name: str, module: Module) -> Any:
        """A name of a module, or a built-in one."""
        scope = self.globals_of(module)
        if name in scope.names:
            return self.held(name, scope)
        if module.starred and name not in BUILTINS:
            raise GiveUpError(name)
        return self.built_in(name)

    def held(self, name: str, scope: Scope) -> Any:
        """A variable of a scope."""
        found = scope.names[name]
        if isinstance(found, Deferred):
            scope.names[name] = Opaque(name)  # as long as it is looked for, in case of a circle
            found = scope.names[name] = self.imported(found.base, found.name, found.module)
        return found

    def built_in(self, name: str) -> Any:
        """A built-in name."""
        own = getattr(self, f"b_{name}", None)
        if own is not None:
            return own
        if name in BUILTINS:
            return BUILTINS[name]
        if hasattr(builtins, name):
            return Opaque(name)
        if name.startswith("__") and name.endswith("__"):
            return name
        raise NameError(f"name {name!r} is not defined")

    def bind(self, name: str, value: Any, scope: Scope) -> None:
        """Assigns a variable."""
        scope.shared.get(name, scope).names[name] = value

    def imported(self, base: str, name: str | None, module: Module) -> Any:
        """What ``import base`` or ``from base import name`` gives.

        :raises ImportError: if the module cannot be found.
        """
        dotted = f"{base}.{name}" if name and not base.endswith(".") else f"{base}{name or ''}"
        if name is not None and (record := self.record_named(dotted)) is not None:
            return record
        if name == "Defense" and base.startswith("ragtrace"):
            return Opaque(dotted)
        if not base.startswith(FRAMEWORKS) or in_framework(module.path):
            if name is not None and (other := module.library.find(base, module.path)) is not None:
                scope = self.globals_of(other)
                if name in scope.names:
                    return self.held(name, scope)
            if (other := module.library.find(dotted, module.path)) is not None:
                return Namespace(dotted, other)
        found = self.of_library(dotted)
        unseen = isinstance(found, Opaque) and not base.startswith(".")
        if unseen and module.library.missing(base, module.path):
            raise ModuleNotFoundError(f"No module named {base!r}")
        return found

    def of_library(self, dotted: str) -> Any:
        """What a dotted name of the standard library stands for."""
        if dotted in ("dataclasses.replace", "copy.replace"):
            return self.replace
        if dotted == "operator.attrgetter":
            return lambda *names: lambda obj: self._at(obj, names)
        return self.asdict if dotted == "dataclasses.asdict" else known(dotted)

    def _at(self, obj: Any, names: tuple[str, ...]) -> Any:
        found = [functools.reduce(self.attribute, name.split("."), obj) for name in names]
        return found[0] if len(found) == 1 else tuple(found)

    # -- attributes and items ---------------------------------------------------------------------

    def attribute(self, obj: Any, name: str) -> Any:
        """``obj.name``."""
        if isinstance(obj, Instance):
            return self.of_instance(obj, name)
        if isinstance(obj, Super):
            return self.of_super(obj, name)
        if isinstance(obj, Klass):
            return self.of_class(obj, name)
        if isinstance(obj, Namespace):
            if obj.module is not None:
                return self.global_name(name, obj.module)
            return self.of_library(f"{obj.dotted}.{name}")
        if isinstance(obj, Opaque):
            return Opaque(f"{obj.name}.{name}")
        if isinstance(obj, Function | Record):
            return self._of_function(obj, name)
        if name == "__class__":
            return self.b_type(obj)
        if isinstance(obj, type):
            if name == "__name__":
                return obj.__name__
            if name.startswith("_"):
                raise GiveUpError(name)
            return getattr(obj, name)
        if name.startswith("__"):
            raise GiveUpError(name)
        if not isinstance(obj, SAFE) and type(obj).__module__ not in MODULES and type(obj) is not Dispatch:
            raise GiveUpError(f"{type(obj).__name__}.{name}")
        found = getattr(obj, name)
        return functools.partial(self.searched, found) if name in _LOOKS and callable(found) else found

    def _of_function(self, obj: Any, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            return (
                obj.node.name if isinstance(obj, Function) and hasattr(obj.node, "name") else getattr(obj, "name", "")
            )
        if isinstance(obj, Function):
            if name in obj.attributes:
                return obj.attributes[name]
            if name == "__self__":
                return obj.receiver
            if name in ("__doc__", "__wrapped__"):
                return ast.get_docstring(obj.node) if name == "__doc__" else obj
            raise AttributeError(name)
        raise GiveUpError(name)

    def set_attribute(self, obj: Any, name: str, value: Any) -> None:
        """``obj.name = value``."""
        if isinstance(obj, Instance):
            self.set_on(obj, name, value)
        elif isinstance(obj, Klass):
            obj.names[name] = value
        elif isinstance(obj, Function):
            obj.attributes[name] = value
        elif isinstance(obj, Opaque):
            return
        elif isinstance(obj, types.SimpleNamespace | BaseException):
            setattr(obj, name, value)
        elif isinstance(obj, Namespace):
            raise GiveUpError("a module is changed")
        else:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")

    def item(self, obj: Any, key: Any) -> Any:
        """``obj[key]``."""
        if isinstance(obj, Opaque):
            return Opaque(f"{obj.name}[…]")
        if isinstance(obj, Klass) or obj is object:
            return obj  # Generic[T]
        if isinstance(key, Opaque) and isinstance(obj, dict | list | tuple):
            return Opaque(f"[{key.name}]")
        return obj[key]

    def set_item(self, obj: Any, key: Any, value: Any) -> None:
        """``obj[key] = value``."""
        if isinstance(obj, Instance):
            self.special(obj, "__setitem__", key, value)
        elif isinstance(obj, Opaque):
            raise GiveUpError(obj.name)
        else:
            obj[key] = value

    def plain(self, value: Any) -> dict[Any, Any]:
        """What ``**value`` gives."""
        if isinstance(value, Instance | Opaque):
            raise GiveUpError("a spread object")
        return dict(value)

    # -- calls ------------------------------------------------------------------------------------

    def call(
        self, function: Any, args: list[Any], given: dict[str, Any] | None = None, node: ast.AST | None = None
    ) -> Any:
        """Calls anything."""
        kw = given or {}
        self.tick()
        self.line = getattr(node, "lineno", self.line)
        if isinstance(function, Opaque):
            return self._unseen(function, args, kw)
        if isinstance(function, Function | Klass | Record | Instance | Dispatch) or getattr(function, "own", False):
            return function(*args, **kw)
        if function is dict and len(args) == 1 and isinstance(args[0], Instance):
            raise GiveUpError("dict() of an object")
        if any(isinstance(a, Opaque) for a in (*args, *kw.values())) and not isinstance(function, types.MethodType):
            return self._given_unseen(function, args, kw)
        self.checked(getattr(function, "func", function), tuple(args), kw)
        if function in _DRAINS or getattr(function, "__name__", "") == "join":
            self.ended += [a for a in args if hasattr(a, "__next__")]
        if getattr(function, "__module__", None) == "re" and len(args) > 1 and isinstance(args[0], str | re.Pattern):
            return self.searched_by_re(function, args, kw)
        return function(*args, **kw)

    def _unseen(self, function: Opaque, args: list[Any], kw: dict[str, Any]) -> Any:
        name = function.name.rpartition(".")[2]
        if name in LOGS:
            return None
        if any(self._could_change(a) for a in (*args, *kw.values())):
            raise GiveUpError(function.name)
        return Opaque(f"{function.name}()")

    def _could_change(self, value: Any) -> bool:
        if isinstance(value, _PLAIN_KINDS):
            return False
        if isinstance(value, tuple | frozenset):
            return any(map(self._could_change, value))
        return not isinstance(value, Opaque | Klass | Record | re.Pattern | type)

    def _given_unseen(self, function: Any, args: list[Any], kw: dict[str, Any]) -> Any:
        if isinstance(getattr(function, "__self__", None), list | dict | set):
            return function(*args, **kw)
        if function in (list, tuple, set, dict) or getattr(function, "own", False):
            raise GiveUpError("something out of sight")
        if isinstance(function, type) and function in (str, int, float, bool):
            return Opaque(function.__name__)
        raise GiveUpError("something out of sight")

    # -- built-in functions with a meaning of their own -------------------------------------------

    def b_print(self, *_: Any, **__: Any) -> None:
        """Prints nothing."""

    def b_isinstance(self, value: Any, kind: Any) -> bool:
        """``isinstance``."""
        return self.is_instance(value, kind)

    def b_callable(self, value: Any) -> bool:
        """``callable``."""
        if isinstance(value, Opaque):
            raise GiveUpError(value.name)
        return self.has(value, "__call__") if isinstance(value, Instance) else callable(value)

    def b_issubclass(self, one: Any, other: Any) -> bool:
        """``issubclass``."""
        if isinstance(one, type) and isinstance(other, type):
            return issubclass(one, other)
        raise GiveUpError("issubclass")

    def b_type(self, value: Any, *rest: Any) -> Any:
        """``type``."""
        if rest or isinstance(value, Opaque):
            raise GiveUpError("type()")
        if isinstance(value, Instance):
            return value._k if isinstance(value._k, Klass) else Record(self, value._k)
        return type(value)

    def b_getattr(self, obj: Any, name: str, *default: Any) -> Any:
        """``getattr``."""
        try:
            return self.attribute(obj, name)
        except AttributeError:
            if default:
                return default[0]
            raise

    def b_hasattr(self, obj: Any, name: str) -> bool:
        """``hasattr``."""
        return self.has(obj, name)

    def has(self, obj: Any, name: str) -> bool:
        """Whether there is such an attribute."""
        if isinstance(obj, Opaque):
            raise GiveUpError(obj.name)
        try:
            self.attribute(obj, name)
        except AttributeError:
            return False
        return True

    def b_setattr(self, obj: Any, name: str, value: Any) -> None:
        """``setattr``."""
        self.set_attribute(obj, name, value)

    def b_vars(self, obj: Any) -> dict[str, Any]:
        """``vars``."""
        if not isinstance(obj, Instance):
            raise GiveUpError("vars()")
        return obj._a  # type: ignore[no-any-return]

    def b_property(self, function: Any) -> Property:
        """``property``."""
        return Property("property", function)

    def b_staticmethod(self, function: Any) -> Property:
        """``staticmethod``."""
        return Property("staticmethod", function)

    def b_classmethod(self, function: Any) -> Property:
        """``classmethod``."""
        return Property("classmethod", function)

    def b_range(self, *bounds: int) -> range:
        """``range``."""
        made = range(*bounds)
        if len(made) > 100_000:
            raise GiveUpError("a long range")
        return made

    def b_pow(self, *_: Any) -> Any:
        """``pow``."""
        raise GiveUpError("pow")

    def decorated(self, made: Any, decorators: list[ast.expr], scope: Scope) -> Any:
        """A function or class, after its decorators."""
        for decorator in reversed(decorators):
            full = scope.module.full_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            last = full.rpartition(".")[2]
            if last in ("setter", "deleter", "getter"):
                return self.look_up(full.partition(".")[0], scope)
            if last in ("contextmanager", "asynccontextmanager"):
                return Opaque("a context manager")
            if last == "singledispatch":
                made = Dispatch(self, made)
            elif last == "register" and not transparent(decorator, scope.module):
                made = self.call(self.eval(decorator, scope), [made], {})
            elif last == "dataclass" or (
                transparent(decorator, scope.module) and last not in ("staticmethod", "classmethod", "wraps")
            ):
                continue
            else:
                made = self.call(self.eval(decorator, scope), [made], {})
        return made

    def replace(self, obj: Any, **changes: Any) -> Any:
        """``dataclasses.replace``."""
        if not isinstance(obj, Instance):
            raise TypeError("replace() should be called on dataclass instances")
        made = copy.copy(obj)
        if unknown := changes.keys() - made._a.keys():
            raise TypeError(f"unexpected keyword arguments {sorted(unknown)}")
        made._a.update(changes)
        return made

    def asdict(self, obj: Any) -> Any:
        """``dataclasses.asdict``."""
        if isinstance(obj, Instance):
            return {k: self.asdict(v) for k, v in obj._a.items()}
        if isinstance(obj, list | tuple):
            return type(obj)(map(self.asdict, obj))
        return copy.deepcopy(obj)
