"""The interpreter: modules, and functions that are entered."""

from __future__ import annotations

import ast
import itertools
from functools import lru_cache
from typing import Any

from ragtrace.inventory.modules import FunctionNode, Library, Module
from ragtrace.inventory.trial.statements import Break, Continue, Return, Statements
from ragtrace.inventory.trial.things import Function, Generator, GiveUpError, Later, Opaque, Scope
from ragtrace.inventory.trial.watch import STEPS

_DEPTH = 40
_SIGNALS = (Return, Break, Continue)


class Machine(Statements):
    """Runs functions of modules in sight. What is kept of a run: :class:`~ragtrace.inventory.trial.watch.Watch`."""

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library
        self.modules: dict[Module, Scope] = {}
        self.answer = ""
        self.twins = False
        """Whether some documents of a list have the same id."""
        self._numbers = itertools.count()

    def number(self, i: int) -> int:
        """What makes a document's id another than the others'."""
        return i if self.twins else next(self._numbers)

    def answered(self, name: str) -> Any:
        """What a synthesizer of the framework answers."""
        return Later(lambda: self.answer) if name.startswith("a") else self.answer

    # -- modules ----------------------------------------------------------------------------------

    def globals_of(self, module: Module) -> Scope:
        """The names of a module, its statements followed once."""
        if module not in self.modules:
            scope = self.modules[module] = Scope(module)
            with self.aside():
                for statement in module.tree.body:
                    self.tolerant(statement, scope)
        return self.modules[module]

    def tolerant(self, statement: ast.stmt, scope: Scope) -> None:
        """A statement of a module or class; what it binds is unknown where it cannot be followed."""
        limit, self.limit = self.limit, self.steps + STEPS
        try:
            self.exec(statement, scope)
        except (Exception, GiveUpError, *_SIGNALS):
            for node in ast.walk(statement):
                name = getattr(node, "name", None) if isinstance(node, FunctionNode | ast.ClassDef) else None
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    name = node.id
                if isinstance(node, ast.alias):
                    name = node.asname or node.name.partition(".")[0]
                if name:
                    scope.names.setdefault(name, Opaque(name))
        finally:
            self.limit = limit

    # -- functions --------------------------------------------------------------------------------

    def enter(self, function: Function, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        """Calls a function in sight."""
        node = function.node
        scope = Scope(function.scope.module, function.scope, function.owner)
        scope.function = locals_of(node)
        if function.receiver is not None:
            args = (function.receiver, *args)
        scope.first = args[0] if args else None
        self._bind_arguments(function, list(args), dict(kw), scope)
        if isinstance(node, ast.Lambda):
            return self._deeper(lambda: self.eval(node.body, scope))
        if generates(node):
            return Generator(lambda: self._collected(node, scope))
        if isinstance(node, ast.AsyncFunctionDef):
            return Later(lambda: self._deeper(lambda: self._body(node, scope)))
        return self._deeper(lambda: self._body(node, scope))

    def _deeper(self, run: Any) -> Any:
        self.tick()
        if self.depth >= _DEPTH:
            raise GiveUpError("too deep")
        self.depth += 1
        try:
            return run()
        finally:
            self.depth -= 1

    def _body(self, node: FunctionNode, scope: Scope) -> Any:
        try:
            self.block(node.body, scope)
        except Return as signal:
            return signal.value
        return None

    def _collected(self, node: FunctionNode, scope: Scope) -> list[Any]:
        self.yielded.append([])
        try:
            self._deeper(lambda: self._body(node, scope))
        finally:
            found = self.yielded.pop()
        return found

    def _bind_arguments(self, function: Function, args: list[Any], kw: dict[str, Any], scope: Scope) -> None:
        spec, names = function.node.args, scope.names
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        if len(args) > len(positional) and not spec.vararg:
            raise TypeError("too many positional arguments")
        names.update(zip(positional, args, strict=False))
        if spec.vararg:
            names[spec.vararg.arg] = tuple(args[len(positional) :])
        for name in [*positional, *(a.arg for a in spec.kwonlyargs)]:
            if name in kw:
                if name in names:
                    raise TypeError(f"multiple values for argument {name!r}")
                names[name] = kw.pop(name)
        if spec.kwarg:
            names[spec.kwarg.arg] = kw
        elif kw:
            raise TypeError(f"unexpected keyword argument {next(iter(kw))!r}")
        defaults, by_keyword = function.defaults
        for name, value in zip(reversed(positional), reversed(defaults), strict=False):
            names.setdefault(name, value)
        for arg, value in zip(spec.kwonlyargs, by_keyword, strict=True):
            if value is not ...:
                names.setdefault(arg.arg, value)
        for name in [*positional, *(a.arg for a in spec.kwonlyargs)]:
            if name not in names:
                raise TypeError(f"missing argument {name!r}")


@lru_cache(maxsize=8192)
def locals_of(node: Any) -> frozenset[str]:
    """The names that a function binds itself."""
    found: set[str] = set()
    shared: set[str] = set()
    pending: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while pending:
        at = pending.pop()
        if isinstance(at, FunctionNode | ast.ClassDef):
            found.add(at.name)
            continue
        if isinstance(at, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            found |= {n.target.id for n in ast.walk(at) if isinstance(n, ast.NamedExpr)}
            continue
        if isinstance(at, ast.Global | ast.Nonlocal):
            shared |= set(at.names)
        elif isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store):
            found.add(at.id)
        elif isinstance(at, ast.ExceptHandler | ast.MatchAs) and at.name:
            found.add(at.name)
        elif isinstance(at, ast.alias):
            found.add(at.asname or at.name.partition(".")[0])
        pending += ast.iter_child_nodes(at)
    spec = node.args
    found |= {a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    return frozenset(found - shared) | {""}


@lru_cache(maxsize=8192)
def generates(node: FunctionNode) -> bool:
    """Whether calling the function runs nothing of it yet."""
    pending: list[ast.AST] = list(node.body)
    while pending:
        at = pending.pop()
        if isinstance(at, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(at, FunctionNode | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(at)
    return False
