"""The source witness: what each hook of a defense does with its input, read from the code and never by running it.

Mind the Hook (arXiv 2608.09001), step 1. It works from data flow (does the returned value depend on anything but the
unchanged input?), not from comments: a hook with a TODO that acts is active, and a stub without one is inert.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ragtrace.defense import Defense
from ragtrace.errors import InputError, UsageError
from ragtrace.inventory import live
from ragtrace.inventory.hook import classify, find_hook
from ragtrace.inventory.modules import Class, Library, Module, UnreadableError
from ragtrace.types import HOOKS

Status = Literal["active", "conditional", "stub", "pass_through", "dead", "unknown"]


@dataclass(frozen=True)
class HookFinding:
    """One hook: its status, where it is written, and why in a sentence.

    ``active`` acts; ``conditional`` acts where a test says so and else returns its input; ``stub`` is a placeholder;
    ``pass_through`` returns its input on every path; ``dead`` would act, but what it makes is lost or never reached;
    ``unknown`` could not be told from the code in sight.
    """

    hook: str
    status: Status
    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class DefenseFinding:
    """One defense and the hooks it has. ``name`` is the one it runs under, as in the run-time ledger."""

    defense: str
    name: str
    file: str
    line: int
    kind: str
    hooks: tuple[HookFinding, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that ``ragtrace inventory --json`` prints."""
        return {**asdict(self), "hooks": [asdict(h) for h in self.hooks]}


@dataclass(frozen=True)
class Inventory(Sequence[DefenseFinding]):
    """All defenses found, in the order of files and lines; ``warnings`` names what could not be read, and why."""

    defenses: tuple[DefenseFinding, ...]
    warnings: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.defenses)

    def __getitem__(self, index: Any) -> Any:
        return self.defenses[index]

    def __iter__(self) -> Iterator[DefenseFinding]:
        return iter(self.defenses)

    def to_json(self) -> list[dict[str, Any]]:
        """The list that ``ragtrace inventory --json`` prints."""
        return [d.to_json() for d in self.defenses]


def inventory(*targets: Defense | type[Defense] | str | os.PathLike[str]) -> Inventory:
    """What the hooks of the defenses in ``targets`` do, by their source.

    :param targets: live defenses, defense classes, Python files, or folders of them (hidden folders are left out).
    :raises UsageError: for no target, or something else.
    :raises InputError: if not one file could be read.
    """
    if not targets:
        raise UsageError("inventory() got no target; expected a defense, a defense class, a .py file or a folder")
    library = Library()
    found: list[DefenseFinding] = []
    warnings: list[str] = []
    read = 0
    for target in targets:
        if isinstance(target, Defense) or (isinstance(target, type) and issubclass(target, Defense)):
            found.append(_live(target, library))
            read += 1
        elif isinstance(target, str | os.PathLike):
            for path in _files(Path(target), warnings):
                try:
                    module = library.load(path)
                except UnreadableError as error:
                    warnings.append(f"{path}: skipped, {error}")
                else:
                    read += 1
                    found += (_parsed(cls) for cls in module.classes.values() if _is_defense(cls))
        else:
            raise UsageError(
                f"inventory() got {type(target).__name__} {target!r}; expected a ragtrace.Defense, a class of them, "
                "a .py file or a folder"
            )
    if not read:
        raise InputError(
            f"nothing could be read: {'; '.join(warnings[:5])}; expected a .py file of Python 3, or a folder with some"
        )
    return Inventory(tuple(dict.fromkeys(found)), tuple(warnings))


def _files(path: Path, warnings: list[str]) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        warnings.append(f"{path}: skipped, no such file or folder")
        return []
    found: list[Path] = []
    for folder, folders, files in os.walk(path, onerror=lambda e: warnings.append(f"{e.filename}: skipped, {e}")):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        found += (Path(folder, f) for f in sorted(files) if f.endswith(".py"))
    if not found:
        warnings.append(f"{path}: skipped, no .py file in it")
    return found


def _is_defense(cls: Class) -> bool:
    return any(isinstance(c, str) and (c == "Defense" or c == live.ROOT) for c in cls.mro[1:])


def _parsed(cls: Class) -> DefenseFinding:
    name = cls.methods.get("name")
    label = cls.name.rpartition(".")[2]
    return DefenseFinding(
        defense=f"{_dotted(cls.module)}.{cls.name}",
        name=str(name.value) if isinstance(name, ast.Constant) else label,
        file=str(cls.module.path),
        line=cls.node.lineno,
        kind="ragtrace",
        hooks=tuple(_hook(h, cls.mro) for h in HOOKS if find_hook(h, cls.mro)),
    )


def _hook(hook: str, mro: Sequence[Class | str]) -> HookFinding:
    place = find_hook(hook, mro)
    assert place is not None
    owner, node = place
    status, reason = classify(hook, owner, node, list(mro))
    first = mro[0]
    if isinstance(first, Class) and owner is not first:
        reason = f"inherited from {owner.name}: {reason}"
    return HookFinding(hook, status, str(owner.module.path), node.lineno, reason)


def _live(target: Defense | type[Defense], library: Library) -> DefenseFinding:
    cls = target if isinstance(target, type) else type(target)
    mro = live.order(cls, library)
    first = mro[0]
    file, line = (str(first.module.path), first.node.lineno) if isinstance(first, Class) else (live.file_of(cls), 0)
    hooks: list[HookFinding] = []
    for hook in live.hooks(target):
        problem = live.replaced(target, hook, mro)
        if isinstance(problem, str):
            hooks.append(HookFinding(hook, "unknown", file, line, f"cannot tell: {problem}"))
        elif problem is not None:
            owner, node = problem
            status, reason = classify(hook, owner, node, mro)
            hooks.append(HookFinding(hook, status, str(owner.module.path), node.lineno, reason))
        else:
            hooks.append(_hook(hook, mro))
    return DefenseFinding(f"{cls.__module__}.{cls.__qualname__}", target.name, file, line, "ragtrace", tuple(hooks))


def _dotted(module: Module) -> str:
    """The module's import path, as far as ``__init__.py`` files tell."""
    path = module.path.resolve()
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or path.parent.name
