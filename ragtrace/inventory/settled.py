"""Which tests are settled before any input comes: by constants, by what a constructor takes if it is told nothing, or
because what they ask of the input is never so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ragtrace.inventory.invariants import Invariants
from ragtrace.inventory.members import source
from ragtrace.inventory.modules import Class, FunctionNode, Module
from ragtrace.inventory.trial import Subject, Trial

_PLAIN = frozenset("len bool any all isinstance getattr str int float list tuple set sorted".split())
_MAKERS = frozenset({"__init__", "__post_init__", "model_post_init", "__new__"})
_LOOPS = (ast.For, ast.AsyncFor, ast.ListComp, ast.GeneratorExp)
_COMPANY = frozenset("state runtime request config".split())
_MOVES = frozenset("random time environ getenv datetime now".split())


_KINDS = frozenset("type isinstance issubclass".split())


def test_of(node: ast.AST) -> ast.expr | None:
    """What a statement, or a comprehension, asks."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        return node.iter
    return node if isinstance(node, ast.expr) else None


def structural(test: ast.expr) -> bool:
    """Whether a test asks what something is, not what it says: of which type or role, whether it is there."""
    if isinstance(test, ast.BoolOp):
        return all(map(structural, test.values))
    if isinstance(test, ast.UnaryOp):
        return structural(test.operand)
    if isinstance(test, ast.Call):
        return source(test.func) in ("isinstance", "hasattr", "callable", "bool", "len")
    if isinstance(test, ast.Compare):
        right = test.comparators[0]
        nothing = isinstance(right, ast.Constant) and right.value in (None, "")
        kind = isinstance(test.left, ast.Attribute) and test.left.attr in ("role", "type")
        return nothing or kind
    return False


def asks_kind(node: ast.AST) -> bool:
    """Whether a test asks for the type of something."""
    test = test_of(node)
    return test is not None and any(isinstance(n, ast.Name) and n.id in _KINDS for n in ast.walk(test))


def _beside(node: ast.AST) -> bool:
    """``state.get("consent")``: what comes with the messages, and is none."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        root, key = node.func.value, node.args[0]
    elif isinstance(node, ast.Subscript):
        root, key = node.value, node.slice
    else:
        return False
    while isinstance(root, ast.Attribute):
        root = root.value
    named = isinstance(root, ast.Name) and root.id in _COMPANY
    return named and isinstance(key, ast.Constant) and key.value != "messages"


def _walk(expr: ast.AST, beside: bool = False) -> Iterator[ast.AST]:
    """The parts of an expression, without what is asked for its type: that of the input does not vary."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KINDS:
            continue
        if beside and _beside(node):
            continue
        yield node
        pending += ast.iter_child_nodes(node)


class Settled:
    """For the classes of one defense."""

    def __init__(self, subject: Subject) -> None:
        self.mro = [c for c in subject.classes if isinstance(c, Class)]
        self.modules = list(dict.fromkeys([subject.module, *(c.module for c in self.mro)]))
        self.node = subject.node
        self.ours = subject.entry.shape == "ragtrace"
        self.loose = False

    def why(self, node: ast.AST, way: bool, trial: Trial) -> str:
        """Why a test never goes the other way; "" where it may."""
        test = test_of(node)
        if node in trial.spent and test is not None:
            return f"`{source(test)}` (line {test.lineno}) was used up before, so the loop never runs"
        if (test is None or not any(n in trial.open for n in ast.walk(test))) and (told := self.switch(node, way)):
            return told
        if test is None or isinstance(node, ast.comprehension):
            return ""
        place = self._function(node)
        return Invariants(self.mro, trial, self.ours).never(test, way, place[0] if place else None, node)

    def in_loop(self, node: ast.AST) -> bool:
        """Whether a test is asked of each item of something."""
        place = self._function(node)
        loops = [n for n in ast.walk(place[0]) if isinstance(n, _LOOPS)] if place is not None else []
        return any(n is node for loop in loops for n in ast.walk(loop))

    def _own(self, function: FunctionNode | ast.Lambda, test: ast.expr) -> bool:
        """Whether ``self`` in a test is the defense, and not some other object."""
        if not any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(test)):
            return True
        methods = [m for c in self.mro for m in c.methods.values() if isinstance(m, FunctionNode)]
        return any(n is function for m in methods for n in ast.walk(m))

    def outside(self, node: ast.AST) -> bool:
        """Whether a test asks of something else than the input: a switch, an argument, what was there before."""
        place, test = self._function(node), test_of(node)
        if place is None or test is None or not self._own(place[0], test):
            return False
        self.loose = True
        try:
            return self._fixed(test, *place, frozenset())
        finally:
            self.loose = False

    def switch(self, node: ast.AST, way: bool) -> str:
        """Why a test goes one way only, where that has nothing to do with the input; "" where it may have."""
        place = self._function(node)
        if place is None:
            return ""
        function, module = place
        expr = test_of(node)
        if expr is None or not self._fixed(expr, function, module, frozenset()):
            return ""
        line = getattr(expr, "lineno", 0)
        told = f"`{source(expr)}` (line {line}) is "
        told += "always empty" if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) else f"always {way}"
        parameter = self.parameter(node)
        return f"{told} unless `{parameter}` is given" if parameter else told

    def _function(self, node: ast.AST) -> tuple[FunctionNode | ast.Lambda, Module] | None:
        """The innermost function that a node is in."""
        for module in self.modules:
            held = getattr(module, "_ragtrace_holders", None)
            if held is None:
                held = {}
                for part in ast.walk(module.tree):  # outer functions come before inner ones
                    if isinstance(part, FunctionNode | ast.Lambda):
                        held.update((id(n), part) for n in ast.walk(part))
                module._ragtrace_holders = held  # type: ignore[attr-defined]
            if (found := held.get(id(node))) is not None:
                return found, module
        return None

    def _fixed(self, expr: ast.AST, function: FunctionNode | ast.Lambda, module: Module, seen: frozenset[str]) -> bool:
        """Whether nothing in an expression comes from the input, from what was there before, or from chance."""
        for node in _walk(expr, beside=self.loose):
            if isinstance(node, ast.Call):
                if not isinstance(node.func, ast.Name | ast.Attribute):
                    return False
                if (
                    isinstance(node.func, ast.Name)
                    and node.func.id not in _PLAIN
                    and node.func.id not in module.functions
                ):
                    return False
            elif isinstance(node, ast.Attribute):
                if self.loose:
                    continue
                if node.attr in _MOVES or node.attr in module.filled or not self._made_once(node):
                    return False
                if isinstance(node.value, ast.Attribute) and self._moves(node.attr):
                    return False
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.id in ("self", "cls") or node.id in _PLAIN:
                    continue
                if not self.loose and (node.id in _MOVES or node.id in module.filled):
                    return False
                if not self._name(node.id, function, module, seen):
                    return False
        return True

    def _name(self, name: str, function: FunctionNode | ast.Lambda, module: Module, seen: frozenset[str]) -> bool:
        spec = function.args
        if (self.loose and any(a.arg == name for a in spec.kwonlyargs)) or (
            self.loose and name in [a.arg for a in spec.args][len(spec.args) - len(spec.defaults) :]
        ):
            return True
        if any(a and a.arg == name for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)):
            return False
        stores = [
            n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        if not stores:
            return True
        values = [
            n.iter
            for n in ast.walk(function)
            if isinstance(n, ast.For | ast.comprehension) and any(t is s for s in stores for t in ast.walk(n.target))
        ]
        values += [
            n.value for n in ast.walk(function)
            if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None
            and any(t is s for s in stores for t in (n.targets if isinstance(n, ast.Assign) else [n.target]))
        ]  # fmt: skip
        return (
            name not in seen
            and len(stores) == 1  # else it depends on which way the hook went
            and len(values) == len(stores)
            and all(self._fixed(v, function, module, seen | {name}) for v in values)
        )

    def _moves(self, attr: str) -> bool:
        """Whether an object that the defense holds sets that itself, later, or works it out when asked."""
        loaded = [m for m in self.modules[0].library.modules.values() if isinstance(m, Module)] if self.modules else []
        return any(attr in moving(cls) for m in loaded for cls in m.classes.values())

    @property
    def told_nothing(self) -> bool:
        """Whether the constructor takes no arguments, though there is one."""
        init = next((c.methods["__init__"] for c in self.mro if "__init__" in c.methods), None)
        spec = init.args if isinstance(init, FunctionNode) else None
        return spec is not None and len(spec.args) == 1 and not (spec.kwonlyargs or spec.vararg or spec.kwarg)

    def own_state(self, node: ast.AST) -> bool:
        """Whether a test asks of what the object, or the process, holds: another call may have changed that."""
        test = test_of(node)
        asked = [n for n in ast.walk(test) if isinstance(n, ast.Attribute)] if test is not None else []
        return any(source(n.value).partition(".")[0] == "self" or n.attr in _MOVES for n in asked)

    def _made_once(self, node: ast.Attribute) -> bool:
        """Whether an attribute of the defense is set where the object is made, and nowhere else."""
        if not isinstance(node.value, ast.Name) or node.value.id not in ("self", "cls"):
            return True
        for cls in self.mro:
            if node.attr in cls.module.filled:
                return False
            for name, method in cls.methods.items():
                if name not in _MAKERS and isinstance(method, FunctionNode):
                    for n in ast.walk(method):
                        if isinstance(n, ast.Attribute) and n.attr == node.attr and isinstance(n.ctx, ast.Store):
                            return False
        return True

    def parameter(self, node: ast.AST) -> str:
        """The constructor's parameter that an attribute in a test comes from."""
        expr = test_of(node)
        names = (
            []
            if expr is None
            else [n.attr for n in ast.walk(expr) if isinstance(n, ast.Attribute) and source(n.value) == "self"]
        )
        for cls in self.mro:
            init = cls.methods.get("__init__")
            known = (
                {a.arg for a in (*init.args.args, *init.args.kwonlyargs)} if isinstance(init, FunctionNode) else set()
            )
            for node in ast.walk(init) if isinstance(init, FunctionNode) else ():
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and target.attr in names:
                    used = [n.id for n in ast.walk(node.value) if isinstance(n, ast.Name) and n.id in known]
                    if used:
                        return used[0]
            for node in cls.node.body:
                if isinstance(node, ast.AnnAssign) and source(node.target) in names and node.value is not None:
                    return source(node.target)
        return ""


@lru_cache(maxsize=4096)
def moving(cls: Class) -> frozenset[str]:
    """Attributes that methods of a class set after it is made, and its properties."""
    found: set[str] = set()
    for name, method in cls.methods.items():
        if isinstance(method, FunctionNode) and name not in _MAKERS:
            found |= {n.attr for n in ast.walk(method) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for name, method in cls.methods.items():
        decorators = method.decorator_list if isinstance(method, FunctionNode) else []
        if any(source(d).endswith("property") for d in decorators) and any(
            isinstance(n, ast.Call) or (isinstance(n, ast.Attribute) and n.attr in found) for n in ast.walk(method)
        ):
            found.add(name)
    return frozenset(found)
