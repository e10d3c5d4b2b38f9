"""The data flow through calls: what is in sight is followed, what is known is a table, the rest is "cannot tell"."""

from __future__ import annotations

import ast

from ragtrace.inventory.expressions import Frame, Paths, is_root, source
from ragtrace.inventory.modules import Class, FunctionNode
from ragtrace.inventory.objects import FIELDS, Objects
from ragtrace.inventory.values import Attr, Cell, Condition, Const, Func, Made, Ref, Self, State, Sym, Tup, Vague, Value

_MAX_DEPTH = 8
# results that are conditions or numbers, never the text or the list again
_PURE = frozenset(
    "len print isinstance issubclass any all sum hash id range type callable hasattr bool int float abs round ord "
    "repr".split()
)
_SAME_AGAIN = frozenset({"list", "tuple", "iter", "str", "typing.cast", "cast", "asyncio.shield"})
_COPIES = {"copy.copy": False, "copy.deepcopy": True}
_LIBRARIES = ("re.", "html.", "textwrap.", "unicodedata.", "hashlib.", "string.", "math.", "statistics.", "difflib.")
_TO_AND_FRO = ("json.", "base64.", "urllib.parse.", "binascii.", "codecs.", "pickle.", "itertools.", "ast.", "zlib.")
_LOGS = frozenset("debug info warning warn error exception critical log print write add_event set_attribute".split())
_LOOKS = frozenset("search match fullmatch findall finditer count index find startswith endswith".split())
_TAKES_APART = frozenset("split rsplit splitlines partition rpartition encode decode join copy format".split())
_SPLITS_ONLY = frozenset("split rsplit splitlines partition rpartition encode decode".split())
_DICT_EDITS = frozenset("update setdefault pop clear popitem".split())
_REPLACES = frozenset("sub subn replace translate sorted expandtabs".split())
TRANSPARENT = frozenset(
    "staticmethod classmethod override typing.override typing_extensions.override functools.lru_cache functools.cache "
    "typing.no_type_check abc.abstractmethod".split()
)


class Calls(Objects):
    """Calls; statements are in :class:`~ragtrace.inventory.flow.Flow`."""

    def _Call(self, node: ast.Call, state: State) -> Paths:
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            return self._with_arguments(node, state, self._super)
        if isinstance(node.func, ast.Attribute):
            found: Paths = []
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
        logged = isinstance(node.func, ast.Attribute) and node.func.attr in _LOGS
        for values, s in self.eval_all(nodes, state):
            if logged:
                s.edits = before  # what is made for a log is not meant to be returned
            args = list(values[: len(node.args)])
            keywords = {k.arg: v for k, v in zip(node.keywords, values[len(node.args) :], strict=True)}
            found += then(node, args, keywords, s)
        return found

    # -- where the callee is in sight -------------------------------------------------------------

    def _super(self, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State) -> Paths:
        assert isinstance(node.func, ast.Attribute)
        name, owner = node.func.attr, self.frame.owner
        later = self.mro[self.mro.index(owner) + 1 :] if owner in self.mro else []
        for cls in later:
            if isinstance(cls, str):
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
        plain = all(
            function.module.full_name(d.func if isinstance(d, ast.Call) else d) in TRANSPARENT for d in decorators
        )
        starred = None in kw or any(isinstance(a, ast.Starred) for a in node.args)
        if self.frame.depth >= _MAX_DEPTH or starred or not plain:
            return self._out_of_sight(node, [*args, *kw.values()], state)
        outer_env, outer_frame = state.env, self.frame
        outer_facts = state.facts
        state.env = dict(function.env)
        state.facts = {}
        if function.bound:
            args = [Self(), *args]
        if not self._bind(function.node.args, args, kw, state):
            state.env, state.facts = outer_env, outer_facts
            return self._out_of_sight(node, [*args, *kw.values()], state)
        self.frame = Frame(function.module, function.owner, outer_frame.depth + 1)
        loops = state.loops
        try:
            results = self.run(function.node, state)
        finally:
            self.frame = outer_frame
        for _, s in results:
            s.env, s.facts, s.loops = dict(outer_env), dict(outer_facts), loops
        return results

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
        for name, value in kw.items():
            if name is not None:
                given[name] = value
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
        state.env |= given
        return True

    def _function(self, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State) -> Paths:
        func = node.func
        if isinstance(func, ast.Call) and source(func.func) == "type":
            return [(self._construct("type", node, args, kw, state), state)]
        if not isinstance(func, ast.Name):
            paths: Paths = []
            for callee, s in self.eval(func, state):
                paths += (
                    self.call(callee, args, kw, s, node)
                    if isinstance(callee, Func)
                    else self._out_of_sight(node, [*args, *kw.values()], s)
                )
            return paths
        callee = state.env.get(func.id) or self.global_value(func.id)
        if isinstance(callee, Func):
            return self.call(callee, args, kw, state, node)
        if func.id in state.env:
            return self._out_of_sight(node, [*args, *kw.values()], state)
        return self._known(self.frame.module.full_name(func), node, args, kw, state)

    # -- what is known by name --------------------------------------------------------------------

    def _known(self, name: str, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State) -> Paths:
        values = [*args, *kw.values()]
        short = name.rpartition(".")[2]
        if name in _SAME_AGAIN and args:
            return [(self.copy(args[-1], state) if state.touches(args[-1]) else Sym(source(node)), state)]
        if name in ("list", "dict", "set") and not values:
            return [(state.new(Cell("built")) if name == "list" else Sym(source(node)), state)]
        if name in _COPIES and args:
            return [(self.copy(args[0], state, _COPIES[name]), state)]
        if name in ("enumerate", "zip") and args:
            counted = (Sym("a number"), *args[:1]) if name == "enumerate" else tuple(args)
            return [(Tup(counted, each=True), state)]
        if name in ("map", "filter") and len(args) == 2:
            return self._map(name, node, args, state)
        if name in ("reversed", "sorted", "min", "max", "heapq.nlargest", "heapq.nsmallest", "random.sample"):
            return [(self._edited(self.made("new", values, node, state), state), state)]
        if name in ("dataclasses.replace", "copy.replace") and args:
            return [(self._replaced(args[0], kw, node, state), state)]
        if name == "setattr" and len(args) == 3:
            attr = str(args[1].value) if isinstance(args[1], Const) else "content"
            self.set_attribute(args[0], attr, args[2], node, state)
            return [(Const(None), state)]
        if name == "getattr" and len(args) >= 2 and isinstance(args[1], Const):
            target = ast.copy_location(ast.Attribute(node.args[0], str(args[1].value), ast.Load()), node)
            return [self.attribute(args[0], target, state)]
        if short in FIELDS and (name == short or name.startswith("ragtrace")):
            return [(self._construct(short, node, args, kw, state), state)]
        if name in _PURE or not any(map(state.touches, values)):
            return [(self.made("new", values, node, state), state)]
        if short == "shuffle":
            return [(self._in_place(args, node, state), state)]
        if name.startswith(_LIBRARIES):
            kind = "weak" if short in ("split", "findall", "compile") else "new"
            made = self.made(kind, values, node, state)
            return [(self._edited(made, state) if short in _REPLACES else made, state)]
        if name.startswith(_TO_AND_FRO):
            return [(self.made("weak", values, node, state), state)]
        return self._out_of_sight(node, values, state)

    def _map(self, name: str, node: ast.Call, args: list[Value], state: State) -> Paths:
        function, iterable = args
        if not isinstance(function, Func):
            return self._out_of_sight(node, args, state)
        loop = next(self.loop_ids)
        item = self.elements(iterable, node.args[1], state, loop)
        found: Paths = []
        for value, s in self.call(function, [item], {}, state, node):
            dropped = name == "filter" and not (isinstance(value, Const) and bool(value.value))
            elt = item if name == "filter" else value
            found.append((self._collected(elt, iterable, loop, dropped, node, s), s))
        return found

    def _method(
        self, node: ast.Call, receiver: Value, args: list[Value], kw: dict[str | None, Value], state: State
    ) -> Paths:
        assert isinstance(node.func, ast.Attribute)
        name, values = node.func.attr, [*args, *kw.values()]
        if isinstance(receiver, Self):
            callee = state.attrs.get(name) or self.member(name)
            if isinstance(callee, Func):
                return self.call(callee, args, kw, state, node)
            return self._out_of_sight(node, values, state)
        if isinstance(receiver, Sym):
            return self._of_others(node, receiver, args, kw, state)
        if isinstance(receiver, Const):
            if name == "format" and isinstance(receiver.value, str) and receiver.value.strip("{}0") == "":
                return [(self.made("weak", values, node, state), state)]
            return [
                (self._joined(values, node, state) if name == "join" else self.made("new", values, node, state), state)
            ]
        if isinstance(receiver, Ref) and state.cells[receiver.cell].kind != "text":
            return [(self._of_cell(node, receiver, args, kw, state), state)]
        if isinstance(receiver, Attr) and receiver.name == "metadata" and name in _DICT_EDITS:
            self.set_attribute(Ref(receiver.cell), "metadata", Sym(source(node)), node, state)
        if isinstance(receiver, Vague):
            return [(receiver, state)]
        if isinstance(receiver, Tup):
            return self._out_of_sight(node, [receiver, *values], state)
        if name in _LOOKS:
            return [(Made("new", source(node), node.lineno), state)]
        if name in _TAKES_APART:
            joined = name in ("join", "format", "copy")
            return [
                (
                    self.made(
                        "new" if name == "join" else "weak", [receiver, *(values if joined else [])], node, state
                    ),
                    state,
                )
            ]
        made = self.made("new", (receiver, *values), node, state)
        return [(self._edited(made, state) if name in _REPLACES else made, state)]

    def _joined(self, values: list[Value], node: ast.expr, state: State) -> Value:
        """``"".join(parts)``: new if a part is."""
        return self.made("weak", values, node, state)

    def _of_others(
        self, node: ast.Call, receiver: Sym, args: list[Value], kw: dict[str | None, Value], state: State
    ) -> Paths:
        """A method of something that is not the input: a module, a pattern, a logger, a client."""
        assert isinstance(node.func, ast.Attribute)
        name, values = node.func.attr, [*args, *kw.values()]
        full = self.frame.module.full_name(node.func)
        place = None
        if isinstance(node.func.value, ast.Name) and node.func.value.id in self.frame.module.imports:
            place = self._in_module(node.func.value.id, name)
        if isinstance(place, Func):
            return self.call(place, args, kw, state, node)
        if method := self._of_class(node.func.value, name):
            return self.call(method, args, kw, state, node)
        if not any(map(state.touches, values)):
            return [(Sym(source(node)), state)]
        if name == "get" and len(args) == 2:
            other = state.fork()
            state.conditions += (Condition(source(node), True, node.lineno),)
            other.conditions += (Condition(source(node), False, node.lineno),)
            return [(Made("new", source(node), node.lineno), state), (args[1], other)]
        if name in _LOGS or name in _LOOKS or name == "get":
            return [(Sym(source(node)) if name in _LOGS else Made("new", source(node), node.lineno), state)]
        if name == "shuffle":
            return [(self._in_place(args, node, state), state)]
        if name == "join":
            return [(self._joined(values, node, state), state)]
        if name in ("sub", "subn"):
            return [(self._edited(self.made("new", values, node, state), state), state)]
        if name in ("append", "add", "extend", "put", "appendleft"):
            return [(Const(None), state)]
        return self._known(full or f"?.{name}", node, args, kw, state)

    def _in_module(self, alias: str, name: str) -> Func | None:
        module = self.frame.module
        origin, original = module.imports[alias]
        dotted = f"{origin}.{original}" if original and not origin.endswith(".") else f"{origin}{original or ''}"
        other = module.library.find(dotted, module.path)
        place = other.look_up(name) if other else None
        function = place[0].functions.get(place[1]) if place else None
        return Func(function, place[0]) if place and function else None

    def _of_class(self, receiver: ast.expr, name: str) -> Func | None:
        """``Base.method(self, …)``."""
        if not isinstance(receiver, ast.Name):
            return None
        place = self.frame.module.look_up(receiver.id)
        cls = place[0].classes.get(place[1]) if place else None
        for c in cls.mro if cls else ():
            if isinstance(c, Class) and isinstance(method := c.methods.get(name), FunctionNode):
                static = any(source(d) == "staticmethod" for d in method.decorator_list)
                bound = any(source(d) == "classmethod" for d in method.decorator_list) and not static
                return Func(method, c.module, c, bound=bound)
        return None


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
