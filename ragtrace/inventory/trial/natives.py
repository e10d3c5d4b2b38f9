"""What of Python and its standard library the interpreter hands to Python itself: pure functions, on small values."""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import dataclasses
import datetime
import enum
import functools
import importlib
import itertools
import random
import re
import types
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from re import _parser  # type: ignore[attr-defined]  # isort: skip  # what `re` itself parses with

from ragtrace.inventory.patterns import matches
from ragtrace.inventory.trial.things import Chain, FieldSpec, Generator, GiveUpError, Later, Namespace, Opaque, Property

PURE = frozenset(
    "re json string math itertools operator textwrap html unicodedata hashlib hmac base64 binascii zlib statistics "
    "bisect heapq difflib urllib.parse decimal fractions collections collections.abc fnmatch keyword numbers datetime "
    "functools copy typing random".split()
)
LOGS = frozenset(
    "debug info warning warn error exception critical log print write writerow add_event set_attribute incr inc count "
    "observe emit increment".split()
)
MODULES = frozenset("string hashlib _hashlib _sha1 _sha2 _sha3 _sha256 _sha512 _md5 _blake2 textwrap hmac itertools "
                    "difflib collections urllib.parse decimal fractions".split())  # fmt: skip
"""Where the classes of objects come from whose methods are pure."""
PACKAGES = frozenset(
    "asyncio contextlib dataclasses abc types enum time secrets uuid warnings urllib sys concurrent concurrent.futures "
    "threading".split()
)
_LARGE = 20_000
_LONG = 400_000
_NEVER = frozenset(
    "Formatter attrgetter methodcaller main test file_digest get_type_hints product permutations combinations "
    "combinations_with_replacement".split()
)
"""What of these modules reaches further than a pure function, or makes many of few."""
_SLOW = frozenset("pbkdf2_hmac scrypt get_close_matches ndiff unified_diff".split())
_PRODUCT = 20_000_000
_WORD = 120  # no sample has a longer one
_PATIENCE = 1e8  # steps of a search
_ANY_SIZE = frozenset("Random seed str int float round".split())
_WIDTH = re.compile(r"\d{5,}")


def checked(function: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> None:
    """Refuses a call that could take long, or make something large."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    given = (*args, *kw.values())
    if name in _SLOW:
        raise GiveUpError(name)
    if any(type(v) is int and abs(v) > _LARGE for v in given) and name not in _ANY_SIZE:
        raise GiveUpError("a large number")
    sizes = sorted((len(v) for v in (owner, *given) if isinstance(v, str | bytes | list | tuple)), reverse=True)
    if (sizes and sizes[0] > _LONG) or (len(sizes) > 1 and sizes[0] * sizes[1] > _PRODUCT):
        raise GiveUpError("a long text")
    if (
        name == "join"
        and args
        and isinstance(args[0], list)
        and sum(len(v) for v in args[0] if isinstance(v, str)) > _LONG
    ):
        raise GiveUpError("a long text")
    if name in ("format", "format_map") and _WIDTH.search(str(owner if isinstance(owner, str) else args[:1])):
        raise GiveUpError("a wide format")
    pattern = owner if isinstance(owner, re.Pattern) else None
    if (
        pattern is None
        and getattr(function, "__module__", "") == "re"
        and args
        and isinstance(args[0], str | re.Pattern)
    ):
        pattern = args[0] if isinstance(args[0], re.Pattern) else None
        patience(args[0] if pattern is None else pattern.pattern, 0, max(map(_length, given)))
    elif pattern is not None:
        patience(pattern.pattern, pattern.flags, max(map(_length, given), default=0))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else 0


def patience(pattern: Any, flags: int, length: int) -> None:
    """Refuses to search a text of a length for a pattern that may need more than a second for it."""
    if not isinstance(pattern, str):
        return
    reach = length if crosses(pattern, flags) else min(length, _WORD)
    if float(max(length, 2)) * float(max(reach, 2)) ** (degree(pattern, flags) - 1) > _PATIENCE:
        raise GiveUpError("a pattern that may take long")


@lru_cache(maxsize=1024)
def crosses(pattern: str, flags: int) -> bool:
    """Whether a repeat of the pattern goes on over a space, and not only to the end of a word."""
    try:
        pending = list(_parser.parse(pattern, flags & ~re.DEBUG))
    except (re.error, RecursionError, OverflowError):
        return False
    while pending:
        op, value = pending.pop()
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            if value[1] > 20 and " " in _letters(value[2]):
                return True
            pending += list(value[2])
        elif name == "SUBPATTERN":
            pending += list(value[-1])
        elif name == "BRANCH":
            pending += [i for b in value[1] for i in b]
    return False


@lru_cache(maxsize=1024)
def degree(pattern: str, flags: int) -> int:
    """The power of a text's length that a search may need; 99 for exponential time."""
    try:
        tree = _parser.parse(pattern, flags & ~re.DEBUG)
    except (re.error, RecursionError, OverflowError):
        return 0
    return 99 if _explosive(list(tree), False) else _joined(list(tree))


def _joined(items: list[Any], anchored: bool = False) -> int:
    """The longest run of repeats with nothing between them where one must end, and one more for any place to begin."""
    longest, run, begun = 1, 0, anchored
    last: frozenset[str] = frozenset()
    for op, value in items:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT") and value[1] > 20:
            letters = _letters(value[2])
            run, begun = (run + 1, begun) if letters & last else (1, anchored)
            last = letters if run == 1 else last | letters
        elif name in ("LITERAL", "IN", "CATEGORY"):
            anchored = True
            if not _letters([(op, value)]) & last:
                run, last = 0, frozenset()
        elif name in ("SUBPATTERN", "BRANCH"):
            parts = value[1] if name == "BRANCH" else [value[-1]]
            inner = max(_joined(list(p), anchored) - (not anchored) for p in parts)
            run, last = run + inner if inner else run, last | _letters([(op, value)])
        longest = max(longest, run + (not begun))
    return longest


def _explosive(items: list[Any], repeated: bool) -> bool:
    """Whether a repeat is in a repeat, with nothing to hold on to between two rounds."""
    loops = [_letters(v[2]) for op, v in items if str(op) in ("MAX_REPEAT", "MIN_REPEAT") and v[1] > 20]
    if repeated and loops:
        anchors = [_letters([(op, v)]) for op, v in items if str(op) in ("LITERAL", "IN", "CATEGORY")]
        if not any(a and not any(a & loop for loop in loops) for a in anchors):
            return True
    for op, value in items:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT") and _explosive(list(value[2]), repeated or value[1] > 20):
            return True
        if name == "SUBPATTERN" and _explosive(list(value[-1]), repeated):
            return True
        if name == "BRANCH" and any(_explosive(list(b), repeated) for b in value[1]):
            return True
    return False


def _letters(items: Any) -> frozenset[str]:
    """The ASCII characters that one step of a pattern may match."""
    found: set[str] = set()
    for op, value in items:
        name = str(op)
        if name == "SUBPATTERN":
            found |= _letters(value[-1])
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            found |= _letters(value[2])
        elif name == "BRANCH":
            found |= {c for b in value[1] for c in _letters(b)}
        else:
            found |= {c for c in map(chr, range(128)) if matches(name, value, c)}
    return frozenset(found)


def _identity(*args: Any, **kw: Any) -> Any:
    return args[0] if args else None


def _decorator(*args: Any, **kw: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) and not kw else _identity


def _settled(value: Any) -> Any:
    return value.run() if isinstance(value, Later) else value


def _count(start: int = 0, step: int = 1) -> Iterator[int]:
    for i in range(_LARGE):
        yield start + i * step
    raise GiveUpError("an endless loop")


def _cycle(items: Any) -> Iterator[Any]:
    held = list(items)
    for i in range(_LARGE if held else 0):
        yield held[i % len(held)]


def _repeat(item: Any, times: int = _LARGE) -> Iterator[Any]:
    return itertools.repeat(item, min(times, _LARGE))


def _field(default: Any = ..., *, default_factory: Any = None, **_: Any) -> FieldSpec:
    return FieldSpec(default, default_factory)


def _chosen(seed: int) -> dict[str, Any]:
    """Chance, but the same in each run."""
    rng = random.Random(seed)  # noqa: S311  # nothing is kept secret by it
    names = "random gauss normalvariate uniform choice choices shuffle sample randint randrange expovariate betavariate"
    found = {f"random.{n}": getattr(rng, n) for n in f"{names} lognormvariate triangular getrandbits".split()}
    found |= {f"secrets.{n}": lambda k=16: f"{rng.getrandbits(64):016x}"[:k] for n in ("token_hex", "token_urlsafe")}
    return {
        **found,
        "random.SystemRandom": lambda: random.Random(seed),  # noqa: S311
        "random.seed": lambda *_: None,
        "secrets.choice": rng.choice,
        "secrets.randbelow": rng.randrange,
        "secrets.SystemRandom": lambda: random.Random(seed),  # noqa: S311
        "uuid.uuid4": lambda: f"{rng.getrandbits(64):032x}",
    }


class Executor:
    """A pool of threads: what it is given runs at once."""

    own = True

    def __init__(self, *_: Any, **__: Any) -> None:
        self.made: Any = None

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Ends it."""

    def map(self, function: Any, *items: Any, **_: Any) -> Any:
        """As an executor's."""
        return iter([function(*given) for given in zip(*items, strict=False)])

    def submit(self, function: Any, *args: Any, **kw: Any) -> Executor:
        """As an executor's; the future is one that is done."""
        future = Executor()
        future.made = function(*args, **kw)
        return future

    def result(self, *_: Any) -> Any:
        """As a future's."""
        return self.made


class Loop:
    """An event loop that runs what it is given."""

    own = True

    def run_in_executor(self, _: Any, function: Any, *args: Any) -> Later:
        """As a loop's."""
        return Later(lambda: function(*args))

    def run_until_complete(self, what: Any) -> Any:
        """As a loop's."""
        return _settled(what)


class Thread:
    """A thread: it runs when it is started, and what it returns is lost."""

    own = True

    def __init__(
        self, group: Any = None, target: Any = None, name: str = "", args: Any = (), kwargs: Any = None, **_: Any
    ) -> None:
        self.run: Callable[[], Any] = lambda: target(*args, **(kwargs or {}))

    def start(self) -> None:
        """As a thread's."""
        self.run()

    def join(self, *_: Any) -> None:
        """As a thread's."""


SAFE = (
    str, bytes, bytearray, int, float, complex, list, dict, tuple, set, frozenset, range, slice, type(None), re.Pattern,
    re.Match, enum.Enum, BaseException, functools.partial, random.Random, datetime.date, datetime.timedelta,
    datetime.time, collections.deque, Generator, types.SimpleNamespace,
    types.MappingProxyType, Chain, Executor, Loop, Thread,
)  # fmt: skip
KNOWN: dict[str, Any] = {
    "threading.Thread": Thread, "concurrent.futures.ThreadPoolExecutor": Executor,
    "concurrent.futures.as_completed": list,
    **_chosen(1),
    "itertools.count": _count, "itertools.cycle": _cycle, "itertools.repeat": _repeat,
    "functools.wraps": lambda *_, **__: _identity, "functools.lru_cache": _decorator, "functools.cache": _decorator,
    "functools.cached_property": lambda f: Property("property", f), "functools.total_ordering": _identity,
    "typing.cast": lambda _, value: value, "typing.get_args": typing.get_args,
    "typing.NewType": lambda name, kind: kind,
    "typing.TypeVar": lambda *_, **__: object, "typing.overload": _identity, "typing.TYPE_CHECKING": False,
    "contextlib.suppress": contextlib.suppress, "contextlib.nullcontext": contextlib.nullcontext,
    "dataclasses.field": _field, "dataclasses.replace": None, "dataclasses.MISSING": dataclasses.MISSING,
    "abc.abstractmethod": _identity, "types.MappingProxyType": types.MappingProxyType,
    "types.SimpleNamespace": types.SimpleNamespace, "enum.auto": enum.auto,
    "asyncio.run": _settled, "asyncio.sleep": lambda *_, **__: Later(lambda: None),
    "asyncio.gather": lambda *given, **_: Later(lambda: [_settled(g) for g in given]),
    "asyncio.wait_for": lambda what, *_, **__: what, "asyncio.shield": _identity,
    "asyncio.to_thread": lambda f, *a, **k: Later(lambda: f(*a, **k)),
    **{f"asyncio.{n}": Loop for n in ("get_running_loop", "get_event_loop", "new_event_loop")},
    "asyncio.create_task": _identity, "asyncio.ensure_future": _identity,
    "asyncio.TimeoutError": TimeoutError, "asyncio.CancelledError": type("CancelledError", (BaseException,), {}),
    "time.sleep": lambda *_: None, "warnings.warn": lambda *_, **__: None, "gc.collect": lambda *_: 0,
    "re.compile": re.compile, "copy.copy": copy.copy, "copy.deepcopy": copy.deepcopy, "sys.version_info": (3, 11, 0),
    "sys.intern": _identity, "ast.literal_eval": None,
}  # fmt: skip
"""Names of the standard library with a meaning of their own here. ``None``: the interpreter has it, or nobody."""


def known(dotted: str) -> Any:
    """What a dotted name of the standard library stands for; an ``Opaque`` where it is none of the pure ones."""
    if dotted in KNOWN:
        return KNOWN[dotted] if KNOWN[dotted] is not None else Opaque(dotted)
    module, _, name = dotted.rpartition(".")
    if dotted in PACKAGES or dotted in PURE:
        return Namespace(dotted)
    if module in PURE and not name.startswith("_"):
        found = getattr(importlib.import_module(module), name, None)
        hidden = isinstance(found, types.ModuleType) or (module == "typing" and isinstance(found, types.FunctionType))
        if found is not None and not hidden and name not in _NEVER:
            return found
    if module.startswith(("pydantic", "llama_index.core.bridge")) and name in ("Field", "PrivateAttr"):
        return _field
    if module.startswith(("pydantic", "llama_index.core.bridge")) and name in ("field_validator", "model_validator"):
        return lambda *_, **__: _identity
    if module == "asyncio" and name in ("Lock", "Semaphore"):
        return lambda *_: contextlib.nullcontext()
    if module == "threading" and name in ("Lock", "RLock", "Semaphore"):
        return lambda *_: contextlib.nullcontext()
    return Opaque(dotted)


_BUILTINS = (
    "str int float bool list dict set tuple frozenset bytes bytearray sorted reversed enumerate zip map filter min "
    "max sum any all abs round ord chr hex bin oct iter next hash id slice divmod object Exception BaseException "
    "ValueError TypeError KeyError IndexError LookupError AttributeError RuntimeError NotImplementedError "
    "ImportError ModuleNotFoundError StopIteration ZeroDivisionError ArithmeticError OverflowError AssertionError "
    "NameError OSError IOError FileNotFoundError PermissionError TimeoutError ConnectionError UnicodeError "
    "UnicodeDecodeError UnicodeEncodeError UnboundLocalError RecursionError MemoryError EOFError FloatingPointError "
    "Warning UserWarning DeprecationWarning RuntimeWarning FutureWarning ConnectionResetError BrokenPipeError True "
    "False None Ellipsis NotImplemented len repr format ascii "
).split()
BUILTINS: dict[str, Any] = {n: getattr(builtins, n) for n in _BUILTINS if hasattr(builtins, n)}
