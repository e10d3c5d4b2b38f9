"""The source witness: what each hook of a defense does with its input, read from the code and never by running it.

Mind the Hook (arXiv 2608.09001), step 1. It works from data flow (does the returned value depend on anything but the
unchanged input?), not from comments: a hook with a TODO that acts is active, and a stub without one is inert.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ragtrace.errors import InputError, UsageError
from ragtrace.inventory import finding, live
from ragtrace.inventory.modules import Library, UnreadableError, parsed, read
from ragtrace.inventory.names import Given, Names, table
from ragtrace.inventory.prefilter import Prefilter
from ragtrace.inventory.reading import Reader
from ragtrace.inventory.targets import Source, sources

Status = Literal["active", "conditional", "stub", "pass_through", "dead", "unknown"]


@dataclass(frozen=True)
class HookFinding:
    """One hook: its status, where it is written, and why in a sentence.

    ``active`` acts; ``conditional`` acts where a flag that a caller or the environment sets, or a test of a whole text
    or document, says so, and else returns its input (to replace parts of a text, or to leave documents out, needs no
    such test: that is ``active``); ``stub`` is a placeholder;
    ``pass_through`` returns its input on every path; ``dead`` would act, but what it makes is lost or never reached;
    ``unknown`` could not be told from the code in sight. ``line`` is the line in ``cell`` where that is a notebook's.
    """

    hook: str
    status: Status
    file: str
    line: int
    reason: str
    cell: int | None = None

    @property
    def where(self) -> str:
        """File and line, for a reader."""
        return f"{self.file}:{self.line}" if self.cell is None else f"{self.file}, cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class DefenseFinding:
    """One defense and the hooks it has. ``name`` is the one it runs under, as in the run-time ledger."""

    defense: str
    name: str
    file: str
    line: int
    kind: str
    hooks: tuple[HookFinding, ...]
    cell: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that ``ragtrace inventory --json`` prints."""
        found = {k: v for k, v in asdict(self).items() if k != "cell" or v is not None}
        return {
            **found,
            "hooks": [{k: v for k, v in asdict(h).items() if k != "cell" or v is not None} for h in self.hooks],
        }


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


def inventory(*targets: Any, names: Given = None) -> Inventory:
    """What the hooks of the defenses in ``targets`` do, by their source.

    :param targets: live defenses, functions, classes and modules; Python files and notebooks; folders of them (hidden
        folders are left out); import paths (``package.module``, ``package.module.Class``, ``module:Class``).
    :param names: method names by which the app's own classes are defenses, with their hooks, or a TOML file of them.
    :raises UsageError: for no target, or something else.
    :raises InputError: if not one file could be read.
    """
    if not targets:
        raise UsageError(
            "inventory() got no target; expected a defense, a class, a .py file, a folder or an import path"
        )
    finding.forget()
    run = _Run(table(names))
    for target in targets:
        run.take(target)
    if not run.read:
        raise InputError(
            f"nothing could be read: {'; '.join(run.warnings[:5])}; expected a .py file of Python 3, a notebook, "
            "a folder with some, or an import path"
        )
    return Inventory(tuple(dict.fromkeys(run.found)), tuple(run.warnings))


class _Run:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.library = Library()
        self.reader = Reader(self.library, names)
        self.found: list[DefenseFinding] = []
        self.warnings: list[str] = []
        self.read = 0

    def take(self, target: Any) -> None:
        if isinstance(target, str | os.PathLike):
            self._files(list(sources(target, self.library, self.warnings.append)))
            return
        path = live.module_file(target)
        if path is not None:
            self._files([Source(path)])
            return
        found = live.findings(target, self.reader)
        if found is None:
            raise UsageError(
                f"inventory() got {type(target).__name__} {target!r:.200}; expected a defense (ours, LangChain's, "
                "LlamaIndex's, or a class with a method of the table of names), a .py file, a folder or an import path"
            )
        self.found += found
        self.read += 1

    def _files(self, wanted: list[Source]) -> None:
        filtered = Prefilter(self.names)
        readable: list[Source] = []
        for source in wanted:
            try:
                if len(wanted) > 1 and source.path.suffix != ".ipynb":
                    raw = read(source.path)
                    parsed(raw)
                    filtered.add(source.path, raw)
                else:
                    self.library.load(source.path)
            except UnreadableError as error:
                self.warnings.append(f"{source.path}: skipped, {error}")
            else:
                readable.append(source)
        self.read += len(readable)
        relevant = set(filtered.relevant(s.path for s in readable)) if len(wanted) > 1 else set()
        for source in readable:
            if source.path in relevant or len(wanted) == 1 or source.path.suffix == ".ipynb":
                self._one(source)

    def _one(self, source: Source) -> None:
        try:
            self.found += self.reader.file(self.library.load(source.path), source.name)
        except UnreadableError as error:
            self.warnings.append(f"{source.path}: skipped, {error}")
        except RecursionError:
            self.warnings.append(f"{source.path}: skipped, nested too deeply to be followed")
