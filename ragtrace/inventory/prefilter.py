"""Which of many files can hold a defense, by their text: only those are followed, all are checked for their syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ragtrace.inventory.names import Names
from ragtrace.inventory.roots import LANGCHAIN, LLAMA_INDEX

_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\[[^\]]*\])?[ \t]*\(([^:]*)", re.MULTILINE)
_ALIAS = re.compile(
    rb"\b(\w+)[ \t\\\n]+as[ \t\\\n]+(\w+)|^[ \t]*(\w+)[ \t]*(?::[^=\n]+)?=[ \t]*([\w.]+)[ \t]*(?:#.*)?$", re.MULTILINE
)
_NAMED = re.compile(rb"^[ \t]*class[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(rb"\w+")
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
        return [p for p in paths if self.own.get(p) or any(bases & known for _, bases in self.classes.get(p, ()))]
