"""The findings of one parsed file, class or function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ragtrace.inventory.entries import Entry, Kind, defined, functions, kind_of, variants
from ragtrace.inventory.hook import Verdict, examine
from ragtrace.inventory.modules import Class, FunctionNode, Library, Module
from ragtrace.inventory.names import Names
from ragtrace.inventory.roots import in_framework
from ragtrace.inventory.values import Value
from ragtrace.types import HOOKS

if TYPE_CHECKING:
    from ragtrace.inventory.source import DefenseFinding, HookFinding

_LINE = re.compile(r"\bline (\d+)")
_RANK = ("active", "conditional", "unknown", "dead", "stub", "pass_through")


class Reader:
    """Reads defenses from modules; one for each inventory, so that nothing is parsed twice."""

    def __init__(self, library: Library, names: Names) -> None:
        self.library = library
        self.names = names

    def file(self, module: Module, only: str = "") -> list[DefenseFinding]:
        """All defenses of a file, or the one of that name."""
        found: list[tuple[int, DefenseFinding]] = []
        for cls in module.classes.values():
            if only and cls.name != only:
                continue
            kind = kind_of(cls, self.names)
            if kind is not None and (finding := self.cls(cls, *kind)) is not None:
                found.append((cls.node.lineno, finding))
        for label, node, function_kind, entry, name in functions(module, self.names):
            if not only or label == only:
                found.append((node.lineno, self.function(module, label, node, function_kind, entry, name)))
        return [finding for _, finding in sorted(found, key=lambda pair: pair[0])]

    def cls(self, cls: Class, kind: Kind, entries: Iterable[Entry]) -> DefenseFinding | None:
        """A class that is a defense."""
        hooks = self.hooks(cls.mro, kind, entries)
        if not hooks:
            return None
        own = cls.methods.get("name") if kind == "ragtrace" else None
        label = cls.name.rpartition(".")[2]
        return self.finding(
            cls.module,
            f"{dotted(cls.module)}.{cls.name}",
            str(own.value) if isinstance(own, ast.Constant) else label,
            cls.node.lineno,
            kind,
            hooks,
        )

    def function(
        self, module: Module, label: str, node: FunctionNode, kind: Kind, entry: Entry, name: str
    ) -> DefenseFinding:
        """A function that is marked as a defense."""
        owner = module.classes.get(label.rpartition(".")[0])
        mro: list[Class | str] = list(owner.mro) if owner else []
        place = (owner, node, module)
        hooks = [self.at(hook, verdict, module, node) for hook, verdict in examine(entry, place[0], node, module, mro)]
        return self.finding(module, f"{dotted(module)}.{label}", name, node.lineno, kind, hooks)

    def hooks(
        self, mro: list[Class | str], kind: Kind, entries: Iterable[Entry], flags: Mapping[str, Value] | None = None
    ) -> list[HookFinding]:
        """The hooks of a class, each once: several methods at one hook are one."""
        found: dict[str, list[HookFinding]] = {}
        for entry in entries:
            names: tuple[str, ...] = (entry.method,) if entry.shape == "ragtrace" else variants(entry.method)
            both: dict[str, list[HookFinding]] = {}
            for name in names:
                place = defined(name, mro)
                if place is None:
                    continue
                owner, node = place
                for hook, (status, reason) in examine(entry, owner, node, owner.module, mro, flags):
                    if isinstance(mro[0], Class) and owner is not mro[0]:
                        reason = f"inherited from {owner.name}: {reason}"
                    both.setdefault(hook, []).append(self.at(hook, (status, reason), owner.module, node))
            if entry.hook == "documents" and len(both) > 1:
                acting = next((h for h, fs in both.items() if any(acts(f) for f in fs)), next(iter(both)))
                both = {acting: [replace(f, hook=acting) for fs in both.values() for f in fs]}
            for hook, pair in both.items():
                if len(pair) == 2 and in_framework(pair[1].file) and not in_framework(pair[0].file):
                    note = f"; but `{names[1]}` is the framework's own" if acts(pair[0]) else ""
                    pair = [replace(pair[0], reason=pair[0].reason + note)]
                found.setdefault(hook, []).append(_paired(pair, names))
        if kind == "llama_index":
            found = {h: f for h, f in found.items() if not _is_frameworks_own(f)}
        return self.merged([f for findings in found.values() for f in findings])

    def merged(self, findings: Iterable[HookFinding]) -> list[HookFinding]:
        """One finding for each hook, in the pipeline's order: it does what the method does that does most."""
        listed = list(findings)
        found = {h: [f for f in listed if f.hook == h] for h in HOOKS}
        return [min(fs, key=lambda f: _RANK.index(f.status)) for fs in found.values() if fs]

    def at(self, hook: str, verdict: Verdict, module: Module, node: FunctionNode | ast.expr) -> HookFinding:
        """A finding with its place."""
        from ragtrace.inventory.source import HookFinding

        status, reason = verdict
        if module.cells:
            cell, line = module.cells[node.lineno - 1]
            said = _LINE.sub(lambda m: "cell {}, line {}".format(*module.cells[int(m[1]) - 1]), reason)
            return HookFinding(hook, status, str(module.path), line, said, cell)
        return HookFinding(hook, status, str(module.path), node.lineno, reason)

    def finding(
        self, module: Module, defense: str, name: str, line: int, kind: Kind, hooks: list[HookFinding]
    ) -> DefenseFinding:
        """A defense with its place."""
        from ragtrace.inventory.source import DefenseFinding

        cell = None
        if module.cells:
            cell, line = module.cells[line - 1]
        return DefenseFinding(defense, name, str(module.path), line, kind, tuple(hooks), cell)


def acts(finding: HookFinding) -> bool:
    """Whether the hook does something."""
    return finding.status in ("active", "conditional")


def _paired(pair: list[HookFinding], names: tuple[str, ...]) -> HookFinding:
    """The sync and the async form of one method: where only one acts, how the pipeline is called decides."""
    if len(pair) == 1:
        return pair[0]
    one, two = pair[:2]
    inert = ("stub", "pass_through", "dead")
    for a, b, name, other in ((one, two, names[0], names[-1]), (two, one, names[-1], names[0])):
        if acts(a) and b.status == "stub" and "NotImplementedError" in b.reason:
            return a  # whoever calls that one is told
        if acts(a) and b.status in inert:
            reason = f"acts only if `{name}` is called ({a.reason}); `{other}` {b.reason} ({b.status}, line {b.line})"
            return replace(a, status="conditional", reason=reason)
    return min(pair, key=lambda f: _RANK.index(f.status)) if one.status == "unknown" else one


def _is_frameworks_own(findings: list[HookFinding]) -> bool:
    """A synthesizer of LlamaIndex itself, which hands on what the model said: no defense."""
    return all(
        f.hook == "response" and "/llama_index/core/response_synthesizers/" in f.file.replace("\\", "/")
        for f in findings
    )


def dotted(module: Module) -> str:
    """The module's import path, as far as ``__init__.py`` files tell."""
    path = module.path.absolute()
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    installed = any(p.name in ("site-packages", "dist-packages") for p in folder.parents)
    while (folder / "__init__.py").is_file() or (installed and folder.name not in ("site-packages", "dist-packages")):
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or path.parent.name
