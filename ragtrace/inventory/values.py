"""What the data flow knows about a value: is it the hook's input still, or something made of it?

A *cell* is an object that can be changed in place: the input (or a copy of it), one of its elements, or a list that
the hook builds. Elements of a list and of its shallow copies live in one *space*: changing one changes all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import ast

    from ragtrace.inventory.modules import Class, Module


@dataclass(frozen=True)
class Value:
    """Base of all: nothing is known."""


@dataclass(frozen=True)
class Ref(Value):
    """An object in a cell: equal to the input, one of its elements, or a list being built."""

    cell: int


@dataclass(frozen=True)
class Attr(Value):
    """The attribute that an element had when it came in."""

    cell: int
    name: str


@dataclass(frozen=True)
class Made(Value):
    """Made from the input. ``new``: another value; ``cut``: a part of it; ``weak``: perhaps the same again."""

    kind: Literal["new", "cut", "weak"]
    text: str
    line: int


@dataclass(frozen=True)
class Vague(Value):
    """May be the input, or not; ``why`` completes "cannot tell: …"."""

    why: str
    line: int


@dataclass(frozen=True)
class Const(Value):
    """A literal. ``origin`` is the name of the constant where it is one of the module's or the class's."""

    value: Any
    origin: str | None = None


@dataclass(frozen=True)
class Sym(Value):
    """Something that does not depend on the input, by its source text."""

    text: str


@dataclass(frozen=True)
class Tup(Value):
    """A tuple written out, or what ``zip`` and ``enumerate`` yield (``each``: its items are iterables)."""

    items: tuple[Value, ...]
    each: bool = False


@dataclass(frozen=True)
class Func(Value):
    """A function whose source is in sight; ``env`` holds a closure's variables, ``bound`` whether it has a ``self``:
    the defense, or ``receiver``."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda = field(compare=False)
    module: Module = field(compare=False)
    owner: Class | None = field(default=None, compare=False)
    env: tuple[tuple[str, Value], ...] = field(default=(), compare=False)
    bound: bool = False
    receiver: Value | None = None
    plain: bool = False  # a decorator's wrapper was put round it already


@dataclass(frozen=True)
class Self(Value):
    """The defense itself."""


@dataclass(frozen=True)
class Map(Value):
    """A dict written out, with plain keys."""

    items: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Partial(Value):
    """A function with some of its arguments given."""

    function: Value
    args: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()
    node: ast.Call | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Choice(Value):
    """One of a table's functions, each under its key; ``text`` is what decides which."""

    options: tuple[tuple[str, Value], ...]
    text: str


@dataclass(frozen=True)
class Packed(Made):
    """What can be undone: the input, or something equal to it, after ``steps`` (the last one is the outermost)."""

    inner: Value = field(default_factory=Value)
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Obj(Value):
    """An object of a class in sight, made without the input."""

    cls: Class = field(compare=False)
    text: str = ""


@dataclass(frozen=True)
class Lazy(Value):
    """A generator or coroutine: nothing of it has run yet. ``env`` is what it will see."""

    node: ast.expr = field(compare=False)
    env: tuple[tuple[str, Value], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Handler(Value):
    """What a middleware calls to have the model, or a tool, run."""


@dataclass(frozen=True)
class Cell:
    """See the module's text. ``loop`` is the iteration that an element, or an item of a built list, belongs to."""

    kind: Literal["text", "list", "element", "built"]
    space: int | None = None
    loop: int | None = None
    origin: int | None = None  # the element that this one is a copy of
    part: str = ""  # or of which attribute of it
    items: tuple[tuple[Value, int | None], ...] = ()
    dirty: Made | Vague | None = None
    sure: bool = True  # the hook says that it is a text, or a list; else that is a guess


@dataclass(frozen=True)
class Condition:
    """A branch taken: the test's source, and which way it went."""

    text: str
    truth: bool
    line: int

    def __str__(self) -> str:
        if not self.truth and self.text.startswith("not ") and " and " not in self.text and " or " not in self.text:
            return f"`{self.text[4:]}`"
        return f"`{self.text}`" if self.truth else f"not `{self.text}`"


@dataclass
class State:
    """One path through the hook, so far."""

    env: dict[str, Value] = field(default_factory=dict)
    attrs: dict[str, Value] = field(default_factory=dict)
    cells: dict[int, Cell] = field(default_factory=dict)
    spaces: dict[int, Made | Vague] = field(default_factory=dict)
    parts: dict[tuple[int, str], int] = field(default_factory=dict)  # lists that are attributes of an element
    sent: tuple[Value, ...] = ()  # requests handed to the model
    heard: frozenset[int] = frozenset()  # cells of what it answered
    conditions: tuple[Condition, ...] = ()
    facts: dict[str, bool] = field(default_factory=dict)
    trivial: bool = False  # the input is empty, or an exception was swallowed
    empty: bool = False  # the input is empty
    handled: str = ""  # an exception that may never be raised led here
    broken: frozenset[int] = frozenset()  # loops left by break
    loops: tuple[int, ...] = ()
    edits: tuple[tuple[int, str], ...] = ()  # replacements made so far, returned or not
    unreachable: tuple[tuple[int, str], ...] = ()  # branches that a constant switches off

    def fork(self) -> State:
        """An independent copy."""
        return replace(
            self,
            env=dict(self.env),
            attrs=dict(self.attrs),
            cells=dict(self.cells),
            spaces=dict(self.spaces),
            parts=dict(self.parts),
            facts=dict(self.facts),
        )

    def key(self) -> object:
        """What decides how the path goes on, without how it was reached."""
        held = (self.env, self.attrs, self.cells, self.spaces, self.parts)
        return (
            *(tuple(d.items()) for d in held),
            self.trivial, self.empty, self.handled, self.broken, self.loops, self.sent, self.heard,
        )  # fmt: skip

    def new(self, cell: Cell) -> Ref:
        """Puts a cell on the heap."""
        ref = Ref(len(self.cells))
        self.cells[ref.cell] = cell
        return ref

    def bind(self, name: str, value: Value) -> None:
        """Assigns a local variable, and forgets what was known of tests that mention it."""
        self.env[name] = value
        self.forget(name)

    def forget(self, name: str) -> None:
        """Drops remembered tests about ``name``."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        self.facts = {text: truth for text, truth in self.facts.items() if not word.search(text)}

    def mutate(self, ref: Ref, change: Made | Vague) -> None:
        """Records that the object is changed in place, perhaps."""
        cell = self.cells[ref.cell]
        if cell.kind == "text":
            return
        if isinstance(change, Made):
            self.edits += ((change.line, change.text),)
        self.cells[ref.cell] = replace(cell, dirty=_stronger(cell.dirty, change))
        if cell.kind == "element" and cell.space is not None:
            self.spaces[cell.space] = _stronger(self.spaces.get(cell.space), change)

    def dirt(self, ref: Ref) -> Made | Vague | None:
        """What was done to the object, or to the elements it shares."""
        cell = self.cells[ref.cell]
        found = cell.dirty
        if cell.space is not None and (shared := self.spaces.get(cell.space)):
            found = _stronger(found, shared)
        for (owner, _), part in self.parts.items():
            if owner == ref.cell and (inner := self.dirt(Ref(part))):
                found = _stronger(found, inner)
        return found

    def touches(self, value: Value) -> bool:
        """Whether the value has anything to do with the input."""
        if isinstance(value, Tup):
            return any(map(self.touches, value.items))
        if isinstance(value, Map):
            return any(self.touches(v) for _, v in value.items)
        if isinstance(value, Partial):
            return any(map(self.touches, value.args)) or any(self.touches(v) for _, v in value.keywords)
        if isinstance(value, Ref) and self.cells[value.cell].kind == "built":
            cell = self.cells[value.cell]
            return cell.dirty is not None or any(self.touches(v) for v, _ in cell.items)
        return isinstance(value, Ref | Attr | Made | Vague)


Judgement = tuple[Literal["same", "changed", "vague", "none"], str, int]
"""What a returned value is; why; the line where it was made (0 where there is none)."""


def _stronger(a: Made | Vague | None, b: Made | Vague) -> Made | Vague:
    return b if a is None or (isinstance(a, Vague) and isinstance(b, Made)) else a


def judge(value: Value, state: State) -> Judgement:
    """Compares a returned value with the input."""
    if isinstance(value, Made):
        if isinstance(value, Packed) and any(step.startswith("code ") for step in value.steps):
            return "changed", f"returns its input in another form, made by `{value.text}`", value.line
        if value.kind == "weak":
            return "vague", f"`{value.text}` takes the input apart and may put it together as it was", value.line
        return "changed", f"returns a new value, made by `{value.text}`", value.line
    if isinstance(value, Vague):
        return "vague", value.why, value.line
    if isinstance(value, Const):
        return ("none", "returns None", 0) if value.value is None else ("changed", f"returns {value.value!r}", 0)
    if isinstance(value, Sym):
        return "changed", f"returns `{value.text}`, which is not its input", 0
    if isinstance(value, Ref):
        return _judge_cell(value, state)
    if isinstance(value, Map):
        told = [judge(v, state) for _, v in value.items]
        return next((t for t in told if t[0] == "changed" and t[2]), ("vague", "returns a dict made of parts", 0))
    return "vague", "returns something that is followed no further", 0


def _judge_cell(ref: Ref, state: State) -> Judgement:
    cell, dirt = state.cells[ref.cell], state.dirt(ref)
    if cell.kind == "built" and dirt is None:
        return _judge_built(cell, state)
    if isinstance(dirt, Vague):
        return "vague", dirt.why, dirt.line
    if dirt is not None:
        if dirt.kind == "weak":
            return "vague", f"`{dirt.text}` may put the same back", dirt.line
        return "changed", f"changes what it returns in place by `{dirt.text}`", dirt.line
    if cell.kind == "element":
        return "changed", "returns one element of its input", 0
    return "same", "returns its input", 0


def _judge_built(cell: Cell, state: State) -> Judgement:
    parts = [part for item, loop in cell.items for part in _parts(item, loop, state)]
    for part in parts:
        if isinstance(part, Made) and part.kind != "weak":
            return "changed", f"returns a list with what `{part.text}` makes", part.line
        if isinstance(part, Const | Sym):
            return "changed", "returns a list with something that is not from its input", 0
    for part in parts:
        if isinstance(part, Vague):
            return "vague", part.why, part.line
        if isinstance(part, Made):
            return "vague", f"`{part.text}` may be the same again", part.line
    if any(isinstance(part, Ref) for part in parts):
        return "vague", "returns its elements in other objects", 0
    if len(cell.items) == 1:
        item, loop = cell.items[0]
        element = state.cells[item.cell] if isinstance(item, Ref) else None
        if isinstance(item, Tup) and isinstance(item.items[0], Attr):
            element = state.cells[item.items[0].cell]
        if element and element.kind == "element" and loop is not None and element.loop == loop not in state.broken:
            return "same", "returns a list of the elements of its input", 0
    return "changed", "returns a list of its own that is not the input's", 0


def _parts(item: Value, loop: int | None, state: State) -> list[Value | None]:
    """What is to be judged of an item; a ``Ref`` where an unchanged element was wrapped in something else."""
    if isinstance(item, Ref):
        return [state.dirt(item)]
    if isinstance(item, Tup) and all(isinstance(v, Attr) and v.name == str(i) for i, v in enumerate(item.items)):
        return [None]
    if isinstance(item, Tup | Map):
        inner = item.items if isinstance(item, Tup) else [v for _, v in item.items]
        made: list[Value | None] = [v for v in inner if isinstance(v, Made) and v.kind != "weak"]
        made += [v for x in inner if isinstance(x, Ref) and isinstance(v := state.dirt(x), Made)]
        if isinstance(item, Map):
            made += [
                v for k, v in item.items if k in ("text", "content", "page_content") and isinstance(v, Const | Sym)
            ]
        return made or [Ref(0)]
    return [item]


def edits_on(path: object) -> int:
    """How much was changed so far on a path: a state, or a tuple with one in it."""
    parts = path if isinstance(path, tuple) else (path,)
    states = [p for p in parts if isinstance(p, State)]
    return sum(len(s.spaces) + sum(c.dirty is not None for c in s.cells.values()) for s in states)
