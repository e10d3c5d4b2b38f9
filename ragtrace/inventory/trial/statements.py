"""Statements, carried out."""

from __future__ import annotations

import ast
from types import GeneratorType
from typing import Any

from ragtrace.inventory.roots import in_framework
from ragtrace.inventory.trial.expressions import Expressions
from ragtrace.inventory.trial.things import Deferred, GiveUpError, Instance, Klass, Opaque, Scope


class Return(BaseException):
    """A ``return``, on its way."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Break(BaseException):
    """A ``break``."""


class Continue(BaseException):
    """A ``continue``."""


class Statements(Expressions):
    """Functions and modules are in :class:`~ragtrace.inventory.trial.machine.Machine`."""

    def block(self, body: list[ast.stmt], scope: Scope) -> None:
        """Statements one after the other."""
        for statement in body:
            self.exec(statement, scope)

    def exec(self, node: ast.stmt, scope: Scope) -> None:
        """One statement."""
        self.tick()
        handler = getattr(self, f"s_{type(node).__name__}", None)
        if handler is None:
            raise GiveUpError(type(node).__name__)
        handler(node, scope)

    def s_Pass(self, node: ast.Pass, scope: Scope) -> None:
        """``pass``."""

    def s_Expr(self, node: ast.Expr, scope: Scope) -> None:
        self.eval(node.value, scope)

    def s_Assign(self, node: ast.Assign, scope: Scope) -> None:
        self.setting.append(node)
        try:
            value = self.eval(node.value, scope)
        finally:
            self.setting.pop()
        for target in node.targets:
            self.assign(target, value, scope)

    def s_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, scope), scope)

    def s_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            made = self.binary(node.op, self.look_up(target.id, scope), self.eval(node.value, scope), True)
            self.bind(target.id, made, scope)
            return
        base = self.eval(target.value, scope)
        if isinstance(target, ast.Attribute):
            before = self.attribute(base, target.attr)
            self.set_attribute(base, target.attr, self.binary(node.op, before, self.eval(node.value, scope), True))
        else:
            key = self.eval(target.slice, scope)
            self.set_item(base, key, self.binary(node.op, self.item(base, key), self.eval(node.value, scope), True))

    def s_Delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                base = self.eval(target.value, scope)
                if isinstance(base, Instance | Opaque):
                    raise GiveUpError("del")
                del base[self.eval(target.slice, scope)]
            elif isinstance(target, ast.Name):
                scope.names.pop(target.id, None)
            else:
                raise GiveUpError("del")

    def s_Return(self, node: ast.Return, scope: Scope) -> None:
        raise Return(self.eval(node.value, scope) if node.value else None)

    def s_Break(self, node: ast.Break, scope: Scope) -> None:
        raise Break

    def s_Continue(self, node: ast.Continue, scope: Scope) -> None:
        raise Continue

    def s_Global(self, node: ast.Global, scope: Scope) -> None:
        scope.shared |= dict.fromkeys(node.names, self.globals_of(scope.module))

    def s_Nonlocal(self, node: ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            at = scope.parent
            while at is not None and name not in at.function and name not in at.names:
                at = at.parent
            if at is not None:
                scope.shared[name] = at

    def s_Assert(self, node: ast.Assert, scope: Scope) -> None:
        if not self.truth(node.test, scope):
            raise AssertionError

    def s_If(self, node: ast.If, scope: Scope) -> None:
        self.block(node.body if self.test(node, node.test, scope) else node.orelse, scope)

    def s_While(self, node: ast.While, scope: Scope) -> None:
        while self.test(node, node.test, scope):
            try:
                self.block(node.body, scope)
            except Break:
                return
            except Continue:
                continue
        self.block(node.orelse, scope)

    def s_For(self, node: ast.For, scope: Scope) -> None:
        went = False
        items = self.each(self.eval(node.iter, scope))
        if (isinstance(items, GeneratorType) and items.gi_frame is None) or any(items is e for e in self.ended):
            self.spent.add(node)
        for item in items:
            went = True
            self.took.add((node, True))
            self.tick()
            self.assign(node.target, item, scope)
            try:
                self.block(node.body, scope)
            except Break:
                return
            except Continue:
                continue
        self.took.add((node, went))
        if hasattr(items, "__next__"):
            self.ended.append(items)
        self.block(node.orelse, scope)

    def s_AsyncFor(self, node: ast.AsyncFor, scope: Scope) -> None:
        self.s_For(node, scope)  # type: ignore[arg-type]

    def s_Raise(self, node: ast.Raise, scope: Scope) -> None:
        if node.exc is None:
            if self.handling:
                raise self.handling[-1]
            raise RuntimeError("No active exception to reraise")
        found = self.eval(node.exc, scope)
        if isinstance(found, Klass):
            found = self.construct(found, (), {})
        if isinstance(found, type) and issubclass(found, Exception):
            found = found()
        if not isinstance(found, Exception):
            raise GiveUpError("an exception")
        raise found

    def s_Try(self, node: ast.Try, scope: Scope) -> None:
        try:
            try:
                self.block(node.body, scope)
            except Exception as error:
                self._handled(node, error, scope)
            else:
                self.block(node.orelse, scope)
        finally:
            self.block(node.finalbody, scope)

    s_TryStar = s_Try

    def _handled(self, node: ast.Try, error: Exception, scope: Scope) -> None:
        for handler in node.handlers:
            if handler.type is not None and not self._catches(self.eval(handler.type, scope), error):
                continue
            self.raised.append(f"{type(error).__name__}: {error}"[:200])
            self.took.add((handler, True))
            if handler.name:
                self.bind(handler.name, error, scope)
            self.handling.append(error)
            try:
                self.block(handler.body, scope)
            finally:
                self.handling.pop()
            return
        raise error

    def _catches(self, kind: Any, error: Exception) -> bool:
        if isinstance(kind, tuple):
            return any(self._catches(k, error) for k in kind)
        if isinstance(kind, Klass):
            return isinstance(error, self.exception(kind))
        return isinstance(kind, type) and isinstance(error, kind)

    def s_With(self, node: ast.With, scope: Scope) -> None:
        self._with(node.items, node.body, scope)

    s_AsyncWith = s_With

    def _with(self, items: list[ast.withitem], body: list[ast.stmt], scope: Scope) -> None:
        if not items:
            self.block(body, scope)
            return
        manager = self.eval(items[0].context_expr, scope)
        if isinstance(manager, Opaque):
            value: Any = manager
        elif isinstance(manager, Instance):
            value = self.special(manager, "__enter__")
        else:
            value = manager.__enter__()
        if items[0].optional_vars is not None:
            self.assign(items[0].optional_vars, value, scope)
        try:
            self._with(items[1:], body, scope)
        except Exception as error:
            if not self._left(manager, error):
                raise
            self.raised.append(f"{type(error).__name__}: {error}"[:200])
        else:
            self._left(manager, None)

    def _left(self, manager: Any, error: Exception | None) -> bool:
        given = (type(error) if error else None, error, None)
        if isinstance(manager, Opaque):
            return False
        return bool(
            self.special(manager, "__exit__", *given) if isinstance(manager, Instance) else manager.__exit__(*given)
        )

    def s_FunctionDef(self, node: Any, scope: Scope) -> None:
        self.bind(node.name, self.decorated(self.function(node, scope), node.decorator_list, scope), scope)

    s_AsyncFunctionDef = s_FunctionDef

    def s_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        cls = next((c for c in scope.module.classes.values() if c.node is node), None)
        if cls is None:
            raise GiveUpError("a class")
        self.bind(node.name, self.decorated(self.klass(cls, scope), node.decorator_list, scope), scope)

    def s_Import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            top = alias.name if alias.asname else alias.name.partition(".")[0]
            self.bind(alias.asname or top, self.imported(top, None, scope.module), scope)

    def s_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        base = "." * node.level + (node.module or "")
        for alias in node.names:
            if base == "__future__" or alias.name == "*":
                continue
            if in_framework(scope.module.path):
                self.bind(alias.asname or alias.name, Deferred(base, alias.name, scope.module), scope)
            else:
                self.bind(alias.asname or alias.name, self.imported(base, alias.name, scope.module), scope)

    def s_Match(self, node: ast.Match, scope: Scope) -> None:
        subject = self.eval(node.subject, scope)
        for case in node.cases:
            if self._matches(case.pattern, subject, scope) and (case.guard is None or self.truth(case.guard, scope)):
                self.took.add((case.pattern, True))
                self.block(case.body, scope)
                return
            self.took.add((case.pattern, False))

    def _matches(self, pattern: ast.pattern, value: Any, scope: Scope) -> bool:
        if isinstance(pattern, ast.MatchValue):
            return bool(value == self.eval(pattern.value, scope))
        if isinstance(pattern, ast.MatchSingleton):
            return value is pattern.value
        if isinstance(pattern, ast.MatchOr):
            return any(self._matches(p, value, scope) for p in pattern.patterns)
        if isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None and not self._matches(pattern.pattern, value, scope):
                return False
            if pattern.name:
                self.bind(pattern.name, value, scope)
            return True
        if isinstance(pattern, ast.MatchClass) and not pattern.kwd_patterns and len(pattern.patterns) <= 1:
            if not self.is_instance(value, self.eval(pattern.cls, scope)):
                return False
            return all(self._matches(p, value, scope) for p in pattern.patterns)
        if isinstance(pattern, ast.MatchSequence) and not any(isinstance(p, ast.MatchStar) for p in pattern.patterns):
            if not isinstance(value, list | tuple) or len(value) != len(pattern.patterns):
                return False
            return all(self._matches(p, v, scope) for p, v in zip(pattern.patterns, value, strict=True))
        raise GiveUpError(type(pattern).__name__)
