"""Which of many files can hold a defense, by their text: only those are followed, all are checked for their syntax."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ragtrace.inventory.finding import locate
from ragtrace.inventory.names import Names
from ragtrace.inventory.roots import LANGCHAIN, LLAMA_INDEX

_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\[[^\]]*\])?[ \t]*\(([^:]*)", re.MULTILINE)
_ALIAS = re.compile(
    rb"\b(\w+)[ \t\\\n]+as[ \t\\\n]+(\w+)|^[ \t]*(\w+)[ \t]*(?::[^=\n]+)?=[ \t]*([\w.]+)[ \t]*(?:#.*)?$", re.MULTILINE
)
_NAMED = re.compile(rb"^[ \t]*class[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(rb"\w+")
_FROM = re.compile(rb"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)", re.MULTILINE)
_AS = re.compile(rb"(\w+)(?:[ \t\n]+as[ \t\n]+(\w+))?")
_DEEP = 6  # modules from one class to the framework's
_PARENTS = 8
_ROOTS = {name.encode() for name in (LANGCHAIN | LLAMA_INDEX) - {"Runnable", "RunnableSerializable"}} | {b"Defense"}
_MARKS = re.compile(
    rb"\bobserve\b|\bRunnableLambda\b|@(?:\w+\.)*(?:before|after)_(?:model|agent)\b|@(?:\w+\.)*wrap_(?:model|tool)_call\b"
    rb"|@(?:\w+\.)*dynamic_prompt\b|@(?:\w+\.)*chain\b|\bRunnable(?:Serializable)?\b"
)


@dataclass
class Prefilter:
    """Collects the files; then :meth:`relevant` names those that matter."""

    names: Names
    own: dict[Path, bool] = field(default_factory=dict)
    classes: dict[Path, list[tuple[bytes, frozenset[bytes]]]] = field(default_factory=dict)
    aliases: dict[bytes, set[bytes]] = field(default_factory=dict)
    bases: set[bytes] = field(default_factory=lambda: set(_ROOTS))
    imports: dict[Path, dict[bytes, tuple[bytes, bytes]]] = field(default_factory=dict)
    outside: dict[tuple[Path | None, bytes], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        methods = b"|".join(re.escape(m.encode()) for m in sorted(self.names.methods))
        self._methods = re.compile(rb"\ba?(?:" + methods + rb")\b[ \t\n]*[(=:]")

    def add(self, path: Path, raw: bytes) -> None:
        """Reads what one file says of itself."""
        named = bool(self._methods.search(raw))
        self.own[path] = named or bool(_MARKS.search(raw))
        found = [(m[1], frozenset(_WORD.findall(m[2]))) for m in _CLASS.finditer(raw)]
        if found:
            self.classes[path] = found
            wanted = frozenset[bytes]().union(*(bases for _, bases in found))
            self.imports[path] = {k: v for k, v in _imports(raw).items() if k in wanted}
        if named:
            self.bases |= set(_NAMED.findall(raw))
        for m in _ALIAS.finditer(raw):
            old, new = (m[1], m[2]) if m[1] else (m[4].rpartition(b".")[2], m[3])
            if old != new:
                self.aliases.setdefault(old, set()).add(new)

    def relevant(self, paths: Iterable[Path]) -> list[Path]:
        """Files with a class that may derive from a framework's or ours, with a method of the table, or a mark."""
        known = set(self.bases)
        pending = set(known)
        children: dict[bytes, set[bytes]] = {}
        for found in self.classes.values():
            for name, bases in found:
                for base in bases:
                    children.setdefault(base, set()).add(name)
        while pending:
            name = pending.pop()
            new = (children.get(name, set()) | self.aliases.get(name, set())) - known
            known |= new
            pending |= new
        here = {name for found in self.classes.values() for name, _ in found} - known
        return [p for p in paths if self.own.get(p) or any(bases & known for _, bases in self.classes.get(p, ()))
                or any(self._defends(*self.imports[p][base], p) for _, bases in self.classes.get(p, ())
                       for base in bases - here if base in self.imports[p])]  # fmt: skip

    def _defends(self, origin: bytes, name: bytes, near: Path, depth: int = 0) -> bool:
        """Whether a class that a file imports from elsewhere is a defense, or derives from one."""
        if name in _ROOTS:
            return True
        if origin.partition(b".")[0].decode() in sys.stdlib_module_names:
            return False
        path = _file(origin.decode(), near)
        key = (path, name)
        if key not in self.outside:
            self.outside[key] = False  # as long as it is looked for, in case of a circle
            self.outside[key] = path is not None and depth < _DEEP and self._in_file(path, name, depth)
        return self.outside[key]

    def _in_file(self, path: Path, name: bytes, depth: int) -> bool:
        try:
            raw = path.read_bytes()
        except OSError:
            return False
        imports = _imports(raw)
        classes = {m[1]: _WORD.findall(m[2]) for m in _CLASS.finditer(raw)}
        pending, seen = [name], {name}
        while pending:
            at = pending.pop()
            bases = [b for b in classes.get(at, ()) if b not in seen]
            if set(bases) & _ROOTS or (at in _NAMED.findall(raw) and self._methods.search(raw)):
                return True
            if at in imports and self._defends(*imports[at], path, depth + 1):
                return True
            seen |= set(bases)
            pending += bases
        return False


def _imports(raw: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    """Names that a file takes from other modules: name here → (module, name there)."""
    return {
        m[2] or m[1]: (found[1], m[1]) for found in _FROM.finditer(raw) for m in _AS.finditer(found[2].strip(b"()"))
    }


def _file(dotted: str, near: Path) -> Path | None:
    """The file of a module that a file imports, by its name."""
    parts = [p for p in dotted.split(".") if p]
    level = len(dotted) - len(dotted.lstrip("."))
    found: list[Path] = []
    if level:
        found = [near.parents[level - 1].joinpath(*parts)] if len(near.parents) >= level else []
    elif (located := locate(dotted)) is not None:
        found = [located]
    else:
        found = [p.joinpath(*parts) for p in near.parents[:_PARENTS]]
    for place in found:
        for path in (place, place.with_suffix(".py"), place / "__init__.py"):
            if path.suffix == ".py" and path.is_file():
                return path
    return None
