"""From what the user names to files: paths, folders, import paths, notebooks; nothing is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ragtrace.inventory.finding import locate, spec_of
from ragtrace.inventory.modules import Library, UnreadableError

SUFFIXES = (".py", ".pyw", ".ipynb")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """A file, and the one thing in it that was asked for; "" for all of it."""

    path: Path
    name: str = ""


def sources(target: str | os.PathLike[str], library: Library, warn: Warn) -> Iterator[Source]:
    """The files that a target stands for. What cannot be read is told to ``warn``."""
    text = os.fspath(target)
    if not text:
        warn("'': skipped, no such file or folder")
        return
    path = Path(text)
    try:
        if path.is_file():
            yield Source(path)
            return
        if path.is_dir():
            yield from map(Source, _walk(path, warn))
            return
        broken = path.is_symlink()
    except OSError as error:
        warn(f"{text}: skipped, {error.strerror or error}")
        return
    looks_like_path = broken or "/" in text or os.sep in text or text.endswith(SUFFIXES)
    if looks_like_path or not isinstance(target, str | Path) or not _DOTTED.fullmatch(text):
        warn(f"{text}: skipped, no such file or folder")
        return
    yield from _imported(text, library, warn)


def _imported(text: str, library: Library, warn: Warn) -> Iterator[Source]:
    """``package``, ``package.module``, ``package.module.Class``, ``package.module:Class``."""
    dotted, _, inside = text.partition(":")
    parts, names = dotted.split("."), inside.split(".") if inside else []
    while parts and spec_of(".".join(parts)) is None:
        names.insert(0, parts.pop())
    if not parts:
        top = text.partition(":")[0].partition(".")[0]
        warn(f"{text}: skipped, no such file or folder, and no module {top!r} is found")
        return
    module, place = ".".join(parts), locate(".".join(parts))
    if place is None or (place.is_file() and place.suffix != ".py"):
        kind = "a compiled module" if place and place.suffix in (".so", ".pyd") else "built in or frozen"
        warn(f"{text}: skipped, {module} is {kind} and has no Python source")
        return
    if names:
        yield from _named(text, module, place, ".".join(names), library, warn)
    elif place.is_dir():
        yield from map(Source, _walk(place, warn))
    elif place.name == "__init__.py":
        yield from map(Source, _walk(place.parent, warn))
    else:
        yield Source(place)


def _named(text: str, module: str, place: Path, name: str, library: Library, warn: Warn) -> Iterator[Source]:
    try:
        found = library.load(place / "__init__.py" if place.is_dir() else place)
    except UnreadableError as error:
        warn(f"{text}: skipped, {place}: {error}")
        return
    first, _, rest = name.partition(".")
    at = found.look_up(first)
    if at is None and first in found.imports and (other := library.find(f"{module}.{first}", place)):
        at = other.look_up(rest.partition(".")[0]) if rest else None
    if at is None:
        known = ", ".join(sorted([*found.classes, *found.functions])[:8]) or "nothing"
        warn(f"{text}: skipped, {module} has no {name!r} that can be seen in its source; it has {known}")
        return
    yield Source(at[0].path, f"{at[1]}.{rest}" if rest and at[0] is found else at[1])


def _walk(root: Path, warn: Warn) -> list[Path]:
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(root, onerror=lambda e: warn(f"{e.filename}: skipped, {e.strerror or e}")):
        try:
            status = Path(folder).stat()
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        found += (Path(folder, f) for f in sorted(files) if f.endswith(SUFFIXES) and not f.startswith("."))
    if not found:
        warn(f"{root}: skipped, no .py file or notebook in it")
    return found
