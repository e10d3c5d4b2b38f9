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
    """A function whose source is in sight; ``env`` holds a closure's variables, ``bound`` its ``self`` or ``cls``."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda = field(compare=False)
    module: Module = field(compare=False)
    owner: Class | None = field(default=None, compare=False)
    env: tuple[tuple[str, Value], ...] = field(default=(), compare=False)
    bound: bool = False


@dataclass(frozen=True)
class Self(Value):
    """The defense itself."""


@dataclass(frozen=True)
class Cell:
    """See the module's text. ``loop`` is the iteration that an element, or an item of a built list, belongs to."""

    kind: Literal["text", "list", "element", "built"]
    space: int | None = None
    loop: int | None = None
    origin: int | None = None  # the element that this one is a copy of
    items: tuple[tuple[Value, int | None], ...] = ()
    dirty: Made | Vague | None = None


@dataclass(frozen=True)
class Condition:
    """A branch taken: the test's source, and which way it went."""

    text: str
    truth: bool
    line: int

    def __str__(self) -> str:
        return f"`{self.text}`" if self.truth else f"not `{self.text}`"


@dataclass
class State:
    """One path through the hook, so far."""

    env: dict[str, Value] = field(default_factory=dict)
    attrs: dict[str, Value] = field(default_factory=dict)
    cells: dict[int, Cell] = field(default_factory=dict)
    spaces: dict[int, Made | Vague] = field(default_factory=dict)
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
            facts=dict(self.facts),
        )

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
        shared = self.spaces.get(cell.space) if cell.space is not None else None
        return _stronger(cell.dirty, shared) if shared else cell.dirty

    def touches(self, value: Value) -> bool:
        """Whether the value has anything to do with the input."""
        if isinstance(value, Tup):
            return any(map(self.touches, value.items))
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
    parts = [state.dirt(item) if isinstance(item, Ref) else item for item, _ in cell.items]
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
    if len(cell.items) == 1:
        item, loop = cell.items[0]
        element = state.cells[item.cell] if isinstance(item, Ref) else None
        if element and element.kind == "element" and loop is not None and element.loop == loop not in state.broken:
            return "same", "returns a list of the elements of its input", 0
    return "changed", "returns a list of its own that is not the input's", 0
