"""Source files as trees: what a name in one of them means, followed through imports, never by running them."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ragtrace.inventory.finding import findable, locate
from ragtrace.inventory.notebooks import code_of
from ragtrace.inventory.roots import FRAMEWORKS, is_framework_root

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_MAX_BYTES = 4_000_000  # above it, a generated file that takes minutes
_MAX_NOTEBOOK = 50_000_000  # most of it is pictures
_DEFENSE = Path(__file__).resolve().parents[1] / "defense.py"


_FILLS = frozenset("append add extend update insert setdefault appendleft __setitem__".split())


class UnreadableError(Exception):
    """A file that is no Python source; the text says why."""


@dataclass(eq=False)
class Module:
    """One parsed file."""

    path: Path
    tree: ast.Module
    lines: list[str]
    library: Library
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    optional: dict[str, tuple[str, ast.expr | FunctionNode]] = field(default_factory=dict)
    """Names that an import may fail to give: the module that is missing then, and what stands in its place."""
    stored: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()
    """Names of variables and attributes that hold a container to which something is added."""
    overwritten: frozenset[str] = frozenset()
    """Attributes, by their source, that something is assigned to."""
    starred: bool = False
    cells: list[tuple[int, int]] = field(default_factory=list)
    """Of a notebook: for each line, the cell it is in, and its line there."""

    def __post_init__(self) -> None:
        assigned: dict[str, int] = {}
        filled: set[str] = set()
        overwritten: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                self.imports |= {a.asname or a.name: (base, a.name) for a in node.names}
            elif isinstance(node, ast.Import):
                for a in node.names:
                    name = a.asname or a.name.partition(".")[0]
                    self.imports[name] = (a.name if a.asname else name, None)
            elif isinstance(node, ast.Global):
                assigned |= dict.fromkeys(node.names, 2)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
                filled.add(_last(node.func.value))
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                filled.add(_last(node.value))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                overwritten.add(ast.unparse(node))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assigned[node.id] = assigned.get(node.id, 0) + 1
            elif isinstance(node, ast.arg):
                assigned.setdefault(node.arg, 0)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.ClassDef | FunctionNode):
                assigned.setdefault(node.name or "", 0)
        self.starred = any(name == "*" for name in self.imports)
        self.overwritten = frozenset(overwritten)
        self.filled = frozenset(filled)
        self.stored = frozenset(assigned) | frozenset(self.imports)
        self._collect(self.tree.body, "", assigned)

    def _collect(self, body: list[ast.stmt], prefix: str, assigned: dict[str, int]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.classes[prefix + node.name] = Class(prefix + node.name, node, self)
                self._collect(node.body, f"{prefix}{node.name}.", assigned)
            elif isinstance(node, FunctionNode):
                if not prefix:
                    self.functions[node.name] = node
                self._collect(node.body, f"{prefix}{node.name}.<locals>.", assigned)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and not prefix and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and assigned.get(target.id) == 1:
                        self.constants[target.id] = node.value
            elif isinstance(node, ast.If | ast.Try | ast.With):
                if isinstance(node, ast.Try) and not prefix:
                    self._collect_optional(node)
                for part in ("body", "orelse", "finalbody"):
                    self._collect(getattr(node, part, []), prefix, assigned)
                for handler in getattr(node, "handlers", []):
                    self._collect(handler.body, prefix, assigned)

    def _collect_optional(self, node: ast.Try) -> None:
        """``try: import x`` and what its handler puts in place of what that would have given."""
        missing = needed(node)
        if missing is None:
            return
        for handler in node.handlers:
            for statement in handler.body:
                if isinstance(statement, FunctionNode):
                    self.optional[statement.name] = missing, statement
                elif isinstance(statement, ast.Assign):
                    for target in statement.targets:
                        if isinstance(target, ast.Name):
                            self.optional[target.id] = missing, statement.value

    def look_up(self, name: str, seen: frozenset[tuple[Path, str]] = frozenset()) -> tuple[Module, str] | None:
        """The module where ``name`` is defined, and its name there; followed through imports."""
        if name in self.optional:
            return self, name
        if name in self.functions or name in self.classes or name in self.constants:
            return self, name
        if (self.path, name) in seen or name not in self.imports:
            return None
        origin, original = self.imports[name]
        if original is None:
            return None
        other = self.library.find(origin, self.path)
        return other.look_up(original, seen | {(self.path, name)}) if other else None

    def full_name(self, node: ast.expr) -> str:
        """The dotted name of an expression, as far as imports tell: ``re.sub`` for ``from re import sub; sub``."""
        if isinstance(node, ast.Name):
            base, name = self.imports.get(node.id, ("", None))
            return f"{base}.{name}" if name else base or node.id
        if isinstance(node, ast.Attribute):
            inner = self.full_name(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        return ""


def needed(node: ast.Try | ast.TryStar) -> str | None:
    """The module whose import the ``try`` is there for; ``None`` where it is there for something else."""
    caught = {name for h in node.handlers for name in _caught(h.type)}
    if not caught & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", ""}:
        return None
    for statement in node.body:
        if isinstance(statement, ast.Import):
            return statement.names[0].name
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            return statement.module
    return None


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _caught(kind: ast.expr | None) -> list[str]:
    if kind is None:
        return [""]
    return [ast.unparse(k) for k in kind.elts] if isinstance(kind, ast.Tuple) else [ast.unparse(kind)]


@dataclass(eq=False)
class Class:
    """A class in a file."""

    name: str
    node: ast.ClassDef
    module: Module

    @cached_property
    def methods(self) -> dict[str, ast.expr | FunctionNode]:
        """Functions and plain assignments of the class body; the last one of a name counts."""
        found: dict[str, ast.expr | FunctionNode] = {}
        for node in self.node.body:
            if isinstance(node, FunctionNode):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                found |= {t.id: node.value for t in node.targets if isinstance(t, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
                found[node.target.id] = node.value
        return found

    @cached_property
    def bases(self) -> list[Class | str]:
        """Base classes: resolved, or their dotted name where their source is not in sight."""
        found: list[Class | str] = []
        for base in self.node.bases:
            expr = base.value if isinstance(base, ast.Subscript) else base
            full = self.module.full_name(expr)
            if is_framework_root(full, self.module.path):
                found.append(full)
                continue
            resolved = self._resolve(expr)
            if resolved and resolved.name == "Defense" and resolved.module.path.resolve() == _DEFENSE:
                found.append("ragtrace.Defense")  # its hooks are absent, not pass-throughs
                continue
            found.append(resolved or self.module.full_name(expr) or ast.unparse(expr))
        return found

    def _resolve(self, expr: ast.expr) -> Class | None:
        if isinstance(expr, ast.Name):
            scope = self.name.rpartition(".")[0]
            while scope:  # a class beside this one, inside a function or class
                if local := self.module.classes.get(f"{scope}.{expr.id}"):
                    return local if local is not self else None
                scope = scope.rpartition(".")[0]
            place = self.module.look_up(expr.id)
            return place[0].classes.get(place[1]) if place else None
        module, _, name = self.module.full_name(expr).rpartition(".")
        other = self.module.library.find(module, self.module.path) if module else None
        place = other.look_up(name) if other else None
        return place[0].classes.get(place[1]) if place else None

    @cached_property
    def mro(self) -> list[Class | str]:
        """Method resolution order (C3); depth first where the classes in sight have none."""
        return linearise(self, ())


def linearise(cls: Class, seen: tuple[Class, ...]) -> list[Class | str]:
    """C3, for classes and the names of classes out of sight."""
    if cls in seen:
        return [cls]
    chains = [linearise(b, (*seen, cls)) if isinstance(b, Class) else [b] for b in cls.bases]
    chains.append(list(cls.bases))
    merged: list[Class | str] = [cls]
    while chains := [c for c in chains if c]:
        heads = [c[0] for c in chains]
        head = next((h for h in heads if not any(h in c[1:] for c in chains)), heads[0])
        merged.append(head)
        chains = [[x for x in c if x is not head and x != head] for c in chains]
    return merged


@dataclass(eq=False)
class Library:
    """All files read so far, each once."""

    modules: dict[Path, Module | UnreadableError] = field(default_factory=dict)
    found: dict[tuple[str, Path], Path | None] = field(default_factory=dict)
    machine: Any = None
    """What tries hooks of these files out, made when it is first asked for."""

    def load(self, path: Path) -> Module:
        """Parses a file.

        :raises UnreadableError: if it is missing, binary, too large, or not Python 3.
        """
        key = path.resolve()
        if key not in self.modules:
            try:
                self.modules[key] = _parse(path, self)
            except UnreadableError as error:
                self.modules[key] = error
        found = self.modules[key]
        if isinstance(found, UnreadableError):
            raise found
        return found

    def find(self, dotted: str, importer: Path) -> Module | None:
        """The module of that name as seen from a file: relative, beside it or above it, or one of ragtrace's own."""
        key = dotted, importer.parent
        if key not in self.found:
            self.found[key] = _place(dotted, importer)
        place = self.found[key]
        try:
            return self.load(place) if place else None
        except UnreadableError:
            return None

    def missing(self, dotted: str, importer: Path) -> bool:
        """Whether the import system would not find the module, here."""
        top = dotted.partition(".")[0]
        if any((root / top).is_dir() or (root / f"{top}.py").is_file() for root in importer.resolve().parents):
            return False
        return not findable(top)


def _neighbour(top: str, importer: Path, root: Path) -> bool:
    return top.startswith(FRAMEWORKS) or importer.resolve().relative_to(root).parts[0] == top


def _place(dotted: str, importer: Path) -> Path | None:
    level = len(dotted) - len(dotted.lstrip("."))
    parts = [p for p in dotted.lstrip(".").split(".") if p]
    roots = list(importer.resolve().parents)
    if level:
        roots = roots[level - 1 : level]
    elif parts[:1] == ["ragtrace"]:
        roots = [Path(__file__).resolve().parents[2]]
    for root in roots:
        if root.name in ("site-packages", "dist-packages") and not level and not _neighbour(parts[0], importer, root):
            continue  # what is installed beside a framework is no part of it
        base = root.joinpath(*parts)
        for candidate in (base.with_suffix(".py") if parts else base / "__init__.py", base / "__init__.py"):
            if candidate.is_file():
                return candidate
    if not level and parts and parts[0].startswith(FRAMEWORKS):
        found = locate(dotted)
        return found if found is not None and found.suffix == ".py" else None
    return None


def _parse(path: Path, library: Library) -> Module:
    raw = read(path)
    cells: list[tuple[int, int]] = []
    text = raw
    if path.suffix == ".ipynb":
        try:
            code, cells = code_of(raw)
        except ValueError as error:
            raise UnreadableError(str(error)) from error
        text = code.encode("utf-8", "replace")
    tree = parsed(text)
    try:
        return Module(path, tree, text.decode("utf-8", "replace").splitlines(), library, cells=cells)
    except RecursionError as error:
        raise UnreadableError("nested too deeply to be followed") from error


def read(path: Path) -> bytes:
    """The bytes of a source file.

    :raises UnreadableError: if it is missing, no regular file, binary, or too large.
    """
    limit = _MAX_NOTEBOOK if path.suffix == ".ipynb" else _MAX_BYTES
    try:
        if not path.is_file():
            raise UnreadableError("no such file" if not path.exists() else "not a regular file")
        size = path.stat().st_size
        if size > limit:
            raise UnreadableError(f"{size:,} bytes, more than the {limit:,} that are read")
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error
    if b"\0" in raw[:8192]:
        raise UnreadableError("binary, not Python source")
    return raw


def parsed(raw: bytes) -> ast.Module:
    """The tree of a source text.

    :raises UnreadableError: if it is no Python 3, or nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the code under audit are not ours
            return _tree(raw)
    except SyntaxError as error:
        raise UnreadableError(f"no valid Python 3: {error.msg} (line {error.lineno})") from error
    except (ValueError, LookupError, RecursionError, MemoryError) as error:
        raise UnreadableError(f"cannot be parsed: {error or type(error).__name__}") from error


def _tree(raw: bytes) -> ast.Module:
    try:
        return ast.parse(raw)
    except SystemError:  # CPython 3.11: a collection in the middle of it may parse too (the line of a traceback)
        return ast.parse(raw)
