"""The data flow through calls: what is in sight is followed, what is known is a table, the rest is "cannot tell"."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache

from ragtrace.inventory.known import LOGS, Known
from ragtrace.inventory.members import Frame, Paths, is_root, source
from ragtrace.inventory.modules import FunctionNode, Module
from ragtrace.inventory.values import (
    Cell,
    Choice,
    Const,
    Func,
    Handler,
    Lazy,
    Made,
    Map,
    Partial,
    Ref,
    Self,
    State,
    Sym,
    Tup,
    Value,
)

_MAX_DEPTH = 8
_LONG = 150  # nodes of a function that is followed only for what it makes of the input
# results that are conditions or numbers, never the text or the list again
TRANSPARENT = frozenset(
    "staticmethod classmethod override typing.override typing_extensions.override functools.lru_cache functools.cache "
    "typing.no_type_check abc.abstractmethod".split()
)


_KNOWN_WRAPPERS = frozenset(
    "override deprecated beta span traceable retry observe hook_config validate_call wraps abstractmethod final "
    "lru_cache cache before_model after_model before_agent after_agent wrap_model_call wrap_tool_call chain".split()
)


class Calls(Known):
    """Calls; statements are in :class:`~ragtrace.inventory.flow.Flow`."""

    def _Call(self, node: ast.Call, state: State) -> Paths:
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            return self._with_arguments(node, state, self._super)
        if isinstance(node.func, ast.Attribute):
            found: Paths = []
            held = state.env.get(node.func.value.id) if isinstance(node.func.value, ast.Name) else None
            if isinstance(held, Lazy) and node.func.attr == "close":
                return [(Const(None), state)]  # nothing of it runs any more
            for receiver, s in self.eval(node.func.value, state):
                found += self._with_arguments(
                    node, s, lambda n, args, kw, after, r=receiver: self._method(n, r, args, kw, after)
                )
            return found
        return self._with_arguments(node, state, self._function)

    def _with_arguments(self, node: ast.Call, state: State, then) -> Paths:  # type: ignore[no-untyped-def]
        before = state.edits
        found: Paths = []
        nodes = [*node.args, *(k.value for k in node.keywords)]
        logged = isinstance(node.func, ast.Attribute) and node.func.attr in LOGS
        if logged:  # by its name, what was never run
            held = {k for k, v in state.env.items() if isinstance(v, Lazy)}
            nodes = [ast.Constant(n.id) if isinstance(n, ast.Name) and n.id in held else n for n in nodes]
        for values, s in self.eval_all(nodes, state):
            if logged:
                s.edits = before  # what is made for a log is not meant to be returned
            args: list[Value] = []
            for argument, value in zip(node.args, values, strict=False):
                spread = isinstance(argument, ast.Starred) and isinstance(value, Tup) and not value.each
                args += value.items if spread and isinstance(value, Tup) else [value]
            keywords: dict[str | None, Value] = {}
            for k, value in zip(node.keywords, values[len(node.args) :], strict=True):
                keywords |= dict(value.items) if k.arg is None and isinstance(value, Map) else {k.arg: value}
            found += then(node, args, keywords, s)
        return found

    # -- where the callee is in sight -------------------------------------------------------------

    def _super(self, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State) -> Paths:
        assert isinstance(node.func, ast.Attribute)
        name, owner = node.func.attr, self.frame.owner
        if name in self.answers:
            return [(Ref(0), state)]
        later = self.mro[self.mro.index(owner) + 1 :] if owner in self.mro else []
        for cls in later:
            if isinstance(cls, str):
                if name in ("parse", "aparse") and cls.endswith(".StrOutputParser") and args:
                    return [(args[0], state)]
                if not is_root(cls):
                    break
                if name.startswith("on_") and name != "on_error":
                    return [(self._unchanged(name, args, kw), state)]
            elif isinstance(method := cls.methods.get(name), FunctionNode):
                return self.call(Func(method, cls.module, cls, bound=True), args, kw, state, node)
        return self._out_of_sight(node, [*args, *kw.values()], state)

    def _unchanged(self, hook: str, args: list[Value], kw: dict[str | None, Value]) -> Value:
        """What the hooks of ``ragtrace.Defense`` return: their last argument, documents before the response."""
        names = {"on_query": "query", "on_prompt": "messages", "on_response": "response"}
        position = {"on_query": 0, "on_prompt": 0, "on_response": 2}.get(hook, 1)
        return kw.get(names.get(hook, "documents")) or (args[position] if position < len(args) else Sym("super()"))

    def call(
        self, function: Func, args: list[Value], kw: dict[str | None, Value], state: State, node: ast.Call
    ) -> Paths:
        """Follows a call into a function whose source is in sight."""
        decorators = [] if isinstance(function.node, ast.Lambda) else function.node.decorator_list
        plain = function.plain or all(transparent(d, function.module) for d in decorators)
        starred = None in kw or any(isinstance(a, ast.Starred) and not _spread(a, state) for a in node.args)
        if not plain and self.frame.depth < _MAX_DEPTH and not starred:
            wrapped = self.decorated(function, state)
            if wrapped is not None:
                return self.call(wrapped, args, kw, state, node)
        if self.frame.depth >= _MAX_DEPTH or starred or not plain:
            return self._out_of_sight(node, [*args, *kw.values()], state)
        given = [*args, *kw.values(), *(v for _, v in function.env), *state.attrs.values()]
        if size(function.node) > _LONG and not any(map(state.touches, given)):
            return [(Sym(source(node)), state)]
        outer_env, outer_frame = state.env, self.frame
        cells = list(state.cells)
        outer_facts = state.facts
        state.env = dict(function.env)
        outer_names = _nonlocal(function.node)
        state.env |= {n: outer_env[n] for n in outer_names if n in outer_env}
        state.facts = {}
        if function.bound:
            args = [function.receiver or Self(), *args]
        if not self._bind(function.node.args, args, kw, state):
            state.env, state.facts = outer_env, outer_facts
            return self._out_of_sight(node, [*args, *kw.values()], state)
        self.frame = Frame(function.module, function.owner, outer_frame.depth + 1)
        loops = state.loops
        try:
            results = self.sample(self.run(function.node, state))
        finally:
            self.frame = outer_frame
        for _, s in results:
            changed = {n: s.env[n] for n in outer_names if n in s.env and n in outer_env}
            s.env, s.facts, s.loops = outer_env | changed, dict(outer_facts), loops
        return self._distinct(results, cells) if len(results) > 2 else results

    def _distinct(self, results: Paths, cells: list[int]) -> Paths:
        """Of the ways through a function, those that differ in what they give and leave behind."""
        found: dict[object, tuple[Value, State]] = {}
        for value, s in results:
            what = (type(value), value.kind) if isinstance(value, Made) else value
            held = (tuple((c, s.cells[c]) for c in cells), tuple(s.attrs.items()), tuple(s.spaces.items()))
            kept = found.setdefault((what, held, s.trivial, s.empty, s.handled, s.sent), (value, s))
            if kept[1] is not s and not kept[1].edits:
                kept[1].edits = s.edits
        return list(found.values())

    def run(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, state: State) -> Paths:
        """All returns of a function. See :class:`~ragtrace.inventory.flow.Flow`."""
        raise NotImplementedError

    def _bind(self, spec: ast.arguments, args: list[Value], kw: dict[str | None, Value], state: State) -> bool:
        """Binds parameters; False where the call does not fit the signature."""
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names):
            if not spec.vararg:
                return False
            given[spec.vararg.arg] = Tup(tuple(args[len(names) :]))
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        extra = {k: v for k, v in kw.items() if k is not None and k not in known}
        if extra and not spec.kwarg:
            return False
        given |= {k: v for k, v in kw.items() if k in known}
        if spec.kwarg:
            given[spec.kwarg.arg] = Map(tuple((str(k), v) for k, v in extra.items()))
        if spec.vararg:
            given.setdefault(spec.vararg.arg, Tup(()))
        required = names + [a.arg for a in spec.kwonlyargs]
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        for name in required:
            if name in given:
                state.env[name] = given.pop(name)
            elif name in defaults:
                default = defaults[name]
                state.env[name] = Const(default.value) if isinstance(default, ast.Constant) else Sym(name)
            else:
                return False
        state.env |= {str(k): v for k, v in given.items()}
        return True

    def decorated(self, function: Func, state: State) -> Func | None:
        """What decorators in sight make of a function; ``None`` where that cannot be followed."""
        assert not isinstance(function.node, ast.Lambda)
        made: Value = replace(function, plain=True, bound=False)
        for decorator in reversed(function.node.decorator_list):
            if transparent(decorator, function.module):
                continue
            outer, self.frame = self.frame, Frame(function.module, function.owner, self.frame.depth + 1)
            try:
                call = ast.copy_location(ast.Call(decorator, [], []), decorator)
                paths = self.eval(decorator, state.fork())
                if len(paths) != 1 or not isinstance(paths[0][0], Func):
                    return None
                after = paths[0][1]
                paths = self.call(paths[0][0], [made], {}, after, call)
            finally:
                self.frame = outer
            if len(paths) != 1 or not isinstance(paths[0][0], Func):
                return None
            made = paths[0][0]
        assert isinstance(made, Func)
        # functools.wraps and the like on the wrapper itself change nothing of what it does
        return replace(made, plain=True, bound=function.bound, receiver=function.receiver)

    def apply(
        self, callee: Value, args: list[Value], kw: dict[str | None, Value], state: State, node: ast.Call
    ) -> Paths:
        """A call of a value that can be called."""
        if isinstance(callee, Handler):
            state.sent += tuple(args[:1])
            ref = state.new(Cell("element"))
            state.cells[ref.cell] = replace(state.cells[ref.cell], space=-1 - ref.cell)
            state.heard |= {ref.cell}
            return [(ref, state)]
        if isinstance(callee, Partial) and callee.node is not None and isinstance(callee.function, Sym):
            given = callee.node
            whole = ast.Call(given.args[0], [*given.args[1:], *node.args], [*given.keywords, *node.keywords])
            return self.eval(ast.copy_location(whole, node), state)
        if isinstance(callee, Partial):
            return self.apply(callee.function, [*callee.args, *args], {**dict(callee.keywords), **kw}, state, node)
        if isinstance(callee, Func):
            return self.call(callee, args, kw, state, node)
        if isinstance(callee, Choice):
            return self.one_of(callee, args, kw, state, node)
        return self._out_of_sight(node, [*args, *kw.values()], state)

    def _function(self, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State) -> Paths:
        func = node.func
        if isinstance(func, ast.Call) and source(func.func) == "type":
            return [(self._construct("type", node, args, kw, state), state)]
        if not isinstance(func, ast.Name):
            paths: Paths = []
            for callee, s in self.eval(func, state):
                paths += (
                    self.apply(callee, args, kw, s, node)
                    if isinstance(callee, Func | Partial | Handler | Choice)
                    else self._out_of_sight(node, [*args, *kw.values()], s)
                )
            return paths
        callee = state.env.get(func.id) or self.global_value(func.id)
        if isinstance(callee, Func | Partial | Handler | Choice):
            return self.apply(callee, args, kw, state, node)
        if isinstance(callee, Sym) and callee.text.startswith("str.") and func.id in state.env:
            return [(self.made("new", [*args, *kw.values()], node, state), state)]
        if func.id in state.env:
            return self._out_of_sight(node, [*args, *kw.values()], state)
        return self._known(self.frame.module.full_name(func), node, args, kw, state)

    # -- what is known by name --------------------------------------------------------------------


@lru_cache(maxsize=8192)
def _nonlocal(node: ast.AST) -> frozenset[str]:
    """The names of the function around it that a function sets."""
    return frozenset(name for n in ast.walk(node) if isinstance(n, ast.Nonlocal) for name in n.names)


@lru_cache(maxsize=8192)
def size(node: ast.AST) -> int:
    """How many nodes a function has."""
    return sum(1 for _ in ast.walk(node))


def transparent(decorator: ast.expr, module: Module) -> bool:
    """Whether a decorator leaves alone what the function returns."""
    name = module.full_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name in TRANSPARENT or (name.rpartition(".")[2] in _KNOWN_WRAPPERS and bool(name.rpartition(".")[0]))


def _spread(node: ast.Starred, state: State) -> bool:
    """Whether ``*args`` was expanded into arguments already."""
    return isinstance(node.value, ast.Name) and isinstance(state.env.get(node.value.id), Tup)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
