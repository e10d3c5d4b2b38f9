"""How a defense gets into the battery's child: by import path, by file, or pickled."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import isroutine
from pathlib import Path
from typing import Any

from ragtrace.errors import UsageError


@dataclass(frozen=True)
class Target:
    """Where the child finds it. ``whole``: all defenses of the module or file."""

    label: str
    module: str | None = None
    file: str | None = None
    attribute: str = ""
    pickle: bytes | None = None
    main: bool = False
    paths: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it names no attribute."""
        return not self.attribute and self.pickle is None

    def job(self, names: Mapping[str, str], skip: Iterable[str] = (), lists: bool = False) -> dict[str, Any]:
        """What the child is told."""
        return {
            "module": self.module, "file": self.file, "attribute": self.attribute, "main": self.main,
            "pickle": None if self.pickle is None else self.pickle.hex(), "names": dict(names), "skip": list(skip),
            "list": lists, "paths": [*self.paths, *(p for p in sys.path if p), str(Path.cwd())],
        }  # fmt: skip


def target_of(target: Any) -> Target:
    """``target`` as the child can find it.

    :raises UsageError: if it cannot: a class of a function's or a notebook's, an object that cannot be pickled.
    """
    if isinstance(target, str | Path):
        return _named(str(target))
    if isinstance(target, type) or isroutine(target):
        return _imported(target)
    try:
        pickled = pickle.dumps(target)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(
            f"unknown: the instance of {type(target).__name__} cannot be pickled ({type(error).__name__}: {first}), as "
            "where it holds a client or a model; give module:function of a function without arguments that makes one"
        ) from error
    name = getattr(target, "name", None)
    label = name if isinstance(name, str) and name else type(target).__name__
    where = _main(label) if b"__main__" in pickled else None
    return Target(label, file=where, pickle=pickled, main=where is not None)


def _imported(target: Any) -> Target:
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "")
    label = f"{module}:{name}"
    if not module or not name or "<" in name:
        raise UsageError(
            f"unknown: {label} cannot be imported by that name, so no process of its own can load it; "
            "define it at the top level of a module"
        )
    if module == "__main__":
        return Target(label, file=_main(label), attribute=name, main=True)
    return Target(label, module=module, attribute=name)


def _main(label: str) -> str:
    file = getattr(sys.modules["__main__"], "__file__", None)
    if not file or not Path(file).is_file():
        raise UsageError(f"unknown: {label} was defined at a prompt or in a notebook; put it into a file")
    return str(Path(file).resolve())


def _named(text: str) -> Target:
    place, colon, attribute = text.rpartition(":")
    if not colon or text.endswith(".py"):  # the colon may be that of a drive
        place, attribute = text, ""
    if not place.endswith(".py"):
        if not all(part.isidentifier() for part in place.split(".")):
            raise UsageError(f"{text!r} is no target; expected module:attribute, file.py:attribute, module or file.py")
        return Target(text, module=place, attribute=attribute, paths=(str(Path.cwd()),))
    path = Path(place).resolve()
    if not path.is_file():
        raise UsageError(f"{place}: no such file; expected module:attribute or file.py:attribute")
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) > 1:  # of a package: its relative imports need its name
        return Target(text, module=".".join(parts), attribute=attribute, paths=(str(folder),))
    return Target(text, file=str(path), attribute=attribute)
