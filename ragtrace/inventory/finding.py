"""Where the import system would find a module, without importing anything."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


def forget() -> None:
    """Forgets what was found: files may have come or gone, or the current folder changed."""
    spec_of.cache_clear()
    findable.cache_clear()
    importlib.invalidate_caches()


@lru_cache(maxsize=4096)
def spec_of(dotted: str) -> ModuleSpec | None:
    """The spec of a module, its parents found and not imported; the current folder comes first."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = dotted.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        spec = _find(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else []
    return spec


def _find(name: str, path: list[str] | None) -> ModuleSpec | None:
    try:
        here = PathFinder.find_spec(name, [str(Path.cwd())] if path is None else path)
        if here is not None and (here.origin is not None or path is not None):
            return here
        for finder in sys.meta_path:
            found = finder.find_spec(name, path)
            if found is not None:
                return found
    except KeyError:  # in a namespace package that nobody has imported
        return PathFinder.find_spec(name.rpartition(".")[2], path)
    except (ImportError, ValueError, AttributeError, OSError):
        return None
    return None


@lru_cache(maxsize=1024)
def findable(top: str) -> bool:
    """Whether ``import top`` would find something."""
    return top in sys.builtin_module_names or spec_of(top) is not None


def locate(dotted: str) -> Path | None:
    """The file of a module or package; a package without one is its folder. ``None`` for what has no file."""
    spec = spec_of(dotted)
    if spec is None:
        return None
    if spec.has_location and spec.origin:
        return Path(spec.origin).absolute()
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]).absolute() if places else None
