"""Classes in sight and the frameworks' records: how objects of them are made, and what they have."""

from __future__ import annotations

import ast
import builtins
import copy
import enum
import types
from collections import namedtuple
from typing import Any

from ragtrace.inventory.members import is_root
from ragtrace.inventory.modules import Class
from ragtrace.inventory.roots import MODELS, in_framework, is_framework_root
from ragtrace.inventory.trial.records import SAME, Records
from ragtrace.inventory.trial.things import (
    FieldSpec,
    Function,
    GiveUpError,
    Instance,
    Klass,
    Opaque,
    Property,
    Record,
    Scope,
    Super,
    own,
)

_PARTLY = ""  # among an object's attributes: its constructor did not come to its end
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum"})
_ANSWERS = frozenset("get_response aget_response synthesize asynthesize".split())
_DEFAULT = {"on_query": 0, "on_prompt": 0, "on_response": 2, "on_content": 1, "on_retrieval": 1}


class Classes(Records):
    """Attributes of anything are in :class:`~ragtrace.inventory.trial.objects.Objects`."""

    eval: Any
    exec: Any
    call: Any
    replace: Any
    answer: str
    lenient: tuple[Class, ...] = ()  # classes whose objects may be made without all of their fields

    def __init__(self) -> None:
        super().__init__()
        self.klasses: dict[Class, Klass] = {}

    # -- classes ----------------------------------------------------------------------------------

    def klass(self, cls: Class, scope: Scope) -> Klass:
        """A class in sight, its body evaluated once."""
        if cls not in self.klasses:
            made = self.klasses[cls] = Klass(self, cls)
            inner = Scope(cls.module, scope, cls)
            inner.names = made.names
            for statement in cls.node.body:
                self.tolerant(statement, inner)
            hook = self.find([c for c in cls.mro[1:] if isinstance(c, Class)], "__init_subclass__")
            if isinstance(hook, Function):
                self.call(hook.bind(made), [])
        return self.klasses[cls]

    def tolerant(self, statement: ast.stmt, scope: Scope) -> None:
        """A statement of a module or class; what it binds is unknown where it cannot be followed."""
        raise NotImplementedError

    def globals_of(self, module: Any) -> Scope:
        """The names of a module. See :class:`~ragtrace.inventory.trial.statements.Statements`."""
        raise NotImplementedError

    def klass_of(self, cls: Class) -> Klass:
        """The class that the rest of the inventory knows as ``cls``."""
        return self.klass(cls, self.globals_of(cls.module))

    def find(self, mro: list[Class | str], name: str, default: bool = True) -> Any:
        """What the classes of an object hold under a name; ``None`` where it is nothing.

        :raises GiveUpError: where a class out of sight may have it.
        """
        for cls in mro:
            if isinstance(cls, Class):
                names = self.klass_of(cls).names
                if name in names:
                    return names[name]
            elif not self._known_root(cls):
                if name.startswith("__") and name not in ("__init__", "__call__", "__getattr__"):
                    continue
                raise GiveUpError(f"{cls}.{name}")
        return None

    def _known_root(self, name: str) -> bool:
        short = name.rpartition(".")[2]
        plain = (
            is_root(name) or short in MODELS or short in ("NamedTuple", "TypedDict", "Generic", "TransformComponent")
        )
        return plain or hasattr(builtins, name) or is_framework_root(name, self.where)

    where: Any = None

    def of_class(self, obj: Klass, name: str) -> Any:
        """``Class.name``."""
        if name in ("__name__", "__qualname__"):
            return obj.cls.name.rpartition(".")[2]
        if self._roots(obj.cls) & _ENUMS:
            return getattr(self.enumeration(obj), name)
        found = self.find(obj.cls.mro, name)
        if isinstance(found, Property):
            return found.function.bind(obj) if found.kind == "classmethod" else found.function
        if isinstance(found, FieldSpec):
            return found.make()
        if found is None and not any(name in self.klass_of(c).names for c in obj.cls.mro if isinstance(c, Class)):
            raise AttributeError(name)
        return found

    def of_instance(self, obj: Instance, name: str) -> Any:
        """``object.name``."""
        if isinstance(obj._k, str):
            return obj._a[name] if name in obj._a else self._of_record(obj, name)
        if name == "__class__":
            return obj._k
        if name == "__dict__":
            return obj._a
        mro = obj._k.cls.mro
        try:
            found = self.find(mro, name)
        except GiveUpError:
            if name in obj._a:
                return obj._a[name]
            raise
        if isinstance(found, Property) and found.kind == "property":
            return self.call(found.function.bind(obj) if isinstance(found.function, Function) else found.function, [])
        if name in obj._a:
            return obj._a[name]
        if found is None and not any(name in self.klass_of(c).names for c in mro if isinstance(c, Class)):
            if not name.startswith("__") and (fallback := self.find(mro, "__getattr__")) is not None:
                return fallback.bind(obj)(name)
            if any(isinstance(c, str) and not is_root(c) and c != "object" for c in mro) and not name.startswith("__"):
                raise GiveUpError(name)
            if _PARTLY in obj._a and not name.startswith("__"):
                return Opaque(name)
            raise AttributeError(f"{obj._k.cls.name!r} object has no attribute {name!r}")
        return self.bound(found, obj)

    def bound(self, found: Any, obj: Any) -> Any:
        """What a class holds, as an object of it has it."""
        if isinstance(found, Function):
            return found.bind(obj)
        if isinstance(found, Property):
            return found.function.bind(obj._k) if found.kind == "classmethod" else found.function
        if isinstance(found, FieldSpec):
            return found.make()
        if isinstance(found, Instance) and isinstance(found._k, Klass):
            getter = self.find([c for c in found._k.cls.mro if isinstance(c, Class)], "__get__")
            return self.call(getter.bind(found), [obj, obj._k]) if getter is not None else found
        return found

    def of_super(self, proxy: Super, name: str) -> Any:
        """``super().name``."""
        obj = proxy.receiver
        cls = obj.cls if isinstance(obj, Klass) else obj._k.cls
        later = cls.mro[cls.mro.index(proxy.owner) + 1 :] if proxy.owner in cls.mro else []
        for c in later:
            if name in _ANSWERS and (isinstance(c, str) or in_framework(c.module.path)):
                return own(lambda *_, **__: self.answered(name))
            if isinstance(c, Class):
                if (found := self.klass_of(c).names.get(name)) is not None:
                    if isinstance(found, Property) and found.kind == "property":
                        return found.function.bind(obj)()
                    return self.bound(found, obj)
            elif name == "__init__":
                return own(lambda *_, **kw: self._set_all(obj, kw))
            elif name in ("model_post_init", "__post_init__", "__init_subclass__"):
                return own(lambda *_, **__: None)
            elif name in ("parse", "aparse"):
                return own(lambda *args, **__: args[0])
            elif name in _DEFAULT and is_root(c):
                return own(lambda *args, **kw: [*args, *kw.values()][_DEFAULT[name]])
            elif not is_root(c):
                raise GiveUpError(f"super().{name}")
        raise AttributeError(name)

    def answered(self, name: str) -> Any:
        """What a synthesizer of the framework answers."""
        raise NotImplementedError

    def _set_all(self, obj: Instance, kw: dict[str, Any]) -> None:
        obj._a.update(kw)

    def set_on(self, obj: Instance, name: str, value: Any) -> None:
        """``object.name = value``."""
        if isinstance(obj._k, str):
            if obj._k == "NodeWithScore" and name in ("text", "metadata"):
                obj = obj._a["node"]
            if name not in obj._a:
                raise GiveUpError("a new attribute")
            obj._a[name] = value
            return
        found = self.find([c for c in obj._k.cls.mro if isinstance(c, Class)], name)
        if isinstance(found, Property):
            raise GiveUpError("a setter")
        if self.frozen(obj._k):
            raise AttributeError(f"cannot assign to field {name!r}")
        obj._a[name] = value

    def frozen(self, klass: Klass) -> bool:
        """Whether it is a frozen dataclass."""
        return any("frozen=True" in ast.unparse(d) for d in klass.cls.node.decorator_list)

    def is_data(self, kind: Any) -> bool:
        """Whether objects are equal where what they hold is."""
        return isinstance(kind, str) or self._declares(kind.cls)

    def _declares(self, cls: Class) -> bool:
        for c in cls.mro:
            if isinstance(c, Class) and any("dataclass" in ast.unparse(d) for d in c.node.decorator_list):
                return True
        return any(isinstance(c, str) and c.rpartition(".")[2] in MODELS for c in cls.mro)

    # -- making objects ---------------------------------------------------------------------------

    def _roots(self, cls: Class) -> set[str]:
        return {c.rpartition(".")[2] for c in cls.mro if isinstance(c, str)}

    def construct(self, klass: Klass, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        """``Class(…)``."""
        cls = klass.cls
        roots = self._roots(cls)
        if any(isinstance(k := getattr(builtins, r, None), type) and issubclass(k, BaseException) for r in roots):
            return self.exception(klass)(*args)
        if "NamedTuple" in roots:
            return self._named(klass)(*args, **kw)
        if roots & _ENUMS:
            return self.enumeration(klass)(*args)
        if "TypedDict" in roots:
            return dict(*args, **kw)
        if "__new__" in klass.names or roots & {"dict", "list", "str", "int"}:
            raise GiveUpError("__new__")
        made = Instance(self, klass, {})
        init = self.find([c for c in cls.mro if isinstance(c, Class)], "__init__")
        if self._declares(cls) and (init is None or "__init__" not in klass.names):
            self._fill(made, args, kw)
        elif init is not None:
            if any(isinstance(c, str) and c.rpartition(".")[2] in MODELS for c in cls.mro):
                self._fill(made, (), {}, partly=True)
            self._initialised(made, init, args, kw)
        elif args or kw:
            unseen = [c for c in cls.mro if isinstance(c, str) and not is_root(c)]
            raise GiveUpError("arguments") if unseen else TypeError(f"{cls.name}() takes no arguments")
        return made

    def _initialised(self, made: Instance, init: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> None:
        try:
            self.call(init.bind(made), list(args), kw)
        except (Exception, GiveUpError):
            if made._k.cls not in self.lenient:
                raise
            made._a[_PARTLY] = True  # made with arguments that nobody knows

    def _fill(self, made: Instance, args: tuple[Any, ...], kw: dict[str, Any], partly: bool = False) -> None:
        """The fields of a dataclass or model."""
        fields: dict[str, Any] = {}
        for cls in reversed([c for c in made._k.cls.mro if isinstance(c, Class)]):
            names = self.klass_of(cls).names
            for node in cls.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    if "ClassVar" in ast.unparse(node.annotation):
                        continue
                    fields[node.target.id] = names.get(node.target.id, ...)
        given = dict(zip(fields, args, strict=False)) | kw
        for name, default in fields.items():
            if name in given:
                made._a[name] = given[name]
            elif isinstance(default, FieldSpec):
                if default.default is not ... or default.factory is not None:
                    made._a[name] = default.make()
            elif default is not ...:
                made._a[name] = copy.deepcopy(default)
            elif self.lenient and made._k.cls in self.lenient:
                made._a[name] = Opaque(name)
            elif not partly and not name.startswith("_"):
                raise TypeError(f"missing argument {name!r}")
        for hook in ("__post_init__", "model_post_init"):
            found = self.find([c for c in made._k.cls.mro if isinstance(c, Class)], hook)
            if found is not None and not partly:
                self.call(found.bind(made), [None] if hook == "model_post_init" else [], {})

    def exception(self, klass: Klass) -> type[BaseException]:
        """The class of exceptions that a class in sight is."""
        if "" not in klass.names:
            found = [getattr(builtins, c, None) for c in klass.cls.mro if isinstance(c, str)]
            base = next((c for c in found if isinstance(c, type) and issubclass(c, BaseException)), Exception)
            above = next((c for c in klass.cls.mro[1:] if isinstance(c, Class)), None)
            base = self.exception(self.klass_of(above)) if above is not None else base
            klass.names[""] = type(klass.cls.name.rpartition(".")[2], (base,), {})
        return klass.names[""]  # type: ignore[no-any-return]

    def enumeration(self, klass: Klass) -> Any:
        """The enumeration that a class in sight is."""
        if "" not in klass.names:
            roots = self._roots(klass.cls)
            held = {
                k: v for k, v in klass.names.items() if not k.startswith("_") and not isinstance(v, Function | Property)
            }
            kind = str if "str" in roots or "StrEnum" in roots else int if "IntEnum" in roots else None
            klass.names[""] = enum.Enum(klass.cls.name.rpartition(".")[2], held, type=kind)
        return klass.names[""]

    def _named(self, klass: Klass) -> Any:
        if "" not in klass.names:
            fields = [
                n.target.id
                for n in klass.cls.node.body
                if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
            ]
            defaults = [klass.names[f] for f in fields if f in klass.names]
            klass.names[""] = namedtuple(klass.cls.name.rpartition(".")[2], fields, defaults=defaults)
        return klass.names[""]

    # -- protocols --------------------------------------------------------------------------------

    def special(self, obj: Instance, name: str, *args: Any) -> Any:
        """``__len__`` and the like."""
        if isinstance(obj._k, str):
            if name == "__getitem__" and obj._k == "state":
                return obj._a[args[0]]
            raise GiveUpError(name)
        found = self.find(obj._k.cls.mro, name)
        if found is None:
            if name == "__str__":
                raise GiveUpError("the name of an object")
            raise TypeError(f"object has no {name}")
        return self.call(found.bind(obj), list(args), {})

    def truth_method(self, obj: Instance) -> Any:
        """``__bool__`` or ``__len__``, if there is one."""
        if isinstance(obj._k, str):
            return None
        for name in ("__bool__", "__len__"):
            if (found := self.find(obj._k.cls.mro, name)) is not None:
                return found.bind(obj)
        return None

    def is_instance(self, value: Any, kind: Any) -> bool:
        """``isinstance``."""
        if isinstance(kind, tuple):
            return any(self.is_instance(value, k) for k in kind)
        if isinstance(kind, types.UnionType):
            return any(self.is_instance(value, k) for k in kind.__args__)
        if (origin := getattr(kind, "__origin__", None)) is not None and isinstance(origin, type):
            kind = origin
        if isinstance(value, Opaque):
            raise GiveUpError(value.name)
        if isinstance(kind, Record):
            return isinstance(value, Instance) and (value._k == kind.name or value._k in SAME.get(kind.name, ()))
        if isinstance(kind, Klass):
            if isinstance(value, enum.Enum):
                return type(value) is kind.names.get("")
            if isinstance(value, BaseException):
                return isinstance(value, self.exception(kind))
            return isinstance(value, Instance) and isinstance(value._k, Klass) and kind.cls in value._k.cls.mro
        if isinstance(value, Instance) and kind is not object:
            return False
        if isinstance(kind, type):
            return isinstance(value, kind)
        if isinstance(kind, Opaque) and isinstance(value, str | list | dict | tuple | int | float | bool | None):
            return False
        raise GiveUpError("isinstance")
