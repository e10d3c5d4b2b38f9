"""The data flow through calls that are known by name, and through methods of what is not the input."""

from __future__ import annotations

import ast

from ragtrace.inventory.fields import (
    FIELDS,
    LIBRARIES,
    MODEL,
    MODEL_CALLS,
    PROTECTORS,
    PURE,
    TO_AND_FRO,
    canonical,
    reads_text,
)
from ragtrace.inventory.lookups import Lookups
from ragtrace.inventory.members import Paths, source
from ragtrace.inventory.patterns import compiled, impossible, literally, puts_back, rebuilds
from ragtrace.inventory.values import (
    Attr,
    Cell,
    Condition,
    Const,
    Func,
    Made,
    Map,
    Obj,
    Packed,
    Partial,
    Ref,
    Self,
    State,
    Sym,
    Tup,
    Vague,
    Value,
)

_SAME_AGAIN = frozenset({"list", "tuple", "iter", "str", "typing.cast", "cast", "asyncio.shield"})


_COPIES = {"copy.copy": False, "copy.deepcopy": True}


LOGS = frozenset("debug info warning warn error exception critical log print write add_event set_attribute".split())


_FILLS = frozenset("append add extend put appendleft update setdefault insert push".split())
_LOOKS = frozenset("search match fullmatch findall finditer count index find startswith endswith".split())


_TAKES_APART = frozenset("split rsplit splitlines partition rpartition encode decode join copy format".split())


_SPLITS_ONLY = frozenset("split rsplit splitlines partition rpartition encode decode".split())


_LIST_EDITS = frozenset("append extend insert remove pop clear sort reverse".split())


_DICT_EDITS = frozenset("update setdefault pop clear popitem".split())


_REPLACES = frozenset("sub subn replace translate sorted expandtabs".split())


def _at(node: ast.Call, position: int) -> ast.expr | None:
    return node.args[position] if len(node.args) > position else None


class Known(Lookups):
    """Calls into code in sight are in :class:`~ragtrace.inventory.calls.Calls`."""

    answers: frozenset[str] = frozenset()  # methods whose result is what a synthesizer's hook may change

    def _known(self, name: str, node: ast.Call, args: list[Value], kw: dict[str | None, Value], state: State) -> Paths:
        values = [*args, *kw.values()]
        short = name.rpartition(".")[2]
        if name in ("functools.partial", "partial") and args and isinstance(args[0], Func | Partial | Sym):
            return [(Partial(args[0], tuple(args[1:]), tuple((str(k), v) for k, v in kw.items()), node), state)]
        if name == "functools.reduce" and len(args) == 3 and isinstance(args[0], Func | Partial):
            if isinstance(args[1], Const) and args[1].value == ():
                return [(args[2], state)]
            return self._folded(args[0], args[1], args[2], node, state)
        if name == "dict" and len(args) == 1 and isinstance(args[0], Ref | Map):
            copied = self.copy(args[0], state)
            for key, value in kw.items() if isinstance(copied, Ref) else ():
                self.set_attribute(copied, key or "content", value, node, state)
            return [(copied, state)]
        if name == "dict" and len(args) == 1 and isinstance(args[0], Attr) and not kw:
            return [(args[0], state)]
        if name == "itertools.islice" and args and state.touches(args[0]):
            return [(args[0] if isinstance(args[0], Vague) else Made("cut", source(node), node.lineno), state)]
        if name == "dict" and not args and None not in kw:
            return [(Map(tuple((str(k), v) for k, v in kw.items())), state)]
        if name == "range" and len(args) == 1 and isinstance(args[0], Const) and args[0].value == 0:
            return [(Const((), source(node)), state)]
        if name == "isinstance" and len(args) == 2 and (kind := self._kind_of(node, args[0], state)) is not None:
            return [(Const(kind, "isinstance"), state)]
        if name in ("itertools.chain.from_iterable", "itertools.chain") and len(args) == 1:
            whole: Value | None = args[0] if name == "itertools.chain" else None
            if isinstance(args[0], Ref) and name != "itertools.chain":
                items = state.cells[args[0].cell].items
                whole = items[0][0] if len(items) == 1 and items[0][1] is None else None
            if isinstance(whole, Ref):
                return [(self.copy(whole, state), state)]
        if name == "asyncio.to_thread" and args and isinstance(args[0], Func | Partial):
            return self.apply(args[0], args[1:], kw, state, node)
        if name == "asyncio.gather" and node.args:
            return [(args[0] if len(args) == 1 else self.made("weak", args, node, state), state)]
        if name == "list" and len(args) == 1 and isinstance(args[0], Ref) and state.cells[args[0].cell].kind == "text":
            return [(self.packed(args[0], "split", node, state) or args[0], state)]
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
        if name in ("min", "max"):
            return [(self.made("new", values, node, state), state)]
        if name in ("reversed", "sorted", "heapq.nlargest", "heapq.nsmallest", "random.sample"):
            return [(self._edited(self.made("new", values, node, state), state), state)]
        if name in ("dataclasses.replace", "copy.replace") and args:
            return [(self._replaced(args[0], kw, node, state), state)]
        if name == "getattr" and (choice := self.by_name(node, args)) is not None:
            return [(choice, state)]
        if name == "setattr" and len(args) == 3:
            attr = str(args[1].value) if isinstance(args[1], Const) else "content"
            self.set_attribute(args[0], attr, args[2], node, state)
            return [(Const(None), state)]
        if name == "getattr" and len(args) >= 2 and isinstance(args[1], Const):
            target = ast.copy_location(ast.Attribute(node.args[0], str(args[1].value), ast.Load()), node)
            return [self.attribute(args[0], target, state)]
        if short in FIELDS and name.startswith((short, "ragtrace", "langchain", "llama_index", "langgraph")):
            return [(self._construct(short, node, args, kw, state), state)]
        if name in PURE or not any(map(state.touches, values)):
            return [(self.made("new", values, node, state), state)]
        if short == "RemoveMessage":
            return [(Made("new", source(node), node.lineno), state)]
        if short == "shuffle":
            return [(self._in_place(args, node, state), state)]
        if name.startswith(LIBRARIES):
            if name in ("re.sub", "re.subn") and len(args) >= 3 and self._idle_sub(node, args[0], args[1], state):
                return [(args[2] if short == "sub" else Tup((args[2], Sym("0"))), state)]
            if name == "re.subn":
                made = self.made("new", values, node, state)
                return [(Tup((self._edited(made, state), Sym("a number"))), state)]
            kept = "weak" if short in ("split", "findall", "compile") else "new"
            made = self.made(kept, values, node, state)
            return [(self._edited(made, state) if short in _REPLACES else made, state)]
        if (again := self.coded(name, node, args, state)) is not None:
            return [(again, state)]
        if name in ("numpy.array", "numpy.asarray", "numpy.copy"):
            return [(self.made("weak", values, node, state), state)]
        if name.startswith("numpy."):
            return [(self._edited(self.made("new", values, node, state), state), state)]
        if name.startswith(TO_AND_FRO):
            return [(self.made("weak", values, node, state), state)]
        if cls := self._class_of(node.func):
            if not any(map(state.touches, values)):
                return [(Obj(cls, source(node)), state)]
            if (record := self.record(cls, args, kw)) is not None:
                return [(record, state)]
            return self._out_of_sight(node, values, state)
        if short[:1].isupper() and kw:
            made = self._construct(short, node, args, kw, state)
            return [(made, state)] if isinstance(made, Made) else self._out_of_sight(node, values, state)
        return self._out_of_sight(node, values, state)

    def _idle_sub(self, node: ast.Call, pattern: Value, replacement: Value, state: State) -> bool:
        """Whether ``re.sub`` cannot change anything; then the reason is kept."""
        known = (pattern.value, 0) if isinstance(pattern, Const) and isinstance(pattern.value, str) else None
        return self._idle(node, known, node.args[1], replacement, state)

    def _idle(
        self, node: ast.Call, pattern: tuple[str, int] | None, written: ast.expr | None, value: Value, state: State
    ) -> bool:
        function = value.node if isinstance(value, Func) else None
        if pattern is not None and impossible(*pattern):
            state.unreachable += ((node.lineno, f"the pattern of `{source(node)}` cannot match anything"),)
        elif puts_back(function or written) or (
            pattern and isinstance(value, Const) and isinstance(value.value, str) and rebuilds(*pattern, value.value)
        ):
            state.unreachable += ((node.lineno, f"`{source(node)}` puts back what it finds"),)
        else:
            return False
        return True

    def _pattern(self, node: ast.expr) -> tuple[str, int] | None:
        """A compiled pattern and its flags, by its definition in sight."""
        found: ast.expr | None = node
        if isinstance(node, ast.Name):
            place = self.frame.module.look_up(node.id)
            found = place[0].constants.get(place[1]) if place else None
        elif isinstance(node, ast.Attribute) and source(node.value) == "self":
            found = self.definition(node.attr)
        return compiled(found)

    def _folded(self, function: Value, items: Value, first: Value, node: ast.Call, state: State) -> Paths:
        """``functools.reduce``: over functions one by one, over anything else for a typical item."""
        if isinstance(items, Tup) and not items.each and all(isinstance(v, Func | Partial) for v in items.items):
            each: tuple[Value, ...] = items.items
        else:
            each = (self.elements(items, node.args[1], state, next(self.loop_ids)),)
        paths: Paths = [(first, state)]
        for item in each:
            paths = [p for value, s in paths for p in self.apply(function, [value, item], {}, s, node)]
        return paths

    def _map(self, name: str, node: ast.Call, args: list[Value], state: State) -> Paths:
        function, iterable = args
        if isinstance(function, Sym) and name == "map" and isinstance(node.args[0], ast.Attribute):
            function = self.as_lambda(node.args[0], state)
        if not isinstance(function, Func | Partial):
            return self._out_of_sight(node, args, state)
        loop = next(self.loop_ids)
        item = self.elements(iterable, node.args[1], state, loop)
        found: Paths = []
        for value, s in self.apply(function, [item], {}, state, node):
            dropped = name == "filter" and not (isinstance(value, Const) and bool(value.value))
            elt = item if name == "filter" else value
            found.append((self._collected(elt, iterable, loop, dropped, node, s), s))
        return found

    def _method(
        self, node: ast.Call, receiver: Value, args: list[Value], kw: dict[str | None, Value], state: State
    ) -> Paths:
        assert isinstance(node.func, ast.Attribute)
        name, values = node.func.attr, [*args, *kw.values()]
        if name in self.answers and isinstance(receiver, Sym | Obj):
            return [(Ref(0), state)]
        if isinstance(receiver, Self | Obj):
            callee, state = self.attribute(receiver, node.func, state)
            if isinstance(callee, Func | Partial):
                return self.apply(callee, args, kw, state, node)
            if isinstance(callee, Sym) and isinstance(receiver, Self) and (meant := self.inlined(node, name)):
                return self.eval(meant, state)
            if isinstance(callee, Obj) and (inner := self.method_of(callee, "__call__")):
                return self.call(inner, args, kw, state, node)
            if name in MODEL_CALLS and any(map(state.touches, values)):
                return self._asked(node, values, state)
            return self._out_of_sight(node, values, state)
        if isinstance(receiver, Map | Sym) and name in _FILLS and any(map(state.touches, values)):
            self._filled(node.func.value, values, node, state)
        if isinstance(receiver, Sym):
            return self._of_others(node, receiver, args, kw, state)
        if isinstance(receiver, Map):
            if name == "get" and args and (choice := self.chosen(receiver, source(node.args[0]), *args[1:2])):
                return [(choice, state)]
            if name == "get" and args and isinstance(args[0], Const):
                return [
                    (dict(receiver.items).get(str(args[0].value)) or (args[1] if len(args) > 1 else Const(None)), state)
                ]
            return self._out_of_sight(node, [receiver, *values], state)
        if isinstance(receiver, Attr) and (found := self._of_attr(node, name, receiver, args, kw, state)) is not None:
            return [(found, state)]
        if (again := self.taken_apart(name, node, receiver, args, state)) is not None:
            return [(again, state)]
        if isinstance(receiver, Const):
            if receiver.value == () and name in ("items", "keys", "values", "copy"):
                return [(receiver, state)]
            if name == "format" and receiver.value == "{}" and len(args) == 1:
                return [(args[0], state)]
            if name == "format" and isinstance(receiver.value, str) and receiver.value.strip("{}0") == "":
                return [(self.made("weak", values, node, state), state)]
            return [
                (self._joined(values, node, state) if name == "join" else self.made("new", values, node, state), state)
            ]
        if isinstance(receiver, Ref) and state.cells[receiver.cell].kind != "text":
            return [(self._of_cell(node, receiver, args, kw, state), state)]
        if isinstance(receiver, Attr) and receiver.name.endswith("metadata") and name in _DICT_EDITS:
            self.set_attribute(Ref(receiver.cell), "metadata", Sym(source(node)), node, state)
        if isinstance(receiver, Vague):
            return [(receiver, state)]
        if isinstance(receiver, Tup):
            return self._out_of_sight(node, [receiver, *values], state)
        words = isinstance(receiver, Packed) and receiver.steps[-1] == "split" and isinstance(node.func.value, ast.Name)
        if words and isinstance(node.func.value, ast.Name) and name in _LIST_EDITS:
            made = self._edited(Made("new", source(node), node.lineno), state)
            state.bind(node.func.value.id, made)
            return [(made, state)]
        if isinstance(receiver, Made) and name in (*_DICT_EDITS, "set_content", "append", "extend", "insert"):
            self.may_change(source(node), node.lineno, state)
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
        if name == "replace" and len(args) >= 2 and literally(node.args):
            why = f"`{source(node)}` looks for a regular expression as if it were the text itself"
            state.unreachable += ((node.lineno, why),)
            return [(receiver, state)]
        twice = len(args) >= 2 and isinstance(node.args[0], ast.Name) and source(node.args[0]) == source(node.args[1])
        if name == "replace" and len(args) >= 2 and (twice or (isinstance(args[0], Const) and args[0] == args[1])):
            state.unreachable += ((node.lineno, f"`{source(node)}` puts back what it finds"),)
            return [(receiver, state)]
        made = self.made("new", (receiver, *values), node, state)
        return [(self._edited(made, state) if name in _REPLACES else made, state)]

    def _of_attr(
        self, node: ast.Call, name: str, receiver: Attr, args: list[Value], kw: dict[str | None, Value], state: State
    ) -> Value | None:
        """A method of an attribute of an element: of its node, its metadata, its text."""
        assert isinstance(node.func, ast.Attribute)
        if reads_text(name):
            return Attr(receiver.cell, f"{receiver.name}.content")
        if name == "set_content" and args:
            self.set_attribute(receiver, "content", args[0], node, state)
            return Const(None)
        if name in ("model_copy", "copy") and not canonical(receiver.name).endswith("content"):
            made = self.copy(receiver, state, deep=True)
            update = kw.get("update")
            return self._replaced(made, dict(update.items) if isinstance(update, Map) else {}, node, state)
        if name == "get" and args and isinstance(args[0], Const):
            return Attr(receiver.cell, f"{receiver.name}.{args[0].value}")
        if name in ("append", "extend", "insert", "remove", "clear"):
            self._set_part(Ref(receiver.cell), receiver.name, Sym(source(node)), node, state)
            return Const(None)
        return None

    def _asked(self, node: ast.Call, values: list[Value], state: State) -> Paths:
        """A model is asked: what it answers is not what it was given."""
        return [(Made("new", source(node), node.lineno), state)]

    def _filled(self, holder: ast.expr, values: list[Value], node: ast.expr, state: State) -> None:
        """A set, dict or queue now holds something of the input."""
        held = self.made("weak", values, node, state)
        if isinstance(holder, ast.Name) and holder.id in state.env:
            state.bind(holder.id, held)
        elif isinstance(holder, ast.Attribute) and source(holder.value) == "self":
            state.attrs[holder.attr] = held

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
        compiled_one = name in ("sub", "subn") and full not in ("re.sub", "re.subn")
        if compiled_one and args and self._idle(node, self._pattern(node.func.value), _at(node, 0), args[0], state):
            text = args[1] if len(args) > 1 else kw.get("string", Sym(source(node)))
            return [(text if name == "sub" else Tup((text, Sym("0"))), state)]
        if full in ("functools.partial", "functools.reduce"):
            return self._known(full, node, args, kw, state)
        if name == "get" and args and isinstance(args[0], Const):
            entry = self.table_entry(node.func.value, args[0].value)
            if entry is not None:
                return [(entry, state)]
        if not any(map(state.touches, values)):
            cls = self._class_of(node.func) or self._class_in(node.func)
            return [(Obj(cls, source(node)) if cls else Sym(source(node)), state)]
        if name in MODEL_CALLS and MODEL.search(receiver.text):
            return self._asked(node, values, state)
        if full.startswith(PROTECTORS) or (name in ("anonymize", "deanonymize") and "presidio" in self._imports()):
            return [(self._edited(self.made("new", values, node, state), state), state)]
        if name == "get" and len(args) == 2:
            other = state.fork()
            state.conditions += (Condition(source(node), True, node.lineno),)
            other.conditions += (Condition(source(node), False, node.lineno),)
            return [(Made("new", source(node), node.lineno), state), (args[1], other)]
        if name == "map" and len(args) == 2 and isinstance(args[0], Func | Partial):  # an executor's
            return self._map(name, node, args, state)
        if name in LOGS or name in _LOOKS or name == "get":
            return [(Sym(source(node)) if name in LOGS else Made("new", source(node), node.lineno), state)]
        if name == "shuffle":
            return [(self._in_place(args, node, state), state)]
        if name == "join":
            return [(self._joined(values, node, state), state)]
        if name in ("sub", "subn") and full not in ("re.sub", "re.subn"):
            made = self._edited(self.made("new", values, node, state), state)
            return [(made if name == "sub" else Tup((made, Sym("a number"))), state)]
        if name in ("append", "add", "extend", "put", "appendleft"):
            return [(Const(None), state)]
        return self._known(full or f"?.{name}", node, args, kw, state)
